//! Labels of a namespace that will not do what was meant. Warns and never refuses.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::queues::QueueTree;
use crate::admission::review::{Answer, Malformed, Operation, Request};
use crate::api::names::{LABEL_MANAGED, LABEL_QUEUE, MANAGED, SYSTEM_NAMESPACES};

/// The parts of a namespace under review that are looked at.
#[derive(Debug, Default, Deserialize)]
pub struct Namespace {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    labels: Option<BTreeMap<String, String>>,
}

impl Namespace {
    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}

/// What to tell whoever labels a namespace. Anything but namespaces passes.
pub fn validate(request: &Request<Namespace>, tree: &QueueTree) -> Result<Answer, Malformed> {
    let looked_at = matches!(request.operation, Operation::Create | Operation::Update);
    if !request.is_for("", "v1", "namespaces") || !looked_at {
        return Ok(Answer::allow());
    }
    let namespace = request.object.as_ref().ok_or(Malformed::NoObject)?;
    let warnings: Vec<String> = opt_in(namespace, &request.name)
        .into_iter()
        .chain(default_queue(namespace, tree))
        .collect();
    Ok(if warnings.is_empty() { Answer::allow() } else { Answer::Warn(warnings) })
}

fn opt_in(namespace: &Namespace, name: &str) -> Option<String> {
    match namespace.label(LABEL_MANAGED)? {
        MANAGED if SYSTEM_NAMESPACES.contains(&name) => {
            Some(format!("namespace {name:?} is the system's: Tidegate never looks at it"))
        }
        MANAGED => None,
        other => Some(format!(
            "label {LABEL_MANAGED}={other:?} does not opt the namespace in: only {MANAGED:?} does"
        )),
    }
}

fn default_queue(namespace: &Namespace, tree: &QueueTree) -> Option<String> {
    let queue = namespace.label(LABEL_QUEUE).filter(|queue| !queue.is_empty())?;
    if namespace.label(LABEL_MANAGED) != Some(MANAGED) {
        return Some(format!(
            "label {LABEL_QUEUE} does nothing until {LABEL_MANAGED}={MANAGED} opts the namespace in"
        ));
    }
    (!tree.has(queue)).then(|| {
        format!(
            "queue {queue:?} (label {LABEL_QUEUE}) does not exist: pods that name no other queue \
             will wait until somebody creates it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::review::Review;
    use crate::api::v1alpha1::{Queue, QueueSpec};
    use rstest::rstest;
    use serde_json::{Value, json};

    fn judge(operation: &str, name: &str, labels: &Value) -> Answer {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "r-1", "operation": operation, "name": name,
            "object": {"metadata": {"name": name, "labels": labels}},
            "resource": {"group": "", "version": "v1", "resource": "namespaces"},
        }});
        let request = Review::<Namespace>::read(review.to_string().as_bytes()).unwrap();
        let tree: QueueTree = [&Queue::new("a", QueueSpec::default())].into_iter().collect();
        validate(&request, &tree).unwrap()
    }

    #[rstest]
    #[case::no_labels(Value::Null)]
    #[case::other_labels(json!({"team": "a"}))]
    #[case::opted_in(json!({"tidegate.dev/managed": "true"}))]
    #[case::with_a_queue(json!({"tidegate.dev/managed": "true", "tidegate.dev/queue": "a"}))]
    #[case::queue_taken_away(json!({"tidegate.dev/managed": "true", "tidegate.dev/queue": ""}))]
    fn nobody_is_warned_of_labels_that_work(#[case] labels: Value) {
        assert_eq!(judge("UPDATE", "ml", &labels), Answer::allow());
    }

    #[rstest]
    #[case::value("ml", json!({"tidegate.dev/managed": "yes"}), "=\"yes\" does not opt the namespace in: only \"true\"")]
    #[case::empty("ml", json!({"tidegate.dev/managed": ""}), "only \"true\"")]
    #[case::system("kube-system", json!({"tidegate.dev/managed": "true"}), "is the system's")]
    #[case::queue("ml", json!({"tidegate.dev/managed": "true", "tidegate.dev/queue": "b"}), "queue \"b\"")]
    #[case::queue_alone("ml", json!({"tidegate.dev/queue": "a"}), "does nothing until")]
    fn labels_that_do_not_do_what_was_meant_are_told(
        #[case] name: &str,
        #[case] labels: Value,
        #[case] said: &str,
    ) {
        let Answer::Warn(warnings) = judge("CREATE", name, &labels) else { panic!("no warning") };
        assert!(warnings.len() == 1 && warnings[0].contains(said), "{warnings:?}");
    }

    #[test]
    fn two_mistakes_are_two_warnings_and_none_is_cut_by_the_apiserver() {
        let long = "q".repeat(63);
        let labels = json!({"tidegate.dev/managed": long, "tidegate.dev/queue": long});
        let Answer::Warn(warnings) = judge("CREATE", "ml", &labels) else { panic!("no warning") };
        assert_eq!(warnings.len(), 2);
        let labels = json!({"tidegate.dev/managed": "true", "tidegate.dev/queue": long});
        let Answer::Warn(more) = judge("CREATE", "ml", &labels) else { panic!("no warning") };
        assert!(warnings.iter().chain(&more).all(|text| text.len() <= 256));
    }

    #[test]
    fn a_namespace_that_goes_is_not_looked_at() {
        let answer = judge("DELETE", "ml", &json!({"tidegate.dev/managed": "yes"}));
        assert_eq!(answer, Answer::allow());
    }
}
