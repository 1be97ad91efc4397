//! Groups: announced, configured, joined and left.

use super::event::GroupConfig;
use super::group::{Group, Standing};
use super::line::Line;
use super::model::{Assignment, GroupId, QueueId};
use super::pod::Pod;
use super::slab::NONE;
use super::world::Engine;

impl Engine {
    pub(super) fn change_group(&mut self, id: GroupId, config: GroupConfig) {
        let slot = self.group_slot(id);
        let group = &mut self.groups[slot];
        if group.unseen > 0 {
            group.told = Some(Box::new(config));
        } else {
            self.configure(slot, config);
        }
    }

    /// What was told of a group while it was on its way counts, if it no longer is.
    pub(super) fn arrive(&mut self, slot: u32) {
        if let Some(group) = self.groups.get(slot)
            && group.unseen == 0
            && let Some(told) = self.groups[slot].told.take()
        {
            self.configure(slot, *told);
        }
    }

    fn configure(&mut self, slot: u32, config: GroupConfig) {
        let before = &self.groups[slot].config;
        // A group's root changes with its oldest pod; only its queue changes who pays.
        if before.queue == config.queue && before.singleton == config.singleton {
            self.groups[slot].config = config;
        } else {
            self.move_group(slot, config);
        }
        self.look_at(slot);
    }

    /// A group has another queue or another key: whatever it has and asks goes there.
    fn move_group(&mut self, slot: u32, config: GroupConfig) {
        let pods: Vec<u32> = self.pods_of(slot).collect();
        for &pod in &pods {
            self.settle_charge(pod, None);
        }
        self.leave_line(slot);
        self.groups[slot].config = config;
        self.enter_line(slot);
        for pod in pods {
            self.recharge(pod);
        }
    }

    /// The slot of a group, a new one for a group that nobody spoke of.
    pub(super) fn group_slot(&mut self, id: GroupId) -> u32 {
        if let Some(slot) = self.group_slots.get(&id) {
            return slot;
        }
        let slot = self.groups.insert(Group::unannounced(id));
        self.group_slots.insert(id, slot);
        slot
    }

    /// The slot of the line that a group is in, made when there is none.
    fn line_slot(&mut self, queue: QueueId) -> u32 {
        let lines = &mut self.lines;
        *self.line_of.entry(queue).or_insert_with(|| lines.insert(Line::new(queue)))
    }

    fn enter_line(&mut self, slot: u32) {
        let queue = match self.groups[slot].config.queue {
            Assignment::Queue(queue) | Assignment::Forbidden(queue, _) => queue,
            Assignment::Unresolved | Assignment::Unnamed => return,
        };
        let line = self.line_slot(queue);
        self.groups[slot].line = line;
        self.lines[line].groups += 1;
        let asked = self.asked_by(slot);
        self.ask(self.groups[slot].asks_in(), |waiting| waiting.add_all(&asked));
    }

    fn leave_line(&mut self, slot: u32) {
        self.stand(slot, Standing::Out);
        self.recount(slot, (NONE, 0));
        let asked = self.asked_by(slot);
        self.ask(self.groups[slot].asks_in(), |waiting| waiting.sub_all(&asked));
        self.forget_key(slot);
        let line = std::mem::replace(&mut self.groups[slot].line, NONE);
        if line == NONE {
            return;
        }
        let line_left = &mut self.lines[line];
        line_left.groups -= 1;
        if line_left.groups == 0 && !self.queues.contains_key(&line_left.queue) {
            self.todo.tree = true;
        }
    }

    pub(super) fn join_group(&mut self, slot: u32, group: u32) {
        let first = std::mem::replace(&mut self.groups[group].pods, slot);
        let pod = &mut self.pods[slot];
        (pod.group, pod.next, pod.previous) = (group, first, NONE);
        if first != NONE {
            self.pods[first].previous = slot;
        }
        let group = &mut self.groups[group];
        group.arrived = group.arrived.max(self.now);
    }

    /// Takes a pod that is not queued out of its group, and the group away with its last pod.
    pub(super) fn leave_group(&mut self, slot: u32) {
        self.settle_charge(slot, None);
        let Pod { group, next, previous, .. } = self.pods[slot];
        match previous {
            NONE => self.groups[group].pods = next,
            previous => self.pods[previous].next = next,
        }
        if next != NONE {
            self.pods[next].previous = previous;
        }
        if self.groups[group].pods == NONE {
            self.forget_group(group);
        } else {
            self.look_at(group);
        }
    }

    fn forget_group(&mut self, slot: u32) {
        self.leave_line(slot);
        if let Some(group) = self.groups.remove(slot) {
            self.group_slots.remove(&group.id);
        }
    }

    pub(super) fn pods_of(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        let known = |slot: u32| Some(slot).filter(|&slot| slot != NONE);
        std::iter::successors(known(self.groups[group].pods), move |&slot| {
            known(self.pods[slot].next)
        })
    }
}
