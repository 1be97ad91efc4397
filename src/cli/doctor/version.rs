//! The cluster's version.

use k8s_openapi::apimachinery::pkg::version::Info;

use super::finding::Finding;
use super::installed::Gate;

/// The oldest minor version of Kubernetes 1 that has what we need.
const OLDEST: u32 = 30;
/// The oldest that serves mutating policies as we render them.
const OLDEST_WITH_POLICIES: u32 = 36;

/// Whether the apiserver is new enough for who adds the gate.
pub fn cluster(version: &Info, gate: Gate) -> Finding {
    let check = "version";
    let said =
        format!("Kubernetes {}, tidegate {}", version.git_version, env!("CARGO_PKG_VERSION"));
    let needed = if gate.uses_policy() { OLDEST_WITH_POLICIES } else { OLDEST };
    match minor(version) {
        Some(minor) if minor >= needed => Finding::ok(check, said),
        Some(_) if gate.uses_policy() => Finding::fail(
            check,
            format!("{said}: a policy adds the gate, which takes Kubernetes 1.{needed}"),
            "install the chart with admission.gateBy=webhook, or upgrade the cluster",
        ),
        Some(_) => Finding::fail(
            check,
            format!("{said}: Tidegate takes Kubernetes 1.{needed}"),
            "upgrade the cluster",
        ),
        None => Finding::warn(check, format!("{said}: that is no version"), "look at it yourself"),
    }
}

/// Vendors write `30+`. Kubernetes 2 is newer than any 1.
fn minor(version: &Info) -> Option<u32> {
    let digits =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    match digits(&version.major)? {
        0_u32 => Some(0),
        1 => digits(&version.minor),
        _ => Some(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("1", "36", Gate::Policy, Verdict::Ok)]
    #[case("1", "35", Gate::Policy, Verdict::Fail)]
    #[case("1", "30+", Gate::Webhook, Verdict::Ok)]
    #[case("1", "29", Gate::Webhook, Verdict::Fail)]
    #[case("2", "0", Gate::Policy, Verdict::Ok)]
    #[case("x", "", Gate::Webhook, Verdict::Warn)]
    fn the_needed_version_depends_on_who_adds_the_gate(
        #[case] major: &str,
        #[case] minor: &str,
        #[case] gate: Gate,
        #[case] verdict: Verdict,
    ) {
        let (major, minor) = (major.to_owned(), minor.to_owned());
        let version = Info { major, minor, ..Info::default() };
        assert_eq!(cluster(&version, gate).verdict, verdict);
    }
}
