//! What was written, by whom, from the apiserver's audit log.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead as _, BufReader, Seek as _, SeekFrom},
};

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

/// A request as RBAC sees it. Field by field as in a `PolicyRule`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Any verb of Kubernetes.
    pub verb: String,
    /// API group; empty for the core.
    pub group: String,
    /// Resource and subresource.
    pub resource: String,
    /// Name, where one was given.
    pub name: String,
    /// Whether neither the authorizer nor admission forbade it.
    pub allowed: bool,
}

/// Every write so far, refused ones too.
pub fn writes(cluster: &Cluster) -> Result<Vec<Write>> {
    Reader::default().writes(cluster)
}

/// The different requests so far of one account. A watch is among them once it has ended.
pub fn requests(cluster: &Cluster, user: &str) -> Result<BTreeSet<Request>> {
    Reader::default().requests(cluster, user)
}

/// Reads on where it stopped the last time.
#[derive(Debug, Default)]
pub struct Reader {
    at: u64,
}

impl Reader {
    /// Writes since then, refused ones too.
    pub fn writes(&mut self, cluster: &Cluster) -> Result<Vec<Write>> {
        let mut writes = Vec::new();
        self.each(cluster, |event| writes.extend(write(&event)))?;
        Ok(writes)
    }

    /// The different requests since then of one account.
    pub fn requests(&mut self, cluster: &Cluster, user: &str) -> Result<BTreeSet<Request>> {
        let mut requests = BTreeSet::new();
        self.each(cluster, |event| {
            if event["user"]["username"] == user && event["objectRef"]["resource"].is_string() {
                requests.insert(request(&event));
            }
        })?;
        Ok(requests)
    }

    fn each(&mut self, cluster: &Cluster, mut take: impl FnMut(Value)) -> Result<()> {
        let mut log = BufReader::new(File::open(cluster.audit_log())?);
        log.seek(SeekFrom::Start(self.at))?;
        let mut line = Vec::new();
        // Half a line is read when it is whole.
        while log.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            self.at += u64::try_from(line.len())?;
            serde_json::from_slice(&line).into_iter().for_each(&mut take);
            line.clear();
        }
        Ok(())
    }
}

fn request(event: &Value) -> Request {
    Request {
        verb: event["verb"].as_str().unwrap_or_default().to_owned(),
        group: event["objectRef"]["apiGroup"].as_str().unwrap_or_default().to_owned(),
        resource: resource(event),
        name: event["objectRef"]["name"].as_str().unwrap_or_default().to_owned(),
        allowed: event["responseStatus"]["code"] != 403,
    }
}

fn resource(event: &Value) -> String {
    let text = |key: &str| event["objectRef"][key].as_str();
    let resource = text("resource").unwrap_or_default();
    match text("subresource") {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_owned(),
    }
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
    Some(Write {
        verb: verb.to_owned(),
        resource: resource(event),
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
