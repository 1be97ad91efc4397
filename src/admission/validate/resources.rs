//! Names of resources that a pod could ask for.
//!
//! The rules are those of the apiserver for `resources.requests`: a name without a
//! domain is one of a short list, one with a domain is a qualified name. What no pod
//! can ask for would be a limit that never holds, silently.

/// Names without a domain that a pod can ask for, and `pods`, which every pod costs.
const PLAIN: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];
const HUGE_PAGES: &str = "hugepages-";
/// Prefix of a `ResourceQuota` on requests.
const QUOTA: &str = "requests.";
/// Domain whose names are Kubernetes' own; no device has it.
const NATIVE: &str = "kubernetes.io/";

/// Longest domain, and longest name after it, in characters.
const DOMAIN_MAX: usize = 253;
const NAME_MAX: usize = 63;
/// Letters that a misspelt name may differ in.
const TYPOS: usize = 2;

/// Why no pod can ask for a resource of this name, with what was likely meant.
pub(super) fn refuse(resource: &str) -> Option<String> {
    let why = match resource.split_once('/') {
        _ if resource.starts_with(QUOTA) => "is a name of ResourceQuota",
        None if PLAIN.contains(&resource) || is_huge_pages(resource) => return None,
        None => "is not a resource that a pod can ask for",
        Some((domain, name)) if !(is_domain(domain) && is_name(name)) => "is malformed",
        Some(_) if resource.contains(NATIVE) => "has a domain of Kubernetes' own",
        Some(_) => return None,
    };
    Some(format!("resource {resource:?} {why}: {}", advice(resource)))
}

fn advice(resource: &str) -> String {
    match meant(resource) {
        Some(near) => format!("use {near:?}"),
        None => format!(
            "use one of {}, hugepages-SIZE, or a device's full name, such as nvidia.com/gpu",
            PLAIN.join(", ")
        ),
    }
}

/// What was likely meant: without the quota's prefix, in lower case, singular, written
/// out (`mem`, `storage`) or without a slip of the pen.
fn meant(resource: &str) -> Option<String> {
    let lower = resource.trim().to_lowercase();
    let bare = lower.strip_prefix(QUOTA).unwrap_or(&lower);
    if bare != resource && refuse(bare).is_none() {
        return Some(bare.to_owned());
    }
    let is_near = |known: &str| {
        let same_start = bare.chars().next() == known.chars().next();
        let written_out = bare.len() > 2 && (known.starts_with(bare) || known.ends_with(bare));
        written_out || (bare.len() > 2 && same_start && distance(bare, known) <= TYPOS)
    };
    PLAIN.into_iter().find(|known| is_near(known)).map(str::to_owned)
}

fn is_huge_pages(resource: &str) -> bool {
    resource.strip_prefix(HUGE_PAGES).is_some_and(|size| crate::quantity::parse(size).is_ok())
}

/// DNS-1123 subdomain.
fn is_domain(domain: &str) -> bool {
    let label =
        |label: &str| is_framed(label, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-");
    domain.len() <= DOMAIN_MAX && domain.split('.').all(label)
}

/// The part of a qualified name after the slash.
fn is_name(name: &str) -> bool {
    name.len() <= NAME_MAX && is_framed(name, |c| c.is_ascii_alphanumeric(), "-_.")
}

/// Not empty, begins and ends with `outer`, and holds nothing but that and `inner`.
fn is_framed(text: &str, outer: impl Fn(char) -> bool, inner: &str) -> bool {
    let ends = [text.chars().next(), text.chars().next_back()];
    ends.into_iter().all(|end| end.is_some_and(&outer))
        && text.chars().all(|c| outer(c) || inner.contains(c))
}

/// Letters to insert, take away or change to make one text of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (line, a) in one.chars().enumerate() {
        let mut left = line + 1;
        let mut next = vec![left];
        for (above, b) in row.windows(2).zip(other.chars()) {
            let [diagonal, over] = above else { continue };
            left = (left + 1).min(over + 1).min(diagonal + usize::from(a != b));
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("cpu")]
    #[case("memory")]
    #[case("ephemeral-storage")]
    #[case("pods")]
    #[case("hugepages-2Mi")]
    #[case("nvidia.com/gpu")]
    #[case("nvidia.com/mig-1g.5gb")]
    #[case("example.com/My_Device.v2")]
    fn names_of_what_pods_ask_for_pass(#[case] resource: &str) {
        assert_eq!(refuse(resource), None);
    }

    #[rstest]
    #[case("cpus", "use \"cpu\"")]
    #[case("CPU", "use \"cpu\"")]
    #[case(" cpu", "use \"cpu\"")]
    #[case("mem", "use \"memory\"")]
    #[case("memroy", "use \"memory\"")]
    #[case("pod", "use \"pods\"")]
    #[case("storage", "use \"ephemeral-storage\"")]
    #[case("requests.cpu", "use \"cpu\"")]
    #[case("requests.nvidia.com/gpu", "use \"nvidia.com/gpu\"")]
    #[case("NVIDIA.com/gpu", "use \"nvidia.com/gpu\"")]
    #[case("gpu", "such as nvidia.com/gpu")]
    #[case("gpus", "such as nvidia.com/gpu")]
    #[case("", "resource \"\" is not a resource")]
    #[case("foo bar", "use one of cpu, memory")]
    #[case("hugepages-", "use one of")]
    #[case("nvidia.com/", "malformed")]
    #[case("/gpu", "malformed")]
    #[case("a/b/c", "malformed")]
    #[case("-a.com/gpu", "malformed")]
    #[case("kubernetes.io/batch-cpu", "of Kubernetes' own")]
    fn other_names_are_refused_with_what_was_meant(#[case] resource: &str, #[case] said: &str) {
        let refusal = refuse(resource).unwrap();
        assert!(refusal.contains(said), "{refusal}");
    }

    #[test]
    fn names_may_be_as_long_as_kubernetes_takes_them_and_no_longer() {
        let domain = format!("{}.{}", "a".repeat(200), "b".repeat(52));
        let name = |extra: usize| format!("{domain}/{}", "c".repeat(NAME_MAX + extra));
        assert_eq!(refuse(&name(0)), None);
        assert!(refuse(&name(1)).is_some() && refuse(&format!("b{}", name(0))).is_some());
    }

    #[rstest]
    #[case("", "", 0)]
    #[case("", "abc", 3)]
    #[case("memroy", "memory", 2)]
    #[case("cpu", "gpu", 1)]
    fn distances_count_letters(#[case] one: &str, #[case] other: &str, #[case] letters: usize) {
        assert_eq!((distance(one, other), distance(other, one)), (letters, letters));
    }
}
