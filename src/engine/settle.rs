//! Brings up to date what follows from what was told, once for many events.

use super::amounts::{Amounts, Need};
use super::group::{Group, Offers, Standing, Turn};
use super::line::{Line, Place};
use super::mask::Mask;
use super::model::{Assignment, Growth, Millis, Order, PodId};
use super::pod::Pod;
use super::reason::Reason;
use super::shapes::{Class, ClassId, Kind};
use super::slab::NONE;
use super::tree::{self, Tree};
use super::world::Engine;

impl Engine {
    /// Brings everything that is read from outside up to date with what was told.
    /// Costs nothing when nothing was told.
    pub fn settle(&mut self) {
        let axes = std::mem::take(&mut self.todo.axes);
        if axes {
            self.measure_again();
            self.pools = None;
        }
        if std::mem::take(&mut self.todo.tree) || axes {
            self.build_tree();
        }
        self.pool_nodes();
        if self.fleet.is_resized() {
            self.fleet.resize();
            self.judge_lanes();
            self.weigh_waiting();
            self.look_at_gangs();
        }
        if std::mem::take(&mut self.todo.capacity) {
            self.touch_all();
        }
        self.bring_up_to_date();
        if std::mem::take(&mut self.todo.freed) {
            self.refit();
        }
        let mut whole = self.fleet.capacity.clone();
        whole.sub_all(&self.stray);
        whole.at_least_zero();
        self.tree.set_whole(whole);
        self.mark_reserved();
    }

    /// Puts groups and lines where they belong after changes of their own.
    pub(super) fn bring_up_to_date(&mut self) {
        while let Some(slot) = self.todo.groups.pop() {
            self.line_up(slot);
        }
        while let Some(slot) = self.todo.lines.pop() {
            self.refresh(slot);
        }
        self.judge_backlogs();
        self.classes.sweep(&mut self.shapes, &mut self.fitting);
    }

    /// A resource has an axis that had none: everything is added up again, but for what is
    /// known of the tree, which is built anew.
    fn measure_again(&mut self) {
        self.shapes.project(&self.axes);
        self.classes.project(&self.shapes);
        self.fleet.project(&self.axes);
        self.load.clear();
        for (_, line) in self.lines.iter_mut() {
            line.usage.clear();
            line.load.clear();
            line.waiting.clear();
        }
        for (_, pod) in self.pods.iter() {
            let Some(charge) = pod.charge else { continue };
            let need = self.shapes.need(charge.shape);
            if charge.takes_capacity {
                self.load.add(need);
            }
            if charge.line != NONE {
                let line = &mut self.lines[charge.line];
                line.usage.add(need);
                if charge.takes_capacity {
                    line.load.add(need);
                }
            }
        }
        let one = Need::one_group();
        for (_, group) in self.groups.iter() {
            if group.charged > 0 && group.line != NONE {
                self.lines[group.line].usage.add(&one);
            }
        }
        self.todo.capacity = true;
        self.todo.freed = true;
    }

    fn build_tree(&mut self) {
        for &queue in self.queues.keys() {
            let lines = &mut self.lines;
            self.line_of.entry(queue).or_insert_with(|| lines.insert(Line::new(queue)));
        }
        self.forget_lines();
        for (_, line) in self.lines.iter_mut() {
            let config = self.queues.get(&line.queue);
            line.growth = config.map_or(Growth::default(), |config| config.growth);
        }
        self.stray = self.load.clone();
        let histories = std::mem::take(&mut self.tree.histories);
        self.tree = Tree::build(&self.axes, &self.queues, &mut self.lines, &self.line_of);
        for (_, line) in self.lines.iter().filter(|(_, line)| line.node != NONE) {
            self.stray.sub_all(&line.load);
        }
        self.tree.resume(histories);
        self.rehearsal.clear();
        self.judge_all_backlogs();
        let all: Vec<u32> = self.groups.iter().map(|(slot, _)| slot).collect();
        for slot in all {
            self.look_at(slot);
        }
        self.judge_lanes();
        self.weigh_waiting();
        self.todo.freed = true;
    }

    /// Forgets the lines of queues that are gone and that nobody names.
    fn forget_lines(&mut self) {
        let (lines, queues) = (&mut self.lines, &self.queues);
        self.line_of.retain(|queue, &mut slot| {
            let keep = queues.contains_key(queue) || lines[slot].groups > 0;
            if !keep {
                lines.remove(slot);
            }
            keep
        });
    }

    fn touch_all(&mut self) {
        let all: Vec<u32> = self.lines.iter().map(|(slot, _)| slot).collect();
        for slot in all {
            self.touch(slot);
        }
    }

    /// Finds again which lanes can never move as things are.
    fn judge_lanes(&mut self) {
        let all: Vec<u32> = self.lines.iter().map(|(slot, _)| slot).collect();
        for slot in all {
            let classes: Vec<ClassId> =
                self.lines[slot].lanes.iter().map(|lane| lane.class).collect();
            for class in classes {
                self.judge_lane(slot, class);
            }
            self.touch(slot);
        }
    }

    fn judge_lane(&mut self, line: u32, class: ClassId) {
        let hopeless = self.is_hopeless(line, class);
        if let Some(lane) = self.lines[line].lane_mut(class) {
            lane.hopeless = hopeless;
        }
    }

    /// Whether an offer cannot start whatever ends: larger than a limit, or than any node.
    fn is_hopeless(&self, line: u32, class: ClassId) -> bool {
        let class = self.classes.get(class);
        !class.kind.parts.iter().all(|(shape, _)| self.holds(shape))
            || !self.is_within_limits(line, &class.need)
    }

    /// Finds again which classes fit what is free.
    fn refit(&mut self) {
        let free = self.free();
        let fits =
            |&(id, class): &(ClassId, &Class)| !self.fitting.has(id) && class.need.fits(&free);
        let new: Vec<ClassId> = self.classes.iter().filter(fits).map(|(id, _)| id).collect();
        if !new.is_empty() {
            self.tree.look_again();
        }
        self.tree.open_reserved();
        for class in new {
            self.fitting.set(class);
        }
        self.tree.open_all();
    }

    pub(super) fn free(&self) -> Amounts {
        let mut free = self.fleet.capacity.clone();
        free.sub_all(&self.load);
        free
    }

    /// Puts a group where it belongs in its queue's line, or takes it out.
    pub(super) fn line_up(&mut self, slot: u32) {
        if self.groups.get(slot).is_none_or(|group| !group.is_stale) {
            return;
        }
        self.groups[slot].is_stale = false;
        self.awake(slot);
        self.count_backlog(slot);
        self.judge_earnest(slot);
        let group = &self.groups[slot];
        let place = match group.config.queue {
            Assignment::Queue(_) => group.place(self.lines[group.line].growth),
            _ => None,
        };
        let standing = if let Some(place) = place {
            self.register_key(slot);
            let wake = self.wakes(&self.groups[slot]);
            self.alarms.extend(wake.map(|at| (at, slot)));
            match self.offers(slot) {
                Some(kinds) => Standing::Offers(place, self.hold_classes(kinds)),
                None => Standing::Parked(place),
            }
        } else {
            self.forget_key(slot);
            Standing::Out
        };
        self.stand(slot, standing);
    }

    /// Pods whose refused release may be tried again are not refused any more.
    fn awake(&mut self, slot: u32) {
        if self.groups[slot].refused == 0 {
            return;
        }
        let due: Vec<_> = self
            .pods_of(slot)
            .map(|pod| &self.pods[pod])
            .filter(|pod| pod.waits() && self.is_due(pod.id()))
            .map(Pod::id)
            .collect();
        for id in due {
            if self.retries.remove(&id).is_some() {
                self.groups[slot].refused -= 1;
            }
        }
    }

    fn is_due(&self, pod: PodId) -> bool {
        self.retries.get(&pod).is_some_and(|&at| at <= self.now)
    }

    /// Whether a waiting pod may be let go as far as its last refusal goes.
    pub(super) fn is_ready(&self, turn: &Turn) -> bool {
        self.retries.is_empty() || !self.retries.contains_key(&self.pods[turn.pod].id())
    }

    fn register_key(&mut self, slot: u32) {
        let group = &self.groups[slot];
        if let Some(key) = group.config.singleton {
            self.lines[group.line].keys.entry(key).or_default().waiting.insert(slot);
        }
    }

    pub(super) fn forget_key(&mut self, slot: u32) {
        let group = &self.groups[slot];
        if let Some(key) = group.config.singleton
            && group.line != NONE
            && let Some(held) = self.lines[group.line].keys.get_mut(&key)
        {
            held.waiting.remove(&slot);
            if held.charged == 0 && held.waiting.is_empty() {
                let line = group.line;
                self.lines[line].keys.remove(&key);
            }
        }
    }

    /// What a group offers, if it has anything to offer.
    fn offers(&self, slot: u32) -> Option<Vec<Kind>> {
        let group = &self.groups[slot];
        if self.parked(group).is_some() {
            return None;
        }
        let together = group.together(self.now).ok()?;
        let site = self.site(group);
        Some(group.kinds(together, site, |turn| self.is_ready(turn)))
            .filter(|kinds| !kinds.is_empty())
    }

    /// When a group has to be looked at again though nothing is told of it.
    fn wakes(&self, group: &Group) -> Option<Millis> {
        let settles = match group.together(self.now) {
            Err(Reason::Settling { until }) => Some(until),
            _ => None,
        };
        settles.into_iter().chain(self.earliest_retry(group)).min()
    }

    /// Why a group has nothing to offer now, apart from its queue.
    pub(super) fn parked(&self, group: &Group) -> Option<Reason> {
        if group.claimed > 0 {
            return self.claim_of(group.id);
        }
        if !self.synced.contains(&group.config.cluster) {
            return Some(Reason::ClusterNotSynced);
        }
        if let Some(&pause) = self.paused.get(&group.config.cluster) {
            return Some(Reason::ReleasesPaused(pause));
        }
        let together = match group.together(self.now) {
            Err(reason) => return Some(reason),
            Ok(together) => together,
        };
        let ready = group.have() - group.refused;
        if ready < together {
            let retry_at = self.earliest_retry(group)?;
            return Some(Reason::ReleaseRefused { retry_at });
        }
        self.key_held(group).then_some(Reason::SingletonRunning)
    }

    fn key_held(&self, group: &Group) -> bool {
        let held = |key| self.lines.get(group.line)?.keys.get(&key);
        let others = group.config.singleton.and_then(held).map_or(0, |held| held.charged);
        others > u32::from(group.charged > 0)
    }

    fn earliest_retry(&self, group: &Group) -> Option<Millis> {
        if group.refused == 0 {
            return None;
        }
        let retry = |turn: Turn| self.retries.get(&self.pods[turn.pod].id()).copied();
        group.waiting.iter().filter_map(retry).min()
    }

    fn hold_classes(&mut self, kinds: Vec<Kind>) -> Offers {
        let classes: Vec<ClassId> = kinds.into_iter().map(|kind| self.hold_class(kind)).collect();
        match classes[..] {
            [class] => Offers::One(class),
            _ => Offers::Several(classes.into()),
        }
    }

    pub(super) fn hold_class(&mut self, kind: Kind) -> ClassId {
        let (class, new) = self.classes.hold(&mut self.shapes, kind);
        if new {
            self.fitting.unset(class);
            if self.classes.get(class).need.fits(&self.free()) {
                self.fitting.set(class);
            }
        }
        class
    }

    /// Moves a group from where it stood to where it stands.
    pub(super) fn stand(&mut self, slot: u32, standing: Standing) {
        let group = &mut self.groups[slot];
        let line = group.line;
        let before = std::mem::replace(&mut group.standing, Standing::Out);
        self.take_out(line, &before);
        match &standing {
            Standing::Out => {}
            Standing::Parked(place) => self.lines[line].parked.insert(*place),
            Standing::Offers(place, offers) => {
                for class in offers.iter() {
                    if self.lines[line].insert(class, *place) {
                        self.judge_lane(line, class);
                    }
                }
                self.touch(line);
            }
        }
        self.groups[slot].standing = standing;
    }

    fn take_out(&mut self, line: u32, standing: &Standing) {
        match standing {
            Standing::Out => {}
            Standing::Parked(place) => self.lines[line].parked.remove(place),
            Standing::Offers(place, offers) => {
                for class in offers.iter() {
                    self.lines[line].remove(class, place);
                    self.classes.release(class);
                }
                self.touch(line);
            }
        }
    }

    /// Tells the tree what a line has to offer.
    pub(super) fn refresh(&mut self, slot: u32) {
        if self.lines.get(slot).is_none_or(|line| !line.is_touched) {
            return;
        }
        self.lines[slot].is_touched = false;
        let line = &self.lines[slot];
        if line.node == NONE {
            return;
        }
        let (mut open, mut head, mut strict) = (Mask::default(), None, [None; 2]);
        if !line.stopped {
            let front = |place: &Place, class| self.front(place, class);
            let first = tree::first_of_all(line, &front);
            head = first.map(|lane| lane.first.head());
            let lanes = line.lanes.iter().filter(|lane| !lane.hopeless).map(|lane| lane.class);
            match line.order {
                Order::BestEffort => lanes.for_each(|class| open.set(class)),
                Order::Strict => {
                    let firsts = [first, tree::first_to_borrow(line, &front)];
                    strict = firsts.map(|first| first.map(|lane| lane.class));
                    strict.iter().flatten().for_each(|&class| open.set(class));
                }
            }
        }
        let node = line.node;
        // What was closed while another lane was first may fit now.
        if std::mem::replace(&mut self.lines[slot].strict, strict) != strict {
            let nothing = Mask::default();
            self.tree.refresh(node, &nothing, None, &self.fleet.capacity, &self.classes);
        }
        self.tree.refresh(node, &open, head, &self.fleet.capacity, &self.classes);
    }

    /// The first pod of an offer.
    pub(super) fn front(&self, place: &Place, class: ClassId) -> Option<Turn> {
        let group = &self.groups[self.group_slots.get(&place.group)?];
        group.front(&self.classes.get(class).kind, |turn| self.is_ready(turn))
    }
}
