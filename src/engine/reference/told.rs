//! What was told is kept.

use std::collections::BTreeSet;

use super::super::Decided;
use super::super::event::{Event, GroupConfig, Outcome, PodConfig};
use super::super::model::{
    Assignment, ClusterId, Gang, GroupId, Millis, NodeId, PodId, PodState, Uid,
};
use super::{Group, Pod, Reference, Release};

impl Reference {
    /// Keeps one event that happened at `now`.
    pub(in super::super) fn apply(&mut self, now: Millis, event: Event) {
        self.pass(now);
        self.give_up_told(&event);
        match event {
            Event::QueueChanged(id, config) => {
                let own = config.guaranteed.iter().chain(config.lendable.iter());
                self.known.extend(own.chain(config.limit.iter()).map(|(resource, _)| resource));
                self.begin_histories(id, Some(&config));
                self.queues.insert(id, config);
            }
            Event::QueueRemoved(id) => {
                self.begin_histories(id, None);
                self.queues.remove(&id);
            }
            Event::NodeChanged(id, config) => {
                self.known.extend(config.allocatable.iter().map(|(resource, _)| resource));
                self.nodes.insert(id, config);
                self.gone.remove(&id);
            }
            Event::NodeRemoved(id) => {
                self.nodes.remove(&id);
                self.foreign.remove(&id);
                self.gone.insert(id);
            }
            Event::ForeignChanged(id, amounts) => drop(self.foreign.insert(id, amounts)),
            Event::GroupChanged(id, config) => self.group_changed(id, config),
            Event::PodChanged(id, config) => self.pod_changed(id, config),
            Event::PodRemoved(id) => {
                self.evicting.remove(&id);
                self.spared.remove(&id);
                if let Some(pod) = self.pods.remove(&id) {
                    self.forget_if_empty(pod.config.group);
                }
            }
            Event::Outcome(id, outcome) => self.outcome(id, &outcome),
            Event::Synced(cluster) => drop(self.synced.insert(cluster)),
            Event::Paused(cluster, _) => drop(self.paused.insert(cluster)),
            Event::Resumed(cluster) => drop(self.paused.remove(&cluster)),
            Event::UsedBefore(id, used) => self.used_before(id, used),
        }
        self.take_told();
        self.forget_nodes();
    }

    /// Moves time on; true when something may start.
    pub(in super::super) fn tick(&mut self, now: Millis) -> bool {
        self.pass(now);
        let mut later = self.clone();
        later.decide(1) != Decided::default() || later.claims.len() != self.claims.len()
    }

    fn group_changed(&mut self, id: GroupId, config: GroupConfig) {
        self.groups.entry(id).or_insert_with(Group::unannounced).told = Some(config);
    }

    /// So many pods of a group are about to be let go together.
    pub(super) fn set_out(&mut self, id: GroupId, size: u32) {
        let group = self.groups.get_mut(&id).unwrap();
        if group.config.gang == Gang::All {
            group.told = Some(group.config.clone());
            group.config.gang = Gang::AtLeast(size);
        }
    }

    /// What was told of a group counts, unless it is on its way.
    fn take_told(&mut self) {
        let unseen = |pod: &&Pod| pod.config.state == PodState::Gated && pod.has_started();
        let on_their_way: BTreeSet<GroupId> =
            self.pods.values().filter(unseen).map(|pod| pod.config.group).collect();
        for (id, group) in &mut self.groups {
            if !on_their_way.contains(id)
                && let Some(told) = group.told.take()
            {
                group.config = told;
            }
        }
    }

    fn pod_changed(&mut self, id: PodId, config: PodConfig) {
        let (group, state) = (config.group, config.state);
        let before = self.pods.get(&id).map(|pod| pod.config.group);
        let pod = self.pods.entry(id).or_insert_with(|| Pod {
            config: config.clone(),
            release: Release::None,
            retry_at: None,
            started: None,
            planned: None,
        });
        pod.started = config.started.or(pod.started);
        pod.config = config;
        if !matches!(state, PodState::Gated | PodState::Released { .. }) {
            pod.planned = None;
        }
        if !matches!(state, PodState::Gated | PodState::Dropped) {
            pod.release = Release::Done;
        }
        if before != Some(group) {
            let entered = self.groups.entry(group).or_insert_with(Group::unannounced);
            entered.arrived = entered.arrived.max(self.now);
            if let Some(left) = before {
                self.forget_if_empty(left);
            }
        }
    }

    fn outcome(&mut self, id: PodId, outcome: &Outcome) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        match outcome {
            Outcome::Released => pod.release = Release::Done,
            Outcome::Gone => pod.release = Release::Gone,
            // Only a release that is under way can be refused.
            Outcome::Refused { retry_at } if pod.release == Release::Sent => {
                (pod.release, pod.retry_at) = (Release::None, Some(*retry_at));
                pod.planned = None;
            }
            Outcome::Refused { .. } => {}
            Outcome::NotEvicted { retry_at } => {
                if self.evicting.remove(&id) {
                    self.spared.insert(id, *retry_at);
                }
            }
        }
    }

    /// A group is forgotten with its last pod.
    fn forget_if_empty(&mut self, group: GroupId) {
        if self.pods.values().all(|pod| pod.config.group != group) {
            self.groups.remove(&group);
        }
    }

    /// That a node is gone is forgotten with the last pod on it.
    fn forget_nodes(&mut self) {
        let on = |id: &NodeId| self.pods.values().any(|pod| pod.config.node() == Some(*id));
        self.gone.retain(on);
    }
}

impl Group {
    /// A pod told before its group waits for it.
    fn unannounced() -> Self {
        let config = GroupConfig {
            cluster: ClusterId::default(),
            root: Uid::default(),
            queue: Assignment::Unresolved,
            gang: Gang::Units,
            singleton: None,
            non_preemptible: false,
            topology: None,
        };
        Self { config, told: None, arrived: 0 }
    }
}
