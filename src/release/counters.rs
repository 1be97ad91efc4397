//! What the writer did, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts since the start of the process; read with any ordering, never reset.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
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
