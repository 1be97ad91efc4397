//! Queues as they are stored, maybe by a version that came later.
//!
//! Where people write, fields that are not known are refused or pruned by the kind's
//! schema. Who reads what is stored takes it as far as it goes: one queue that it cannot
//! read must not hide the others.

use kube::api::DynamicObject;
use serde_json::{Map, Value};

use super::{Queue, QueueSpec};

/// A queue as far as this version can read it.
#[derive(Clone, Debug)]
pub struct StoredQueue {
    /// A field of its spec that cannot be read is as if it were not there, as is a status
    /// that cannot be.
    pub queue: Queue,
    /// What cannot be read of its spec and why, one sentence. Nothing may be let go by such a
    /// queue: what is missing may be its limit.
    pub unreadable: Option<String>,
}

/// Reads a queue. Fields that are not known are passed over.
#[must_use]
pub fn read_queue(object: DynamicObject) -> StoredQueue {
    let DynamicObject { metadata, mut data, .. } = object;
    let mut part = |name: &str| data.get_mut(name).map(Value::take).unwrap_or_default();
    let (spec, unreadable) = read_spec(part("spec"));
    let status = serde_json::from_value(part("status")).ok();
    StoredQueue { queue: Queue { metadata, spec, status }, unreadable }
}

fn read_spec(written: Value) -> (QueueSpec, Option<String>) {
    let mut fields = match written {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        _ => return (QueueSpec::default(), Some("spec is no object".to_owned())),
    };
    let mut unreadable = None;
    fields.retain(|name, value| {
        let alone = Map::from_iter([(name.clone(), value.clone())]);
        let read = serde_json::from_value::<QueueSpec>(Value::Object(alone));
        if let Err(error) = &read {
            unreadable.get_or_insert_with(|| format!("spec.{name}: {error}"));
        }
        read.is_ok()
    });
    match serde_json::from_value(Value::Object(fields)) {
        Ok(spec) => (spec, unreadable),
        Err(error) => (QueueSpec::default(), Some(format!("spec: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1alpha1::Stop;
    use rstest::rstest;
    use serde_json::json;

    fn read(parts: &Value) -> StoredQueue {
        let mut object = json!({"metadata": {"name": "q", "generation": 3}});
        for (name, part) in parts.as_object().unwrap() {
            object[name] = part.clone();
        }
        read_queue(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn fields_of_a_later_version_are_passed_over_wherever_they_are() {
        let read = read(&json!({
            "spec": {"parent": "up", "stop": "Hold", "colour": "blue",
                "maxPending": {"pods": 7, "groups": 3},
                "namespaces": {"matchLabels": {"a": "b"}, "matchNames": ["c"]}},
            "status": {"pending": {"pods": 2, "gangs": 1}, "mood": "good"},
            "extra": [1],
        }));
        assert_eq!(read.unreadable, None);
        let Queue { spec, status, metadata } = read.queue;
        assert_eq!((spec.parent.as_deref(), spec.stop, spec.weight), (Some("up"), Stop::Hold, 1));
        assert_eq!(spec.max_pending.map(|most| most.pods), Some(7));
        assert!(spec.namespaces.is_some_and(|selector| selector.match_labels.len() == 1));
        assert_eq!(status.map(|status| status.pending.pods), Some(2));
        assert_eq!((metadata.name.as_deref(), metadata.generation), (Some("q"), Some(3)));
    }

    #[rstest]
    #[case::word(json!({"stop": "Explode", "parent": "up"}), "spec.stop: unknown variant `Explode`")]
    #[case::shape(json!({"limit": {"cpu": ["1"]}, "parent": "up"}), "spec.limit: ")]
    #[case::number(json!({"weight": "heavy", "parent": "up"}), "spec.weight: ")]
    #[case::null(json!({"weight": null, "parent": "up"}), "spec.weight: ")]
    fn what_cannot_be_read_is_named_and_the_rest_is_kept(#[case] spec: Value, #[case] said: &str) {
        let read = read(&json!({"spec": spec}));
        assert!(read.unreadable.is_some_and(|text| text.starts_with(said)));
        assert_eq!(read.queue.spec.parent.as_deref(), Some("up"));
    }

    #[rstest]
    #[case::nothing(json!({}), true)]
    #[case::null(json!({"spec": null, "status": null}), true)]
    #[case::list(json!({"spec": []}), false)]
    #[case::text(json!({"spec": "s", "status": "s"}), false)]
    #[case::status_only(json!({"spec": {}, "status": {"pending": "many"}}), true)]
    fn any_object_is_a_queue(#[case] parts: Value, #[case] readable: bool) {
        let read = read(&parts);
        assert_eq!(read.unreadable.is_none(), readable);
        assert_eq!((read.queue.spec.parent, read.queue.status), (None, None));
    }
}
