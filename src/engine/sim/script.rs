//! What happens in a random world.

use std::collections::BTreeSet;

use super::super::event::{Event, GroupConfig, Outcome, Pause, PodConfig, Trouble, Used};
use super::super::model::{Assignment, GroupId, Millis, NodeId, PodId, PodState, Uid};
use super::super::reference::{Pod, Reference, Release};
use super::queues::Shape;
use super::random::Random;
use super::{Log, Step, is_promised};

/// Nodes there may be.
const NODES: u32 = 5;
/// Uids of pods.
const UIDS: u32 = 400;

type Happening = fn(&mut Script);

/// How often what happens.
const HAPPENINGS: &[(u32, Happening)] = &[
    (16, Script::pods_arrive),
    (14, Script::decide),
    (10, Script::pod_goes_on),
    (6, Script::pods_end),
    (7, Script::release_ends),
    (6, Script::time_passes),
    (8, Script::eviction_goes_on),
    (4, Script::pod_goes),
    (2, Script::pod_is_told_anything),
    (2, Script::pod_is_told_twice),
    (2, Script::outcome_comes_late),
    (2, Script::node_changes),
    (1, Script::node_goes),
    (2, Script::node_fails),
    (2, Script::foreign_load_changes),
    (2, Script::queue_changes),
    (1, Script::queue_goes),
    (2, Script::group_changes),
    (1, Script::releases_pause),
    (2, Script::releases_resume),
    (1, Script::cluster_is_synced),
    (2, Script::is_rehearsed),
    (2, Script::used_before),
];

/// So many of them happen where nothing is odd.
const CALM: usize = 8;

/// The log of a seed.
pub(super) fn write(seed: u64) -> Log {
    let mut random = Random(seed);
    let shape = Shape::random(&mut random);
    let length = random.within(10, 120);
    let mut script = Script {
        random,
        shape,
        told: Reference::default(),
        nodes: BTreeSet::new(),
        now: 1_000,
        log: Log::new(),
    };
    script.opens();
    let happenings = if script.shape.odd { HAPPENINGS } else { &HAPPENINGS[..CALM] };
    for _ in 0..length {
        if let Some(happens) = script.random.weighted(happenings) {
            happens(&mut script);
        }
    }
    script.step(Step::Tick);
    script.step(Step::Decide(usize::MAX));
    script.log
}

struct Script {
    random: Random,
    shape: Shape,
    told: Reference,
    nodes: BTreeSet<NodeId>,
    now: Millis,
    log: Log,
}

impl Script {
    fn step(&mut self, step: Step) {
        match &step {
            Step::Apply(event) => {
                if !is_promised(&mut self.nodes, event) {
                    return;
                }
                self.told.apply(self.now, event.clone());
            }
            Step::Decide(budget) => drop(self.told.decide(*budget)),
            Step::Tick | Step::Rehearse(_) => {}
        }
        self.log.push((self.now, step));
    }

    fn tell(&mut self, event: Event) {
        self.step(Step::Apply(event));
    }

    fn opens(&mut self) {
        for id in self.shape.queues().to_vec() {
            let config = self.shape.queue_config(&mut self.random, id);
            self.tell(Event::QueueChanged(id, config));
        }
        for _ in 0..self.random.within(1, NODES) {
            self.node_changes();
        }
        for cluster in self.shape.clusters() {
            if !self.random.one_in(6) {
                self.tell(Event::Synced(cluster));
            }
        }
        if self.shape.takes_back {
            // Who has a better right finds little left.
            for _ in 0..2 {
                let queue = self.shape.queue(&mut self.random);
                self.runs(Assignment::Queue(queue), 24);
            }
        }
        for _ in 0..self.random.within(0, 2 * self.shape.size.groups) {
            self.pods_arrive();
        }
        if self.shape.odd && self.random.one_in(3) {
            self.runs(Assignment::Unnamed, 4);
        }
    }

    fn node(&mut self) -> NodeId {
        NodeId(self.random.within(1, NODES))
    }

    fn group(&mut self) -> GroupId {
        GroupId(u64::from(self.random.within(1, self.shape.size.groups)))
    }

    fn pod(&mut self, of: impl Fn(&Pod) -> bool) -> Option<PodId> {
        let pods = self.told.pods.iter().filter(|(_, pod)| of(pod));
        let pods: Vec<PodId> = pods.map(|(&id, _)| id).collect();
        self.random.pick(&pods)
    }

    fn pods_arrive(&mut self) {
        if self.told.pods.len() > self.shape.size.pods {
            return;
        }
        let group = self.group();
        let untold = self.shape.odd && self.random.one_in(6);
        if !untold && !self.told.groups.contains_key(&group) {
            let config = self.shape.group_config(&mut self.random);
            self.tell(Event::GroupChanged(group, config));
        }
        let alike = self.random.one_in(2).then(|| self.shape.cost(&mut self.random));
        for _ in 0..self.random.within(1, self.shape.size.arrive) {
            let id = Uid(u128::from(self.random.within(1, UIDS)));
            let cost = alike.clone().unwrap_or_else(|| self.shape.cost(&mut self.random));
            let state = if self.random.one_in(10) { self.state() } else { PodState::Gated };
            let before = if self.random.one_in(8) { 300_000 } else { 0 };
            let created = Millis::from(self.random.within(1, 6)) - before;
            let priority = i32::from(self.random.one_in(5)) - i32::from(self.random.one_in(8));
            let never_preempts = self.random.one_in(6);
            let is_ours = !self.random.one_in(4);
            let started = is_ours.then(|| Millis::from(self.random.below(5)) * 500);
            self.tell(Event::PodChanged(
                id,
                PodConfig { group, cost, priority, created, started, never_preempts, state },
            ));
        }
    }

    /// Work that runs already.
    fn runs(&mut self, queue: Assignment, most: u32) {
        let group = self.group();
        let config = self.shape.group_config(&mut self.random);
        self.tell(Event::GroupChanged(group, GroupConfig { queue, ..config }));
        for _ in 0..self.random.within(1, most) {
            let id = Uid(u128::from(self.random.within(1, UIDS)));
            let config = PodConfig {
                group,
                cost: self.shape.cost(&mut self.random),
                priority: 0,
                created: 1,
                started: None,
                never_preempts: false,
                state: PodState::Released { held: false },
            };
            self.tell(Event::PodChanged(id, config));
        }
    }

    fn state(&mut self) -> PodState {
        match self.random.below(8) {
            0 => PodState::Gated,
            1 => PodState::Released { held: self.random.one_in(4) },
            2 => PodState::Ended,
            3 => PodState::Dropped,
            _ => PodState::Bound { node: self.node(), terminating: self.random.one_in(4) },
        }
    }

    fn see(&mut self, id: PodId, change: impl FnOnce(&mut PodConfig)) {
        let Some(pod) = self.told.pods.get(&id) else { return };
        let mut config = pod.config.clone();
        change(&mut config);
        self.tell(Event::PodChanged(id, config));
    }

    /// A pod whose gate is open moves on.
    fn pod_goes_on(&mut self) {
        let is_open = |pod: &Pod| pod.has_started() && pod.config.state != PodState::Ended;
        let Some(id) = self.pod(is_open) else { return };
        let state = match self.told.pods[&id].config.state {
            PodState::Gated if self.random.one_in(2) => PodState::Released { held: false },
            PodState::Bound { node, .. } if self.random.one_in(3) => {
                PodState::Bound { node, terminating: true }
            }
            PodState::Gated | PodState::Released { .. } => {
                PodState::Bound { node: self.node(), terminating: false }
            }
            _ => PodState::Ended,
        };
        self.see(id, |pod| pod.state = state);
    }

    /// Room for some of what waits.
    fn pods_end(&mut self) {
        for _ in 0..self.random.within(1, 6) {
            let runs = |pod: &Pod| pod.has_started() && pod.config.state != PodState::Ended;
            let Some(id) = self.pod(runs) else { return };
            self.see(id, |pod| pod.state = PodState::Ended);
        }
    }

    /// What is evicted goes, or is not evicted after all.
    fn eviction_goes_on(&mut self) {
        let evicted: Vec<PodId> = self.told.evicting.iter().copied().collect();
        let Some(id) = self.random.pick(&evicted) else { return };
        let retry_at = self.now + Millis::from(self.random.below(4)) * 500;
        let told = self.told.pods.get(&id).map(|pod| pod.config.state);
        match told {
            _ if self.random.one_in(8) => {
                self.tell(Event::Outcome(id, Outcome::NotEvicted { retry_at }));
            }
            Some(PodState::Bound { node, terminating: false }) => {
                self.see(id, |pod| pod.state = PodState::Bound { node, terminating: true });
            }
            _ => self.tell(Event::PodRemoved(id)),
        }
    }

    fn pod_is_told_anything(&mut self) {
        let Some(id) = self.pod(|_| true) else { return };
        let state = self.state();
        let group = self.group();
        let cost = self.shape.cost(&mut self.random);
        let priority = i32::from(self.random.one_in(2));
        let what = self.random.below(4);
        self.see(id, |pod| match what {
            0 => pod.group = group,
            1 => pod.cost = cost,
            2 => pod.priority = priority,
            _ => pod.state = state,
        });
    }

    /// What was told some time ago comes once more.
    fn pod_is_told_twice(&mut self) {
        let told = self.log.iter().filter_map(|(_, step)| match step {
            Step::Apply(event @ (Event::PodChanged(..) | Event::GroupChanged(..))) => Some(event),
            _ => None,
        });
        let told: Vec<Event> = told.cloned().collect();
        if let Some(event) = self.random.pick(&told) {
            self.tell(event);
        }
    }

    fn pod_goes(&mut self) {
        let ended = self.random.one_in(2);
        let Some(id) = self.pod(|pod| !ended || pod.config.state == PodState::Ended) else {
            return;
        };
        if self.told.pods[&id].waits() && self.random.one_in(3) {
            return self.see(id, |pod| pod.state = PodState::Dropped);
        }
        self.tell(Event::PodRemoved(id));
    }

    fn outcome(&mut self) -> Outcome {
        match self.random.below(9) {
            0 => Outcome::Gone,
            8 => Outcome::NotEvicted { retry_at: self.now + 500 },
            1..=2 => {
                let retry_at = self.now + Millis::from(self.random.below(4)) * 500;
                Outcome::Refused { retry_at }
            }
            _ => Outcome::Released,
        }
    }

    fn release_ends(&mut self) {
        if let Some(id) = self.pod(|pod| pod.release == Release::Sent) {
            let outcome = self.outcome();
            self.tell(Event::Outcome(id, outcome));
        }
    }

    fn outcome_comes_late(&mut self) {
        let id = Uid(u128::from(self.random.within(1, UIDS)));
        let id = self.pod(|_| true).filter(|_| !self.random.one_in(8)).unwrap_or(id);
        let outcome = self.outcome();
        self.tell(Event::Outcome(id, outcome));
    }

    /// One that went may come back while pods are still said to be on it.
    fn node_changes(&mut self) {
        let went: Vec<NodeId> = self.told.gone.iter().copied().collect();
        let back = self.random.pick(&went).filter(|_| self.random.one_in(2));
        let id = back.unwrap_or_else(|| self.node());
        let mut config = self.shape.node_config(&mut self.random);
        if let Some(before) = self.told.nodes.get(&id)
            && !self.random.one_in(3)
        {
            config.allocatable.clone_from(&before.allocatable);
            config.cluster = before.cluster;
        }
        self.tell(Event::NodeChanged(id, config));
    }

    /// It stops to answer; what is on it is deleted.
    fn node_fails(&mut self) {
        let id = self.node();
        let Some(mut config) = self.told.nodes.get(&id).cloned() else { return };
        config.ready = false;
        self.tell(Event::NodeChanged(id, config));
        if let Some(pod) = self.pod(|pod| pod.config.node() == Some(id)) {
            self.see(pod, |pod| pod.state = PodState::Bound { node: id, terminating: true });
        }
    }

    fn node_goes(&mut self) {
        let id = self.node();
        self.tell(Event::NodeRemoved(id));
    }

    fn foreign_load_changes(&mut self) {
        let (id, amounts) = (self.node(), self.shape.foreign(&mut self.random));
        self.tell(Event::ForeignChanged(id, amounts));
    }

    fn queue_changes(&mut self) {
        let id = self.shape.queue(&mut self.random);
        let config = self.shape.queue_config(&mut self.random, id);
        self.tell(Event::QueueChanged(id, config));
    }

    fn queue_goes(&mut self) {
        let id = self.shape.queue(&mut self.random);
        self.tell(Event::QueueRemoved(id));
    }

    fn group_changes(&mut self) {
        let ids: Vec<GroupId> = self.told.groups.keys().copied().collect();
        let Some(id) = self.random.pick(&ids) else { return };
        let config = self.shape.group_config(&mut self.random);
        let before = self.told.groups[&id].config.clone();
        let config = match self.random.below(3) {
            0 => config,
            1 => GroupConfig { queue: config.queue, ..before },
            _ => GroupConfig { gang: config.gang, singleton: config.singleton, ..before },
        };
        self.tell(Event::GroupChanged(id, config));
    }

    fn releases_pause(&mut self) {
        let cluster = self.shape.cluster(&mut self.random);
        let pause = Pause { since: self.now, cause: Trouble::NoAnswer };
        self.tell(Event::Paused(cluster, pause));
    }

    fn releases_resume(&mut self) {
        let cluster = self.shape.cluster(&mut self.random);
        self.tell(Event::Resumed(cluster));
    }

    fn cluster_is_synced(&mut self) {
        let cluster = self.shape.cluster(&mut self.random);
        self.tell(Event::Synced(cluster));
    }

    /// Mostly forward; a clock may be set back.
    fn time_passes(&mut self) {
        let long = if self.random.one_in(6) { 300_000 } else { 0 };
        let by = long + Millis::from(self.random.below(5)) * 500;
        self.now += if self.random.one_in(20) { -by } else { by };
        self.step(Step::Tick);
    }

    /// Some time ago, or as a clock says that runs ahead.
    fn used_before(&mut self) {
        let at = self.now + 2_000 - Millis::from(self.random.below(5)) * 1_000;
        let (whole, own) = (self.shape.cost(&mut self.random), self.shape.cost(&mut self.random));
        let queue = self.shape.queue(&mut self.random);
        self.tell(Event::UsedBefore(queue, Used { at, whole, own }));
    }

    fn is_rehearsed(&mut self) {
        let budget = self.budget();
        self.step(Step::Rehearse(budget));
    }

    fn decide(&mut self) {
        let budget = self.budget();
        self.step(Step::Decide(budget));
        if self.random.one_in(2) {
            self.step(Step::Tick);
        }
    }

    fn budget(&mut self) -> usize {
        if !self.random.one_in(3) {
            return usize::MAX;
        }
        usize::try_from(self.random.below(4)).unwrap_or(0)
    }
}
