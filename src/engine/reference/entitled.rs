//! What each place is given, limited to, demands, and is entitled to.

use super::super::model::{Assignment, GroupId, QueueId, ResourceId, Vector};
use super::books::Books;
use super::water::{Claim, fill};
use super::{Amounts, Reference, Spot};

/// What is between floor and cap is a whole multiple of this: a power of two, at most 2^-20 of
/// what there is.
fn grain(most: i128) -> i128 {
    (0..100).map(|power| 1 << power).find(|grain| grain << 21 > most).unwrap()
}

fn rounded(part: i128, (whole, claim): (i128, Claim), grain: i128) -> i128 {
    let down = part - part % grain;
    match part {
        part if part == claim.cap || part == whole => part,
        part if part < claim.floor => down,
        _ => down.max(claim.floor),
    }
}

impl Reference {
    /// What every place is entitled to, of each resource that there is.
    pub(in super::super) fn entitled(&self) -> Amounts {
        let books = self.books();
        let demand = self.demand(&books);
        let mut entitled = Amounts::new();
        for (resource, capacity) in books.capacity.iter().filter(|&(_, amount)| amount > 0) {
            let most = (capacity - books.stray.get(resource)).max(0);
            self.share_out(None, (resource, grain(most)), most, &demand, &mut entitled);
        }
        entitled
    }

    fn share_out(
        &self,
        above: Option<QueueId>,
        (resource, grain): (ResourceId, i128),
        most: i128,
        demand: &Amounts,
        entitled: &mut Amounts,
    ) {
        let children = self.children(above);
        let claim = |&spot| {
            let demand = demand.get(&spot).map_or(0, |demand| demand.get(resource));
            let cap = demand.min(self.limit(spot).mentioned(resource).unwrap_or(i128::MAX));
            let floor = self.given(spot).get(resource).min(cap);
            let kept = self.held(spot, resource, &|_| 0);
            Claim { weight: self.weight(spot), floor: floor.max(kept), cap: cap.max(kept) }
        };
        let claims: Vec<Claim> = children.iter().map(claim).collect();
        for ((spot, part), claim) in children.into_iter().zip(fill(most, &claims)).zip(claims) {
            let part = rounded(part, (most, claim), grain);
            entitled.entry(spot).or_default().set(resource, part);
            if let Spot::Queue(queue) = spot {
                self.share_out(Some(queue), (resource, grain), part, demand, entitled);
            }
        }
    }

    pub(super) fn weight(&self, spot: Spot) -> u32 {
        match spot {
            Spot::Line(_) => 1,
            Spot::Queue(queue) => self.queues[&queue].weight.max(1),
        }
    }

    /// What a place may use; unmentioned means any amount.
    pub(in super::super) fn limit(&self, spot: Spot) -> Vector {
        let Spot::Queue(queue) = spot else { return Vector::default() };
        let queue = &self.queues[&queue];
        let mut limit = queue.limit.clone();
        let running = queue.max_running;
        for (resource, most) in
            [(ResourceId::PODS, running.pods), (ResourceId::GROUPS, running.groups)]
        {
            if let Some(most) = most.map(i128::from) {
                limit.set(resource, limit.mentioned(resource).unwrap_or(most).min(most));
            }
        }
        limit
    }

    /// What is a place's own; unmentioned where nobody said so.
    pub(super) fn given(&self, spot: Spot) -> Vector {
        let below = |queue| {
            let mut sum = Vector::default();
            for child in self.children(Some(queue)) {
                if let Spot::Queue(_) = child {
                    sum.add(&self.given(child));
                }
            }
            sum
        };
        match spot {
            Spot::Queue(queue) => {
                let mut given = below(queue);
                for (resource, amount) in self.queues[&queue].guaranteed.iter() {
                    given.set(resource, amount);
                }
                given
            }
            Spot::Line(queue) => {
                let (given, below) = (self.given(Spot::Queue(queue)), below(queue));
                given.iter().map(|(r, amount)| (r, (amount - below.get(r)).max(0))).collect()
            }
        }
    }

    /// What of a resource nobody else may use, when so much is used.
    pub(super) fn held(
        &self,
        spot: Spot,
        resource: ResourceId,
        used: &impl Fn(Spot) -> i128,
    ) -> i128 {
        let Spot::Queue(queue) = spot else { return 0 };
        let config = &self.queues[&queue];
        let keeps = |lent| config.guaranteed.get(resource) - lent - used(spot);
        let own = config.lendable.mentioned(resource).map_or(0, keeps);
        let below = self.children(Some(queue)).into_iter();
        own.max(below.map(|child| self.held(child, resource, used)).sum()).max(0)
    }

    /// What siblings of the places on the path of a queue hold.
    pub(in super::super) fn withheld(
        &self,
        queue: QueueId,
        resource: ResourceId,
        used: &impl Fn(Spot) -> i128,
    ) -> i128 {
        let path = self.spots(queue);
        let above = self.path(queue).unwrap_or_default().into_iter().map(Some).chain([None]);
        let siblings = above.flat_map(|above| self.children(above));
        let others = siblings.filter(|spot| !path.contains(spot));
        others.map(|spot| self.held(spot, resource, used)).sum()
    }

    fn demand(&self, books: &Books) -> Amounts {
        let own = |queue| {
            let mut own = books.usage.get(&Spot::Line(queue)).cloned().unwrap_or_default();
            let names = |id: &&GroupId| self.groups[id].config.queue == Assignment::Queue(queue);
            for &id in self.groups.keys().filter(names).filter(|_| self.is_open(queue)) {
                for pod in self.in_earnest(id, queue) {
                    own.add(&self.pods[&pod].config.cost);
                }
            }
            own
        };
        let mut demand = Amounts::new();
        for child in self.children(None) {
            self.add_up(child, &own, &mut demand);
        }
        demand
    }

    /// Adds up what is demanded at a place and below it.
    fn add_up(&self, spot: Spot, own: &impl Fn(QueueId) -> Vector, demand: &mut Amounts) {
        let sum = match spot {
            Spot::Line(queue) => own(queue),
            Spot::Queue(queue) => {
                let mut sum = Vector::default();
                for child in self.children(Some(queue)) {
                    self.add_up(child, own, demand);
                    let limit = self.limit(child);
                    let within = |(r, asked): (ResourceId, i128)| {
                        (r, limit.mentioned(r).map_or(asked, |most| asked.min(most)))
                    };
                    sum.add(&demand[&child].iter().map(within).collect());
                }
                sum
            }
        };
        demand.insert(spot, sum);
    }
}
