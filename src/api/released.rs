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
    /// How many pods start together.
    pub size: u32,
    /// When it was decided (RFC 3339).
    pub time: String,
    /// Number of the decision in the process that took it.
    pub decision: u64,
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
