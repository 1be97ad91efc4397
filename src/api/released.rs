//! What a released pod carries, so that a restarted controller knows what it let go.

use serde::{Deserialize, Serialize};

/// The JSON in [`ANNOTATION_RELEASED`](super::names::ANNOTATION_RELEASED), written with the
/// release and never changed after it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    /// Uid of the pod it was written for. Nobody knows it before the pod is stored, so a
    /// record that was sent with a new pod, forged or from a backup, never names it.
    pub pod: String,
    /// The queue that pays.
    pub queue: String,
    /// The group, as `Kind/name` of its root.
    pub group: String,
    /// Uid of the group's root.
    pub root: String,
    /// How many pods were let go together.
    pub size: u32,
    /// When it was decided (RFC 3339).
    pub time: String,
    /// Number of the decision in the process that took it.
    pub decision: u64,
    /// What its group began with. Versions that did not write it believed the pods' marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
}

/// What a group began with. It keeps that until nothing is left of it, whatever anybody says
/// later.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// The name by which its pods joined, where they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<String>,
    /// How many of it must start together; absent where each pod starts on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<u32>,
    /// It may be evicted.
    pub preemptible: bool,
    /// The key of which one group runs at a time in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub singleton: Option<String>,
    /// The label of nodes that the nodes of its pods agree in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_compact_and_later_versions_may_say_more() {
        let released = Released { queue: "q".to_owned(), size: 2, ..Released::default() };
        let text = serde_json::to_string(&released).unwrap();
        insta::assert_snapshot!(text, @r#"{"pod":"","queue":"q","group":"","root":"","size":2,"time":"","decision":0}"#);
        let longer = text.replace("\"size\"", "\"later\":1,\"size\"");
        assert_eq!(serde_json::from_str::<Released>(&longer).unwrap(), released);
    }
}
