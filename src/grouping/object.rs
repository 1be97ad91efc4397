//! Objects and their owners, reduced to what grouping reads.

use std::fmt;
use std::sync::{Arc, LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Map, Value};

use super::marks::Marks;

/// An object as an owner reference names it.
///
/// As an owner to look up, `namespace` is that of the object which names it: a
/// reference never leaves its namespace, and whether the owner has one at all
/// only its kind tells. As an object that was read, it is where the object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// `apiVersion`.
    pub api_version: Arc<str>,
    /// `kind`.
    pub kind: Arc<str>,
    /// Namespace; empty when cluster-scoped.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
}

impl ObjectKey {
    /// The key of a pod; its kind is in memory once for all.
    #[must_use]
    pub fn of_pod(namespace: Arc<str>, name: Arc<str>, uid: Arc<str>) -> Self {
        static API_VERSION: LazyLock<Arc<str>> = LazyLock::new(|| "v1".into());
        static KIND: LazyLock<Arc<str>> = LazyLock::new(|| "Pod".into());
        let (api_version, kind) = (Arc::clone(&API_VERSION), Arc::clone(&KIND));
        Self { api_version, kind, namespace, name, uid }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// One owner reference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// `apiVersion` of the owner.
    pub api_version: Arc<str>,
    /// `kind` of the owner.
    pub kind: Arc<str>,
    /// Name of the owner.
    pub name: Arc<str>,
    /// Uid of the owner.
    pub uid: Arc<str>,
}

impl Reference {
    /// The owner this names, seen from an object in `namespace`.
    pub(super) fn key(&self, namespace: &Arc<str>) -> ObjectKey {
        ObjectKey {
            api_version: Arc::clone(&self.api_version),
            kind: Arc::clone(&self.kind),
            namespace: Arc::clone(namespace),
            name: Arc::clone(&self.name),
            uid: Arc::clone(&self.uid),
        }
    }
}

impl From<&OwnerReference> for Reference {
    fn from(reference: &OwnerReference) -> Self {
        Self {
            api_version: reference.api_version.as_str().into(),
            kind: reference.kind.as_str().into(),
            name: reference.name.as_str().into(),
            uid: reference.uid.as_str().into(),
        }
    }
}

/// Who an object's owner references lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Above {
    /// There are none: somebody made it.
    #[default]
    Nobody,
    /// The one that is marked as controller.
    Controller(Reference),
    /// The only one, which is not marked.
    Only(Reference),
    /// So many, of which none is marked.
    Several(usize),
}

impl From<&[OwnerReference]> for Above {
    fn from(references: &[OwnerReference]) -> Self {
        let controller = references.iter().find(|reference| reference.controller == Some(true));
        match (controller, references) {
            (Some(controller), _) => Self::Controller(controller.into()),
            (None, []) => Self::Nobody,
            (None, [only]) => Self::Only(only.into()),
            (None, several) => Self::Several(several.len()),
        }
    }
}

/// What grouping reads of any object's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metadata {
    /// Its labels and annotations that mean something here.
    pub marks: Marks,
    /// Its owner.
    pub above: Above,
}

impl From<&ObjectMeta> for Metadata {
    fn from(meta: &ObjectMeta) -> Self {
        let references = meta.owner_references.as_deref().unwrap_or_default();
        Self { marks: Marks::from(meta), above: Above::from(references) }
    }
}

/// An owner that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its metadata.
    pub metadata: Metadata,
    /// Its kind has namespaces.
    pub namespaced: bool,
    /// It makes runs and is not one: see [`starts_runs`].
    pub starts_runs: bool,
}

/// What became of looking an owner up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Here it is.
    Found(Owner),
    /// No object of that name.
    Missing,
    /// The object of that name is another one.
    WrongUid,
    /// We may not read it; the rule that is missing, as it is written in a role.
    Forbidden(Arc<str>),
    /// The cluster does not serve that kind.
    UnknownKind,
    /// Not known yet.
    Pending,
}

/// Where owners come from.
pub trait Owners {
    /// What is known of the owner that a reference names.
    fn look_up(&self, owner: &ObjectKey) -> Lookup;
}

/// Names of fields that hold a time table.
const TIME_TABLES: [&str; 6] =
    ["schedule", "schedules", "cron", "cronSchedule", "cronSpec", "cronExpression"];

/// Whether an object with this `spec` starts runs by a time table, so that two
/// pods below it may be of two runs: `CronJob`, `CronWorkflow`,
/// `ScheduledSparkApplication` and `RayCronJob` all say so by such a field.
#[must_use]
pub fn starts_runs(spec: &Map<String, Value>) -> bool {
    TIME_TABLES.iter().filter_map(|field| spec.get(*field)).any(is_time_table)
}

fn is_time_table(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(lines) => !lines.is_empty() && lines.iter().all(Value::is_string),
        _ => false,
    }
}
