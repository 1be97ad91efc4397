//! What an account had written, from the apiserver's audit log.

use anyhow::Result;
use jiff::Timestamp;

use crate::figures::Report;
use crate::support::{audit, cluster::Cluster};

/// Writes that succeeded, as many of each sort.
#[derive(Default)]
pub struct Writes {
    /// Of pods: gates, finalizers, labels.
    pods: u32,
    /// Objects made that stay, other than Events.
    objects: u32,
    /// Events made.
    events: u32,
    /// All of them.
    all: u32,
}

impl Writes {
    /// Those of the account with this name's end, since then.
    pub fn of(cluster: &Cluster, account: &str, since: Timestamp) -> Result<Self> {
        let mut writes = Self::default();
        for write in audit::writes(cluster)? {
            // Leases are the price of being there, reviews are never stored.
            let stored = write.resource != "leases" && !write.resource.ends_with("reviews");
            let counts = write.time >= since && write.code < 300 && stored;
            if counts && write.user.ends_with(account) {
                writes.add(&write.verb, &write.resource);
            }
        }
        Ok(writes)
    }

    fn add(&mut self, verb: &str, resource: &str) {
        self.all += 1;
        match (verb, resource) {
            (_, "pods" | "pods/status") => self.pods += 1,
            ("create", "events") => self.events += 1,
            ("create", _) => self.objects += 1,
            _ => {}
        }
    }

    /// How many for each of so many pods.
    pub fn report(&self, name: &str, pods: usize, report: &mut Report) {
        let each = |count: u32| f64::from(count) / pods as f64;
        report.add_with_goal(format!("pod_writes_{name}"), each(self.pods), "a pod", "1");
        report.add_with_goal(format!("objects_{name}"), each(self.objects), "a pod", "0");
        report.add(format!("events_{name}"), each(self.events), "a pod");
        report.add(format!("all_writes_{name}"), each(self.all), "a pod");
    }
}
