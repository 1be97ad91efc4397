//! What is known of pods and queues, from their watches alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tidegate::{
    api::{
        names::{ANNOTATION_RELEASED, LABEL_MANAGED},
        released::Released,
        v1alpha1::{Queue, Stop},
    },
    quantity,
};
use tokio::task::JoinHandle;

use crate::{
    support::{lab::is_gated, wait},
    tree,
};

/// How much later than the controller we may hear of a queue's change, in seconds.
const LATE: i64 = 5;
/// Before a watch that broke begins again: what comes and goes meanwhile is not seen.
const AGAIN: Duration = Duration::from_millis(200);

/// A pod whose object exists.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct Known {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The object that made it, as `namespace/name`.
    pub root: String,
    /// Our gate is there.
    pub gated: bool,
    /// It succeeded or failed.
    pub ended: bool,
    /// Nobody made it, but a person.
    pub bare: bool,
    /// It ends by itself when it runs.
    pub brief: bool,
    /// CPU of its containers, in thousandths.
    pub cpu: i128,
    deleting: bool,
    node: Option<String>,
    released: Option<Released>,
}

/// What a queue is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Thousandths of a CPU.
    pub cpu: i128,
    /// Pods.
    pub pods: i128,
}

/// A queue was charged so much just after a decision, as far as it is due to earlier ones.
#[derive(Debug)]
struct Charged {
    queue: String,
    decided: Timestamp,
    charge: Charge,
    pod: String,
}

/// A queue at some time.
#[derive(Clone, Debug)]
pub struct Version {
    seen: Timestamp,
    generation: i64,
    observed: i64,
    limit: (Option<i128>, Option<i128>),
    /// Whether it is stopped.
    pub held: bool,
    /// CPU in use as its status says, in thousandths.
    pub usage: i128,
}

/// Numbers for people.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Pods ever seen.
    pub made: usize,
    /// Gates seen to open.
    pub released: usize,
    /// Ended by themselves.
    pub ended: usize,
    /// Deleted before their end, at their gate or behind it.
    pub deleted: usize,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<String, Known>,
    /// Gates that opened, by uid, and when that was seen.
    opened: BTreeMap<String, Timestamp>,
    /// How many pods of a root were ever let go.
    of_root: BTreeMap<String, usize>,
    queues: BTreeMap<String, Vec<Version>>,
    charged: Vec<Charged>,
    counts: Counts,
    wrong: Vec<String>,
    /// Nodes whose object is gone; their names are not used again.
    gone: BTreeSet<String>,
    /// Nodes that were not ready once: what is deleted there may be charged or not.
    silent: BTreeSet<String>,
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Book {
    state: Arc<Mutex<State>>,
    watching: [JoinHandle<()>; 2],
}

impl Drop for Book {
    fn drop(&mut self) {
        self.watching.iter().for_each(JoinHandle::abort);
    }
}

impl Book {
    /// Starts before the first pod.
    pub async fn start(client: &Client) -> Result<Self> {
        let state = Arc::<Mutex<State>>::default();
        let (pods, queues) = (Arc::clone(&state), Arc::clone(&state));
        let watching = [
            tokio::spawn(follow(Api::<Pod>::all(client.clone()), move |step| {
                lock(&pods).pods_changed(step);
            })),
            tokio::spawn(follow(Api::<Queue>::all(client.clone()), move |step| {
                lock(&queues).queues_changed(step);
            })),
        ];
        let book = Self { state, watching };
        wait::until("queues are watched", wait::SOON, async || {
            Ok(tree::QUEUES.iter().all(|queue| book.state().queues.contains_key(*queue)))
        })
        .await?;
        Ok(book)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Pods whose objects exist, by uid.
    pub fn pods(&self) -> BTreeMap<String, Known> {
        self.state().pods.clone()
    }

    /// Pods that hold room, by uid: let go, not ended, and their node is still there.
    pub fn holding(&self) -> BTreeMap<String, Known> {
        let state = self.state();
        let holding = state.pods.iter().filter(|(_, pod)| state.holds(pod));
        holding.map(|(uid, pod)| (uid.clone(), pod.clone())).collect()
    }

    /// Pods that have not ended.
    pub fn live(&self) -> usize {
        self.state().pods.values().filter(|pod| !pod.ended).count()
    }

    /// So far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// When each gate was seen to be open, by uid.
    pub fn opened(&self) -> BTreeMap<String, Timestamp> {
        self.state().opened.clone()
    }

    /// How many pods of a root were ever let go.
    pub fn opened_of(&self, root: &str) -> usize {
        self.state().of_root.get(root).copied().unwrap_or_default()
    }

    /// A queue as last seen.
    pub fn queue(&self, name: &str) -> Option<Version> {
        self.state().queues.get(name)?.last().cloned()
    }

    /// What a queue is charged now.
    pub fn charge(&self, queue: &str) -> Charge {
        self.state().charge(queue, Timestamp::MAX)
    }

    /// Whether so much more is within the limits of a queue and those above it.
    pub fn fits(&self, queue: &str, more: Charge) -> bool {
        let state = self.state();
        tree::path(queue).all(|queue| {
            let Some(version) = state.queues.get(queue).and_then(|all| all.last()) else {
                return false;
            };
            let now = state.charge(queue, Timestamp::MAX);
            let within = |most: Option<i128>, sum| most.is_none_or(|most| sum <= most);
            within(version.limit.0, now.cpu + more.cpu)
                && within(version.limit.1, now.pods + more.pods)
        })
    }

    /// A node will be gone at once.
    pub fn node_goes(&self, name: &str) {
        self.state().gone.insert(name.to_owned());
    }

    /// A node will not be ready for a while.
    pub fn node_sleeps(&self, name: &str) {
        self.state().silent.insert(name.to_owned());
    }

    /// Decisions that are too new to be judged.
    pub fn unjudged(&self) -> usize {
        self.state().charged.len()
    }

    /// What went wrong since the last call. To be asked when the watches are not behind.
    pub fn wrong(&self) -> Vec<String> {
        let mut state = self.state();
        let known = Timestamp::now().as_second() - 2 * LATE;
        let (old, new) = std::mem::take(&mut state.charged)
            .into_iter()
            .partition(|charged| charged.decided.as_second() < known);
        state.charged = new;
        let old: Vec<Charged> = old;
        let above = old.iter().filter_map(|charged| state.above(charged)).collect::<Vec<_>>();
        state.wrong.extend(above);
        std::mem::take(&mut state.wrong)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What changed at once; `None` when it is gone.
type Step<K> = BTreeMap<String, Option<K>>;

/// Hands on what changes, in the order in which the apiserver stored it.
async fn follow<K>(api: Api<K>, mut take: impl FnMut(Step<K>))
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut events = watcher(api, watcher::Config::default()).boxed();
    let (mut known, mut list) = (BTreeSet::new(), Step::new());
    let uid = |object: &K| object.uid().unwrap_or_default();
    while let Some(event) = events.next().await {
        let step = match event {
            Err(_) => {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            Ok(Event::Init) => {
                list.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                list.insert(uid(&object), Some(object));
                continue;
            }
            Ok(Event::InitDone) => {
                let gone = known.iter().filter(|uid| !list.contains_key(*uid));
                let mut step: Step<K> = gone.map(|uid: &String| (uid.clone(), None)).collect();
                step.append(&mut list);
                step
            }
            Ok(Event::Apply(object)) => Step::from([(uid(&object), Some(object))]),
            Ok(Event::Delete(object)) => Step::from([(uid(&object), None)]),
        };
        for (uid, object) in &step {
            if object.is_some() {
                known.insert(uid.clone())
            } else {
                known.remove(uid)
            };
        }
        take(step);
    }
}

impl State {
    fn pods_changed(&mut self, step: Step<Pod>) {
        let mut opened = Vec::new();
        for (uid, pod) in step {
            match pod {
                None => self.pod_goes(&uid),
                Some(pod) if pod.labels().contains_key(LABEL_MANAGED) || is_ours(&pod) => {
                    if self.pod_is(&uid, known(&pod)) {
                        opened.push(uid);
                    }
                }
                Some(_) => {}
            }
        }
        // After all of them: what ended in the same step does not count beside what began.
        for uid in opened {
            self.pod_opened(&uid);
        }
    }

    /// Whether its gate is seen to be open for the first time.
    fn pod_is(&mut self, uid: &str, now: Known) -> bool {
        let before = self.pods.get(uid);
        if before.is_none() {
            self.counts.made += 1;
        }
        if now.ended && before.is_none_or(|before| !before.ended) {
            self.counts.ended += 1;
        }
        let was_open = self.opened.contains_key(uid);
        let record = now.released.as_ref().filter(|record| record.pod == uid);
        if !now.gated && record.is_none() && !now.deleting {
            self.wrong.push(format!("{}/{} ({uid}) is let in without us", now.namespace, now.name));
        }
        if now.gated && was_open {
            self.wrong.push(format!("{}/{} ({uid}) is gated again", now.namespace, now.name));
        }
        if was_open && before.is_some_and(|before| before.released != now.released) {
            self.wrong.push(format!("{}/{} ({uid}) was let go twice", now.namespace, now.name));
        }
        let opens = !now.gated && !was_open;
        self.pods.insert(uid.to_owned(), now);
        opens
    }

    fn pod_opened(&mut self, uid: &str) {
        self.opened.insert(uid.to_owned(), Timestamp::now());
        self.counts.released += 1;
        let Some(pod) = self.pods.get(uid) else { return };
        *self.of_root.entry(pod.root.clone()).or_default() += 1;
        let Some(record) = pod.released.clone() else { return };
        let Ok(decided) = record.time.parse::<Timestamp>() else {
            self.wrong.push(format!("{uid} was let go at {}", record.time));
            return;
        };
        for queue in tree::path(&record.queue) {
            let charge = self.charge(queue, decided);
            let (queue, pod) = (queue.to_owned(), format!("{} ({uid})", pod.name));
            self.charged.push(Charged { queue, decided, charge, pod });
        }
    }

    fn pod_goes(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            self.counts.deleted += usize::from(!pod.ended);
        }
    }

    fn holds(&self, pod: &Known) -> bool {
        let off = match &pod.node {
            // Deleted before it has a node, it never gets one.
            None => pod.deleting,
            Some(node) => self.gone.contains(node) || pod.deleting && self.silent.contains(node),
        };
        !pod.gated && !pod.ended && !off
    }

    /// What a queue is charged by decisions until then.
    fn charge(&self, queue: &str, until: Timestamp) -> Charge {
        let mut sum = Charge::default();
        for pod in self.pods.values().filter(|pod| self.holds(pod)) {
            let Some(record) = &pod.released else { continue };
            let decided = record.time.parse().unwrap_or(Timestamp::MIN);
            if decided <= until && tree::path(&record.queue).any(|above| above == queue) {
                sum.cpu += pod.cpu;
                sum.pods += 1;
            }
        }
        sum
    }

    fn queues_changed(&mut self, step: Step<Queue>) {
        for queue in step.into_values().flatten() {
            let version = version(&queue);
            self.queues.entry(queue.name_any()).or_default().push(version);
        }
    }

    /// The sentence when a queue was charged more than its limit. The controller may not have
    /// known of changes that its status did not speak of yet.
    fn above(&self, charged: &Charged) -> Option<String> {
        let versions = self.queues.get(&charged.queue)?;
        let before = versions.iter().rev().find(|version| version.seen <= charged.decided);
        let observed = before.map_or(0, |version| version.observed);
        let late =
            |version: &&Version| version.seen.as_second() <= charged.decided.as_second() + LATE;
        let known = versions.iter().filter(|version| version.generation >= observed).filter(late);
        let most = known
            .clone()
            .map(|version| version.limit.0)
            .max_by_key(|most| most.unwrap_or(i128::MAX))?;
        let pods =
            known.map(|version| version.limit.1).max_by_key(|most| most.unwrap_or(i128::MAX))?;
        let within = charged.charge.cpu <= most.unwrap_or(i128::MAX)
            && charged.charge.pods <= pods.unwrap_or(i128::MAX);
        (!within).then(|| {
            format!(
                "queue {} holds {:?} with {}, decided {}, and may hold {most:?} and {pods:?} pods",
                charged.queue, charged.charge, charged.pod, charged.decided
            )
        })
    }
}

fn version(queue: &Queue) -> Version {
    let status = queue.status.clone().unwrap_or_default();
    let limit = |name: &str| queue.spec.limit.get(name).map(|amount| units(name, &amount.0));
    Version {
        seen: Timestamp::now(),
        generation: queue.metadata.generation.unwrap_or_default(),
        observed: status.observed_generation.unwrap_or_default(),
        limit: (limit("cpu"), limit("pods")),
        held: queue.spec.stop != Stop::None,
        usage: status.usage.get("cpu").map_or(0, |amount| units("cpu", amount)),
    }
}

fn is_ours(pod: &Pod) -> bool {
    pod.namespace().is_some_and(|name| name.starts_with(tree::TOP))
}

fn known(pod: &Pod) -> Known {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let namespace = pod.namespace().unwrap_or_default();
    let root = pod.labels().get("soak").cloned().unwrap_or_else(|| pod.name_any());
    let record = pod.annotations().get(ANNOTATION_RELEASED);
    Known {
        name: pod.name_any(),
        root: format!("{namespace}/{root}"),
        gated: is_gated(pod),
        ended: matches!(phase, Some("Succeeded" | "Failed")),
        bare: pod.owner_references().is_empty(),
        brief: pod.annotations().contains_key("fake.tidegate.dev/duration"),
        cpu: cpu(pod),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        released: record.and_then(|text| serde_json::from_str(text).ok()),
        namespace,
    }
}

fn cpu(pod: &Pod) -> i128 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests =
        containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    requests.filter_map(|requests| Some(units("cpu", &requests.get("cpu")?.0))).sum()
}

fn units(resource: &str, text: &str) -> i128 {
    quantity::parse(text).map_or(0, |amount| amount.engine_units(resource))
}
