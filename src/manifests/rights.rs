//! What our accounts may do: the rights that the chart's `rbac.yaml` grants, beside reading
//! owners, which the operators decide. A test compares the two.

use crate::api::names::{EPOCH_OBJECT, GROUP, LEASE, VERB_RELEASE};

use super::names::CONFIGURATION;

/// Where a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the whole cluster.
    Everywhere,
    /// In the namespace of the installation.
    Home,
    /// In `kube-system`, by a role that Kubernetes brings.
    KubeSystem,
}

/// Verbs that an account needs on a resource, maybe of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Name of the ServiceAccount and of its role.
    pub account: &'static str,
    /// Where.
    pub place: Place,
    /// API group, empty for the core.
    pub group: &'static str,
    /// Resource, maybe with a subresource.
    pub resource: &'static str,
    /// Of this name only, unless it is empty.
    pub name: &'static str,
    /// What may be done.
    pub verbs: &'static [&'static str],
    /// Only where the controller makes its own certificates.
    pub own_certificates: bool,
}

const CONTROLLER: &str = "tidegate-controller";

const fn right(
    place: Place,
    group: &'static str,
    resource: &'static str,
    name: &'static str,
    verbs: &'static [&'static str],
) -> Right {
    Right { account: CONTROLLER, place, group, resource, name, verbs, own_certificates: false }
}

const fn own(right: Right) -> Right {
    Right { own_certificates: true, ..right }
}

const READ: &[&str] = &["list", "watch"];
const BUNDLE: &[&str] = &["list", "watch", "patch"];
const ADMISSION: &str = "admissionregistration.k8s.io";
const ELECTION: &str = "coordination.k8s.io";

/// All of them.
pub const RIGHTS: &[Right] = &[
    Right { account: "tidegate-webhook", ..right(Place::Everywhere, GROUP, "queues", "", READ) },
    right(Place::Everywhere, "", "pods", "", &["list", "watch", "patch"]),
    right(Place::Everywhere, "", "pods/eviction", "", &["create"]),
    right(Place::Everywhere, "", "nodes", "", READ),
    right(Place::Everywhere, "", "namespaces", "", READ),
    right(Place::Everywhere, GROUP, "queues", "", &["get", "list", "watch", VERB_RELEASE]),
    right(Place::Everywhere, GROUP, "queues/status", "", &["patch"]),
    right(Place::Everywhere, "events.k8s.io", "events", "", &["create", "patch"]),
    right(Place::Everywhere, "authorization.k8s.io", "subjectaccessreviews", "", &["create"]),
    right(Place::KubeSystem, "", "configmaps", "extension-apiserver-authentication", &["get"]),
    right(Place::Home, ELECTION, "leases", LEASE, &["get", "list", "watch", "patch"]),
    right(Place::Home, "", "configmaps", EPOCH_OBJECT, &["get", "patch"]),
    right(Place::Home, ELECTION, "leases", "", &["create"]),
    right(Place::Home, "", "configmaps", "", &["create"]),
    own(right(
        Place::Everywhere,
        ADMISSION,
        "mutatingwebhookconfigurations",
        CONFIGURATION,
        BUNDLE,
    )),
    own(right(
        Place::Everywhere,
        ADMISSION,
        "validatingwebhookconfigurations",
        CONFIGURATION,
        BUNDLE,
    )),
    own(right(
        Place::Everywhere,
        "apiregistration.k8s.io",
        "apiservices",
        "v1alpha1.visibility.tidegate.dev",
        BUNDLE,
    )),
    own(right(Place::Home, "", "secrets", "tidegate-tls", &["get", "update"])),
    own(right(Place::Home, "", "secrets", "", &["create"])),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use serde_json::Value;

    const CHART: &str = include_str!("../../charts/tidegate/templates/rbac.yaml");

    /// Account, place, group, resource, name, verb.
    type Grant = (String, Place, String, String, String, String);

    /// What the chart's roles grant, with own certificates or without.
    fn granted(own_certificates: bool) -> BTreeSet<Grant> {
        let mut text = String::new();
        let mut skips = false;
        for line in CHART.lines() {
            match line.trim() {
                "{{- if not .Values.certManager.enabled }}" => skips = !own_certificates,
                "{{- end }}" => skips = false,
                _ if skips => {}
                _ => {
                    text.push_str(line.split("{{").next().unwrap_or_default());
                    text.push('\n');
                }
            }
        }
        let objects: Vec<Value> = serde_yaml::from_multiple(&text).unwrap();
        objects.iter().flat_map(grants).collect()
    }

    fn grants(object: &Value) -> Vec<Grant> {
        let place = match object["kind"].as_str() {
            Some("ClusterRole") => Place::Everywhere,
            Some("Role") => Place::Home,
            _ => return Vec::new(),
        };
        let account = object["metadata"]["name"].as_str().unwrap();
        let texts = |value: &Value| -> Vec<String> {
            let items = value.as_array().into_iter().flatten();
            items.map(|item| item.as_str().unwrap().to_owned()).collect()
        };
        let mut grants = Vec::new();
        for rule in object["rules"].as_array().unwrap() {
            let mut names = texts(&rule["resourceNames"]);
            names.extend(names.is_empty().then(String::new));
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for name in &names {
                        grants.extend(texts(&rule["verbs"]).into_iter().map(|verb| {
                            let (group, resource) = (group.clone(), resource.clone());
                            (account.to_owned(), place, group, resource, name.clone(), verb)
                        }));
                    }
                }
            }
        }
        grants
    }

    #[test]
    fn the_chart_grants_these_rights_and_no_others() {
        for own_certificates in [true, false] {
            let listed = RIGHTS.iter().filter(|right| own_certificates || !right.own_certificates);
            let ours = listed.filter(|right| right.place != Place::KubeSystem);
            let ours: BTreeSet<Grant> = ours
                .flat_map(|right| {
                    let Right { account, place, group, resource, name, .. } = right;
                    let [account, group, resource, name] =
                        [account, group, resource, name].map(|text| (*text).to_owned());
                    right.verbs.iter().map(move |verb| {
                        let (account, group) = (account.clone(), group.clone());
                        let verb = (*verb).to_owned();
                        (account, *place, group, resource.clone(), name.clone(), verb)
                    })
                })
                .collect();
            let granted: BTreeSet<Grant> = granted(own_certificates)
                .into_iter()
                .filter(|(account, ..)| RIGHTS.iter().any(|right| right.account == account))
                .collect();
            assert_eq!(ours, granted);
        }
    }
}
