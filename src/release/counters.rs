//! What the writer did, for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::ClusterId;

use super::circuit::Phase;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts since the start of the process; read with any ordering, never reset.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
            flows: BTreeMap<ClusterId, AtomicU64>,
        }

        /// [`Counters`] at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// All counts now. Each is exact; together they are not one instant.
            #[must_use]
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

/// How releases flow to one cluster now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The cluster.
    pub cluster: ClusterId,
    /// Where its circuit stands.
    pub phase: Phase,
    /// Patches that may be in flight at once.
    pub window: u32,
}

impl Counters {
    pub(super) fn of(clusters: impl IntoIterator<Item = ClusterId>) -> Self {
        let flows = clusters.into_iter().map(|cluster| (cluster, AtomicU64::new(0))).collect();
        Self { flows, ..Self::default() }
    }

    /// How releases flow now, by cluster.
    #[must_use]
    pub fn flows(&self) -> Vec<Flow> {
        let flow = |(&cluster, packed): (&ClusterId, &AtomicU64)| {
            let (phase, window) = unpack(packed.load(Ordering::Relaxed));
            Flow { cluster, phase, window }
        };
        self.flows.iter().map(flow).collect()
    }

    pub(super) fn set_flow(&self, cluster: ClusterId, phase: Phase, window: u32) {
        if let Some(packed) = self.flows.get(&cluster) {
            packed.store(pack(phase, window), Ordering::Relaxed);
        }
    }
}

/// Phase and window in one number, so that they are of one moment.
fn pack(phase: Phase, window: u32) -> u64 {
    let at = Phase::ALL.iter().position(|&known| known == phase).unwrap_or(0);
    (u64::try_from(at).unwrap_or(0) << 32) | u64::from(window)
}

fn unpack(packed: u64) -> (Phase, u32) {
    let at = usize::try_from(packed >> 32).unwrap_or(0);
    let window = u32::try_from(packed & u64::from(u32::MAX)).unwrap_or(0);
    (Phase::ALL.get(at).copied().unwrap_or_default(), window)
}

counters! {
    /// Release patches sent, repetitions included.
    patches,
    /// Pods whose gate was opened.
    released,
    /// Pods that were gone when their release came.
    gone,
    /// Releases handed back to be decided again later.
    refusals,
    /// Release patches that will be repeated.
    retries,
    /// Times that releases to a cluster were paused.
    pauses,
    /// Pods that were evicted.
    evicted,
    /// Evictions that will be repeated.
    eviction_retries,
    /// Evictions handed back, to be decided again later if they are needed then, because a
    /// `PodDisruptionBudget` does not let the pod go.
    evictions_guarded,
    /// Evictions handed back for any other reason.
    evictions_refused,
    /// Events written.
    events,
    /// Events dropped: refused, failed, or more than could be written.
    events_dropped,
    /// Queue statuses written.
    statuses,
    /// Writes of a queue's status that failed.
    status_failures,
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_told_as_it_was_set() {
        let counters = Counters::of([ClusterId(0), ClusterId(1)]);
        for phase in Phase::ALL {
            counters.set_flow(ClusterId(1), phase, u32::MAX);
            let flow = Flow { cluster: ClusterId(1), phase, window: u32::MAX };
            assert_eq!(counters.flows().last(), Some(&flow));
        }
        assert_eq!(counters.flows().first().map(|flow| flow.phase), Some(Phase::Closed));
    }
}
