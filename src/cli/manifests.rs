//! Commands that print what is to be installed: `crds`, `webhook-config`, `policies`.

use clap::{Args, ValueEnum};

use crate::manifests::{self, Values};

use super::output::Printed;
use super::{Failure, Home};

/// What differs between installations.
#[derive(Clone, Debug, Args)]
pub struct Install {
    #[command(flatten)]
    home: Home,
    /// What puts the gate on new pods.
    #[arg(long, value_enum, default_value_t)]
    gate_by: GateBy,
    /// Account whose pods are not gated, by its full user name; may be repeated.
    #[arg(long, value_name = "USER", value_parser = Values::account)]
    exempt_account: Vec<String>,
}

/// Who adds the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GateBy {
    /// The mutating webhook.
    #[default]
    Webhook,
    /// A mutating admission policy.
    Policy,
}

impl Install {
    fn values(&self) -> Values {
        Values::new(&self.home.namespace, &self.exempt_account)
    }
}

/// The kinds.
pub fn crds() -> Result<Printed, Failure> {
    print(manifests::crds().map_err(manifests::Error::from))
}

/// The webhook that checks queues and the one that gates or, when a policy does that, the
/// one that holds back those whose backlog is full.
pub fn webhook_config(install: &Install) -> Result<Printed, Failure> {
    let values = install.values();
    print(Ok(match install.gate_by {
        GateBy::Webhook => vec![manifests::mutating(&values), manifests::validating(&values)],
        GateBy::Policy => vec![manifests::validating_with_pods(&values)],
    }))
}

/// The guard and, unless the webhook does that, the policy that gates.
pub fn policies(install: &Install) -> Result<Printed, Failure> {
    let values = install.values();
    let mut policies = manifests::guard(&values);
    if install.gate_by == GateBy::Policy {
        policies.extend(manifests::gate_policy(&values));
    }
    print(Ok(policies))
}

fn print(objects: Result<Vec<serde_json::Value>, manifests::Error>) -> Result<Printed, Failure> {
    let text = objects.and_then(|objects| manifests::yaml(&objects));
    text.map(Printed::out).map_err(|error| Failure::Error(error.to_string()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use rstest::rstest;

    use super::*;

    fn kinds(printed: &Printed) -> Vec<&str> {
        printed.out.lines().filter_map(|line| line.strip_prefix("kind: ")).collect()
    }

    fn install(gate_by: GateBy) -> Install {
        Install { home: Home { namespace: "here".to_owned() }, gate_by, exempt_account: vec![] }
    }

    #[test]
    fn one_of_webhook_and_policy_adds_the_gate() {
        let webhooks = |by| webhook_config(&install(by)).unwrap();
        let both = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
        assert_eq!(kinds(&webhooks(GateBy::Webhook)), both);
        assert_eq!(kinds(&webhooks(GateBy::Policy)), both[1..]);
        let policies = |by| policies(&install(by)).unwrap();
        let mutates = |printed: &Printed| kinds(printed).contains(&"MutatingAdmissionPolicy");
        assert!(!mutates(&policies(GateBy::Webhook)));
        assert!(mutates(&policies(GateBy::Policy)));
    }

    #[rstest]
    #[case(&["webhook-config", "-n", "BAD"], "lower-case letters")]
    #[case(&["uninstall", "-n", "a b"], "lower-case letters")]
    #[case(&["doctor", "-n", "BAD"], "lower-case letters")]
    #[case(&["policies", "--exempt-account", "foo"], "system:serviceaccount:NAMESPACE:NAME")]
    #[case(&["run", "webhook", "--exempt-account", "ann@example.com,foo"], "full user name")]
    #[case(&["run", "controller", "--namespace", "a b"], "lower-case letters")]
    fn nonsense_is_wrong_usage_and_says_what_is_expected(
        #[case] args: &[&str],
        #[case] said: &str,
    ) {
        let args = ["tidegate"].iter().chain(args);
        let error = crate::cli::Cli::try_parse_from(args).err().unwrap();
        assert!(error.exit_code() == 2 && error.to_string().contains(said), "{error}");
    }

    #[test]
    fn kinds_are_printed_as_yaml() {
        assert_eq!(kinds(&crds().unwrap()), ["CustomResourceDefinition"]);
    }
}
