//! Whose new pods admission is to refuse while a queue's backlog is full.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::action::Full;
use crate::engine::event::Maker;
use crate::engine::{Engine, Millis, QueueId};
use crate::view::Names;

/// Owners that a status names, and namespaces.
const NAMED: usize = 64;
/// How often a backlog that stays full is told again. Admission waits for three of them.
const RENEWED_EVERY: Millis = 10_000;

/// What admission is to know of a queue that is full. The same as before until somebody
/// else has pods waiting there or ten seconds have passed, but for the number.
pub(super) fn full(now: Millis, engine: &Engine, names: &Names, queue: QueueId) -> Full {
    let mut owners = BTreeMap::<&Arc<str>, u64>::new();
    let mut namespaces = BTreeMap::<&Arc<str>, u64>::new();
    for (address, maker) in engine.backlog(queue).filter_map(|pod| names.made(pod)) {
        match maker {
            Maker::Owner(uid) => *owners.entry(uid).or_default() += 1,
            Maker::Namespace => *namespaces.entry(&address.namespace).or_default() += 1,
            // Admission reads the same label.
            Maker::Label => {}
        }
    }
    Full {
        pods: engine.pending(queue),
        renewed: now - now.rem_euclid(RENEWED_EVERY),
        owners: most(&owners),
        namespaces: most(&namespaces),
    }
}

/// Those with most pods, in their own order.
fn most(counts: &BTreeMap<&Arc<str>, u64>) -> Vec<Arc<str>> {
    let mut ranked: Vec<_> = counts.iter().map(|(&name, &pods)| (Reverse(pods), name)).collect();
    ranked.sort_unstable();
    ranked.truncate(NAMED);
    let mut named: Vec<_> = ranked.into_iter().map(|(_, name)| Arc::clone(name)).collect();
    named.sort_unstable();
    named
}

/// Whether admission would do something else by the new one: refuse somebody more, or
/// nobody any more. To go on refusing somebody for a second does no harm.
pub(super) fn is_news(new: Option<&Full>, known: Option<&Full>) -> bool {
    match (new, known) {
        (None, None) => false,
        (Some(new), Some(known)) => {
            adds(&new.owners, &known.owners) || adds(&new.namespaces, &known.namespaces)
        }
        _ => true,
    }
}

fn adds(new: &[Arc<str>], known: &[Arc<str>]) -> bool {
    new.iter().any(|name| known.binary_search(name).is_err())
}
