//! Which groups a request means: field selectors and names of objects.

use crate::view::GroupRow;

/// Singular, plural and short names of built-in kinds, beyond the regular plural.
const ALIASES: &[(&str, &[&str])] = &[
    ("pod", &["po"]),
    ("deployment", &["deploy"]),
    ("replicaset", &["rs"]),
    ("statefulset", &["sts"]),
    ("daemonset", &["ds"]),
    ("cronjob", &["cj"]),
    ("replicationcontroller", &["rc"]),
];

/// Conditions on groups that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// `metadata.name=`: the group's own name.
    pub name: Option<String>,
    /// `metadata.namespace=`.
    pub namespace: Option<String>,
    /// `object=Kind/name`: the root, an object of the chain, or a pod.
    pub object: Option<ObjectName>,
    /// `queue=`: the queue that pays.
    pub queue: Option<String>,
}

impl Selection {
    /// Reads `fieldSelector` and `labelSelector`; the error is for the caller.
    pub fn parse(fields: Option<&str>, labels: Option<&str>) -> Result<Self, String> {
        if labels.is_some_and(|labels| !labels.trim().is_empty()) {
            return Err("groups have no labels to select by: use a field selector such as \
                        queue=NAME or object=KIND/NAME"
                .to_owned());
        }
        let mut selection = Self::default();
        for term in fields.unwrap_or_default().split(',').map(str::trim) {
            if !term.is_empty() {
                selection.add(term)?;
            }
        }
        Ok(selection)
    }

    fn add(&mut self, term: &str) -> Result<(), String> {
        let (field, value) = equation(term)?;
        match field {
            "metadata.name" => self.name = Some(value.to_owned()),
            "metadata.namespace" => self.namespace = Some(value.to_owned()),
            "queue" => self.queue = Some(value.to_owned()),
            "object" => self.object = Some(ObjectName::parse(value)?),
            other => {
                return Err(format!(
                    "field {other:?} cannot be selected by: metadata.name, metadata.namespace, \
                     object and queue can"
                ));
            }
        }
        Ok(())
    }

    /// Whether a group in this namespace is meant.
    #[must_use]
    pub fn takes(&self, namespace: &str, row: &GroupRow) -> bool {
        self.name.as_deref().is_none_or(|name| name == &*row.name)
            && self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
            && self.queue.as_deref().is_none_or(|queue| row.queue.as_deref() == Some(queue))
            && self.object.as_ref().is_none_or(|object| object.is_in(row))
    }
}

fn equation(term: &str) -> Result<(&str, &str), String> {
    let wrong = || format!("{term:?} is not FIELD=VALUE, the only form of field selector here");
    let (field, value) = term.split_once('=').ok_or_else(wrong)?;
    if field.ends_with('!') {
        return Err(wrong());
    }
    Ok((field.trim(), value.trim_start_matches('=').trim()))
}

/// An object as a person names it: `Pod/x`, `po/x`, `rayjobs/x`, `jobs.batch/x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Kind, plural or short name, lower case, without API group.
    pub kind: String,
    /// Name, as given.
    pub name: String,
}

impl ObjectName {
    /// Reads `KIND/NAME`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('/')
            .filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'));
        let (kind, name) = parts.ok_or_else(|| format!("{text:?} is not KIND/NAME"))?;
        let kind = kind.split('.').next().unwrap_or(kind);
        Ok(Self { kind: kind.to_lowercase(), name: name.to_owned() })
    }

    /// Whether a pod is meant.
    #[must_use]
    pub fn is_pod(&self) -> bool {
        self.means("Pod")
    }

    /// Whether this is the group's root, an object of its chain, or one of its pods.
    fn is_in(&self, row: &GroupRow) -> bool {
        let root = &row.who.root;
        (*self.name == *root.address.name && self.means(&root.kind))
            || row.who.origin.chains.iter().flatten().any(|link| self.is(link))
            || (self.is_pod() && row.pods.iter().any(|pod| *pod.name == *self.name))
    }

    fn is(&self, link: &str) -> bool {
        link.split_once('/').is_some_and(|(kind, name)| name == self.name && self.means(kind))
    }

    /// Whether `kind`, as the API writes it, is what was asked for.
    fn means(&self, kind: &str) -> bool {
        let kind = kind.to_lowercase();
        self.kind == kind
            || plurals(&kind).contains(&self.kind)
            || ALIASES
                .iter()
                .any(|(name, short)| *name == kind && short.contains(&self.kind.as_str()))
    }
}

/// Plurals that English and Kubernetes generators make of a lower-case kind.
fn plurals(kind: &str) -> [String; 3] {
    let stem = kind.strip_suffix('y').unwrap_or(kind);
    [format!("{kind}s"), format!("{kind}es"), format!("{stem}ies")]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::report::tests::row;

    #[rstest]
    #[case("RayJob/train")]
    #[case("rayjob/train")]
    #[case("rayjobs/train")]
    #[case("rayjobs.ray.io/train")]
    #[case("RayCluster/train-abcde")]
    #[case("pod/train-head")]
    #[case("po/train-head")]
    #[case("pods/train-head")]
    fn a_group_is_found_by_any_object_of_it(#[case] object: &str) {
        let fields = format!("object={object}");
        assert!(Selection::parse(Some(&fields), None).unwrap().takes("ml", &row("train")));
    }

    #[rstest]
    #[case("job/train")]
    #[case("rayjob/train-head")]
    #[case("pod/train")]
    #[case("rayjob/other")]
    #[case("ra/train")]
    fn another_kind_or_name_is_not_it(#[case] object: &str) {
        let fields = format!("object={object}");
        assert!(!Selection::parse(Some(&fields), None).unwrap().takes("ml", &row("train")));
    }

    #[rstest]
    #[case("proxy/x", "Proxy")]
    #[case("proxies/x", "Proxy")]
    #[case("ingresses/x", "Ingress")]
    #[case("cj/x", "CronJob")]
    #[case("sts/x", "StatefulSet")]
    #[case("deploy/x", "Deployment")]
    fn kinds_have_plurals_and_short_names(#[case] asked: &str, #[case] kind: &str) {
        assert!(ObjectName::parse(asked).unwrap().means(kind));
    }

    #[rstest]
    #[case("queue=a", true)]
    #[case("queue==a", true)]
    #[case("queue=b", false)]
    #[case("metadata.name=rayjob-train-1f2e,queue=a", true)]
    #[case("metadata.name=other,queue=a", false)]
    #[case("metadata.namespace=ml", true)]
    #[case("metadata.namespace=web", false)]
    #[case("", true)]
    fn all_fields_must_hold(#[case] fields: &str, #[case] taken: bool) {
        let selection = Selection::parse(Some(fields), Some("")).unwrap();
        assert_eq!(selection.takes("ml", &row("train")), taken);
    }

    #[rstest]
    #[case("status.phase=Running", None)]
    #[case("queue!=a", None)]
    #[case("queue", None)]
    #[case("object=train", None)]
    #[case("object=a/b/c", None)]
    #[case("", Some("app=x"))]
    fn what_cannot_be_selected_by_is_refused(#[case] fields: &str, #[case] labels: Option<&str>) {
        assert!(Selection::parse(Some(fields), labels).is_err());
    }
}
