//! What becomes of pods, in the order in which the apiserver stored it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tidegate::quantity;
use tokio::task::JoinHandle;

use super::{lab::is_gated, wait};

/// Where a pod stands for its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Waits,
    /// Its gate is open and it has not ended.
    Holds,
    Over,
}

/// One pod after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    standing: Standing,
    /// CPU of its containers, in thousandths.
    cpu: i128,
}

/// Pods by uid; what changed at once is in one step.
type Step = BTreeMap<String, Seen>;

/// Watches pods until it is dropped.
#[derive(Debug)]
pub struct Record {
    steps: Arc<Mutex<Vec<Step>>>,
    watching: JoinHandle<()>,
}

impl Record {
    /// Starts once the first list is in.
    pub async fn start(pods: Api<Pod>) -> Result<Self> {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let watching = tokio::spawn(watch(pods, Arc::clone(&steps)));
        let record = Self { steps, watching };
        wait::until("pods are watched", wait::SOON, async || Ok(!record.steps().is_empty()))
            .await?;
        Ok(record)
    }

    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of pods in the order in which their gates were opened.
    pub fn released(&self) -> Vec<String> {
        let mut known = BTreeSet::new();
        let mut names = Vec::new();
        for (uid, seen) in self.steps().iter().flatten() {
            if seen.standing != Standing::Waits && known.insert(uid.clone()) {
                names.push(seen.name.clone());
            }
        }
        names
    }

    /// Waits until so many gates were opened.
    pub async fn has_released(&self, count: usize) -> Result<()> {
        wait::until(&format!("{count} pods were released"), wait::SOON, async || {
            let released = self.released();
            ensure!(released.len() >= count, "{} were: {released:?}", released.len());
            Ok(true)
        })
        .await
    }

    /// The most CPU, in thousandths, that pods of such names ever held together.
    pub fn peak(&self, wanted: impl Fn(&str) -> bool) -> i128 {
        let mut now = Step::new();
        let mut peak = 0;
        for step in self.steps().iter() {
            now.extend(step.clone());
            let holds = |seen: &&Seen| seen.standing == Standing::Holds && wanted(&seen.name);
            peak = peak.max(now.values().filter(holds).map(|seen| seen.cpu).sum());
        }
        peak
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

async fn watch(pods: Api<Pod>, steps: Arc<Mutex<Vec<Step>>>) {
    let mut events = watcher(pods, watcher::Config::default()).default_backoff().boxed();
    let (mut known, mut list) = (Step::new(), Step::new());
    while let Some(event) = events.next().await {
        let step = match event {
            Err(_) => continue,
            Ok(Event::Init) => {
                list.clear();
                continue;
            }
            Ok(Event::InitApply(pod)) => {
                list.insert(pod.uid().unwrap_or_default(), seen(&pod));
                continue;
            }
            Ok(Event::InitDone) => {
                let gone = known.iter().filter(|(uid, _)| !list.contains_key(*uid));
                let mut step: Step = gone.map(|(uid, seen)| (uid.clone(), over(seen))).collect();
                step.append(&mut list);
                step
            }
            Ok(Event::Apply(pod)) => Step::from([(pod.uid().unwrap_or_default(), seen(&pod))]),
            Ok(Event::Delete(pod)) => {
                Step::from([(pod.uid().unwrap_or_default(), over(&seen(&pod)))])
            }
        };
        known.extend(step.clone());
        steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    }
}

/// A pod that never left its gate is not released by being deleted.
fn over(seen: &Seen) -> Seen {
    let standing = if seen.standing == Standing::Waits { Standing::Waits } else { Standing::Over };
    Seen { standing, ..seen.clone() }
}

fn seen(pod: &Pod) -> Seen {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let standing = match phase {
        _ if is_gated(pod) => Standing::Waits,
        Some("Succeeded" | "Failed") => Standing::Over,
        _ => Standing::Holds,
    };
    Seen { name: pod.name_any(), standing, cpu: cpu(pod) }
}

fn cpu(pod: &Pod) -> i128 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests =
        containers.filter_map(|container| container.resources.as_ref()?.requests.clone());
    let units = |text: &str| quantity::parse(text).map_or(0, |amount| amount.engine_units("cpu"));
    requests.filter_map(|requests| Some(units(&requests.get("cpu")?.0))).sum()
}
