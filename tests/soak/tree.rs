//! Queues and namespaces of the soak.

use serde_json::{Value, json};

/// Above all others.
pub const TOP: &str = "soak";
/// What is first does not fit: nothing goes.
pub const STRICT: &str = "soak-strict";
/// Its limit is changed all the time.
pub const SHIFTS: &str = "soak-shifts";
/// It is stopped and opened all the time.
pub const HOLDS: &str = "soak-holds";
/// Everything below [`TOP`].
pub const QUEUES: [&str; 6] = ["soak-three", "soak-one", STRICT, "soak-capped", SHIFTS, HOLDS];
/// Namespaces, each with its default queue.
pub const NAMESPACES: [(&str, &str); 4] =
    [("soak-a", "soak-three"), ("soak-b", "soak-one"), ("soak-c", STRICT), (PASSES, "soak-capped")];
/// A namespace that is deleted and made again.
pub const PASSES: &str = "soak-d";
/// The least that the limits of [`TOP`] and [`SHIFTS`] ever are, in CPUs: all work fits it.
pub const LEAST_TOP: u64 = 9;
/// As [`LEAST_TOP`].
pub const LEAST: u64 = 2;

/// A queue as it is first made.
pub fn spec(queue: &str) -> Value {
    match queue {
        TOP => json!({"limit": {"cpu": "14", "pods": "50"}}),
        "soak-three" => json!({"parent": TOP, "weight": 3}),
        "soak-one" => json!({"parent": TOP, "weight": 1, "guaranteed": {"cpu": "2"}}),
        STRICT => json!({"parent": TOP, "order": "Strict", "limit": {"cpu": "3"}}),
        "soak-capped" => json!({"parent": TOP, "limit": {"cpu": LEAST.to_string()},
            "maxPending": {"pods": 12}}),
        _ => json!({"parent": TOP, "limit": {"cpu": "3"}}),
    }
}

/// A queue and those above it.
pub fn path(queue: &str) -> impl Iterator<Item = &str> {
    [queue, TOP].into_iter().take(if queue == TOP { 1 } else { 2 })
}
