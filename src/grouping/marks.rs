//! The labels and annotations on an object that placing it, or telling why, reads.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::names;

/// Longest value that is kept: nothing longer has a meaning, and what is kept
/// for ever must be bounded.
const LONGEST: usize = 253;

/// Marks on one object, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marks {
    /// Label `tidegate.dev/queue`.
    pub queue: Option<Arc<str>>,
    /// Annotation `tidegate.dev/group`.
    pub group: Option<Arc<str>>,
    /// Annotation `tidegate.dev/min-count`.
    pub min_count: Option<Arc<str>>,
    /// Annotation `tidegate.dev/gang`.
    pub gang: Option<Arc<str>>,
    /// What few objects have.
    pub behaviour: Option<Box<Behaviour>>,
    /// Label `velero.io/restore-name`.
    pub restore: Option<Arc<str>>,
}

/// How an object's pods may be treated, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Behaviour {
    /// Label `tidegate.dev/preemptible`.
    pub preemptible: Option<Arc<str>>,
    /// Label `tidegate.dev/singleton`.
    pub singleton: Option<Arc<str>>,
    /// Annotation `tidegate.dev/run`.
    pub run: Option<Arc<str>>,
    /// Annotation `tidegate.dev/topology`.
    pub topology: Option<Arc<str>>,
}

impl From<&ObjectMeta> for Marks {
    fn from(meta: &ObjectMeta) -> Self {
        let annotation = |key| value(meta.annotations.as_ref()?.get(key)?);
        let label = |key| value(meta.labels.as_ref()?.get(key)?);
        let behaviour = Behaviour {
            preemptible: label(names::LABEL_PREEMPTIBLE),
            singleton: label(names::LABEL_SINGLETON),
            run: annotation(names::ANNOTATION_RUN),
            topology: annotation(names::ANNOTATION_TOPOLOGY),
        };
        Self {
            queue: label(names::LABEL_QUEUE),
            group: annotation(names::ANNOTATION_GROUP),
            min_count: annotation(names::ANNOTATION_MIN_COUNT),
            gang: annotation(names::ANNOTATION_GANG),
            behaviour: Some(behaviour).filter(|one| *one != Behaviour::default()).map(Box::new),
            restore: label(names::LABEL_RESTORE),
        }
    }
}

/// A value cut where it can no longer be valid; empty is the same as absent.
fn value(text: &str) -> Option<Arc<str>> {
    let cut = text.char_indices().map(|(at, _)| at).find(|&at| at > LONGEST);
    let text = cut.and_then(|cut| text.get(..cut)).unwrap_or(text);
    (!text.is_empty()).then(|| text.into())
}

/// Whether a kept value had to be cut, or is just as long as one.
pub(super) fn is_too_long(value: &str) -> bool {
    value.len() > LONGEST
}
