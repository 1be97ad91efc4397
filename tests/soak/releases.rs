//! What the apiserver's audit log says of gates: who opened each, and how often.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::support::{
    audit::{Reader, Write},
    cluster::Cluster,
};

/// How long after a fault a PATCH may be repeated whose answer it lost.
const REPEATS: SignedDuration = SignedDuration::from_secs(75);

/// Our PATCHes so far.
#[derive(Debug, Default)]
pub struct Releases {
    reader: Reader,
    /// The first that was accepted, by the pod's uid.
    done: BTreeMap<String, Value>,
    /// When answers may have been lost.
    lossy: Vec<(Timestamp, Timestamp)>,
    /// Accepted ones that changed nothing.
    pub repeated: usize,
    /// Ours that were refused.
    pub refused: usize,
    /// Creates of pods that were refused.
    pub not_let_in: usize,
    wrong: Vec<String>,
}

impl Releases {
    /// In this time answers may have been lost.
    pub fn may_lose(&mut self, begin: Timestamp, end: Timestamp) {
        self.lossy.push((begin, end + REPEATS));
    }

    /// PATCHes that opened a gate.
    pub fn count(&self) -> usize {
        self.done.len()
    }

    /// Reads on; what is wrong with it.
    pub fn read(&mut self, cluster: &Cluster) -> Result<Vec<String>> {
        for write in self.reader.writes(cluster)? {
            let pod = write.resource == "pods" && write.namespace.starts_with("soak");
            if pod && write.verb == "create" && write.code >= 400 {
                self.not_let_in += 1;
            } else if pod && write.verb == "patch" && write.user.ends_with(":tidegate-controller") {
                self.patch(write);
            }
        }
        Ok(std::mem::take(&mut self.wrong))
    }

    fn patch(&mut self, write: Write) {
        if write.code >= 300 {
            self.refused += 1;
            return;
        }
        let uid = write.body["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let Some(first) = self.done.get(&uid) else {
            self.done.insert(uid, write.body);
            return;
        };
        self.repeated += 1;
        let lost = self.lossy.iter().any(|(begin, end)| (*begin..=*end).contains(&write.time));
        if *first != write.body {
            let (name, body) = (write.name, write.body);
            self.wrong.push(format!("{name} ({uid}) was let go by {first} and again by {body}"));
        } else if !lost {
            let (name, time) = (write.name, write.time);
            self.wrong
                .push(format!("{name} ({uid}) was let go again at {time}, no answer was lost"));
        }
    }

    /// Pods whose gate opened though no PATCH of ours is known, unless answers and the audit
    /// log with them may have been lost then.
    pub fn by_nobody(&self, opened: &BTreeMap<String, Timestamp>) -> Vec<String> {
        let unknown = opened.iter().filter(|(uid, at)| {
            let lost = self.lossy.iter().any(|(begin, end)| (begin..=end).contains(at));
            !self.done.contains_key(*uid) && !lost
        });
        unknown.map(|(uid, at)| format!("{uid}: its gate opened at {at}, by whom?")).collect()
    }
}
