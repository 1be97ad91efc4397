//! What was written, by whom, from the apiserver's audit log.

use std::{collections::BTreeMap, fs};

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use super::cluster::Cluster;

/// Requests that succeeded and were written, as `VERB resource[/subresource]`.
#[derive(Clone, Debug)]
pub struct Write {
    /// `create`, `patch`, `update`, `delete`.
    pub verb: String,
    /// Resource and subresource.
    pub resource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Who.
    pub user: String,
    /// HTTP status.
    pub code: i64,
    /// When it came.
    pub time: Timestamp,
    /// The body, kept for patches of pods.
    pub body: Value,
}

/// Every write so far, refused ones too.
pub fn writes(cluster: &Cluster) -> Result<Vec<Write>> {
    let log = fs::read_to_string(cluster.audit_log())?;
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(lines.filter_map(|event| write(&event)).collect())
}

fn write(event: &Value) -> Option<Write> {
    let verb = event["verb"].as_str()?;
    if event["stage"] != "ResponseComplete"
        || !matches!(verb, "create" | "patch" | "update" | "delete")
    {
        return None;
    }
    let object = &event["objectRef"];
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let resource = match object["subresource"].as_str() {
        Some(subresource) => format!("{}/{subresource}", text("resource")),
        None => text("resource"),
    };
    Some(Write {
        verb: verb.to_owned(),
        resource,
        namespace: text("namespace"),
        name: text("name"),
        user: event["user"]["username"].as_str().unwrap_or_default().to_owned(),
        code: event["responseStatus"]["code"].as_i64().unwrap_or_default(),
        time: event["requestReceivedTimestamp"].as_str()?.parse().ok()?,
        body: event["requestObject"].clone(),
    })
}

/// Our successful PATCHes of pods, counted by pod uid, in namespaces that satisfy the condition.
pub fn releases(
    cluster: &Cluster,
    namespace: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for write in writes(cluster)? {
        let ours = write.user.ends_with(":tidegate-controller");
        if ours && write.resource == "pods" && namespace(&write.namespace) && write.code < 300 {
            let uid = write.body["metadata"]["uid"].as_str().unwrap_or("none").to_owned();
            *counts.entry(uid).or_default() += 1;
        }
    }
    Ok(counts)
}
