//! A small view for the tests of this room and of those who read its answers.

use std::sync::Arc;

use crate::engine::ClusterId;
use crate::engine::event::{Address, GroupName, ObjectRef, Origin};
use crate::view::{Amounts, Counts, GroupRow, GroupState, PodRow, QueueRow, View, Wait, Why};

/// 2026-11-30T19:43:54Z.
pub const NOW: i64 = 1_796_067_834_000;

pub fn amounts(pairs: &[(&str, &str)]) -> Amounts {
    pairs.iter().map(|&(resource, amount)| (Arc::from(resource), amount.to_owned())).collect()
}

/// A `RayJob` whose `RayCluster` has a running head and three waiting workers.
pub fn row(name: &str) -> GroupRow {
    let pod = |suffix: &str, state| PodRow {
        name: format!("{name}-{suffix}").into(),
        state,
        created: NOW - 90_000,
        hindrance: None,
    };
    GroupRow {
        name: format!("rayjob-{name}-1f2e").into(),
        who: Arc::new(who(name)),
        queue: Some("a".into()),
        state: GroupState::Growing,
        wait: Some(Wait {
            why: Arc::new(Why {
                code: "QueueLimit",
                message: "queue a may use 8 cpu, 7 are in use and 2 are asked: 1 is missing".into(),
                remedy: Some("raise the limit of queue a or wait".into()),
                needs_action: false,
                settled: true,
            }),
            groups_ahead: 2,
            pods_ahead: 5,
        }),
        held: None,
        spared: None,
        min_count: 4,
        priority: 10,
        asks: Arc::new(amounts(&[("cpu", "2"), ("memory", "4Gi")])),
        charged: Arc::new(amounts(&[("cpu", "2"), ("pods", "1")])),
        since: NOW - 90_000,
        begun: NOW - 90_000,
        pods: vec![pod("head", "Running"), pod("worker-0", "Waiting")],
        counts: Counts { waiting: 3, released: 0, running: 1, ended: 0 },
    }
}

fn who(name: &str) -> GroupName {
    GroupName {
        namespace: "ml".into(),
        joined: None,
        root: ObjectRef {
            address: Address {
                cluster: ClusterId::default(),
                namespace: "ml".into(),
                name: name.into(),
                uid: "0b7f2a3c-1f2e-4c9d-9d3e-5a6b7c8d9e0f".into(),
            },
            api_version: "ray.io/v1".into(),
            kind: "RayJob".into(),
        },
        origin: Arc::new(Origin {
            chains: vec![vec![
                format!("RayJob/{name}").into(),
                format!("RayCluster/{name}-abcde").into(),
            ]],
            evidence: vec!["queue: label tidegate.dev/queue on RayJob/train".into()],
            ..Origin::default()
        }),
    }
}

fn queue(name: &str, parent: Option<&str>) -> QueueRow {
    QueueRow {
        name: name.into(),
        exists: true,
        parent: parent.map(Arc::from),
        weight: 3,
        limit: amounts(&[("cpu", "8")]),
        usage: amounts(&[("cpu", "7")]),
        share_per_mille: 437,
        pending: (3, 8),
        running: (1, 7),
        oldest: Some(NOW - 90_000),
        max_pending: (name == "a").then_some(8),
        full: name == "a",
        ..QueueRow::default()
    }
}

/// Queues `a` under `org`; groups `x`, `y` in namespace `ml` and `z` in `web`.
pub fn view() -> View {
    let mut view = View {
        revision: 42,
        time: NOW,
        synced: true,
        capacity: amounts(&[("cpu", "16"), ("memory", "64Gi")]),
        ..View::default()
    };
    for queue in [queue("a", Some("org")), queue("org", None)] {
        view.queues.insert(queue.name.clone(), queue);
    }
    for (namespace, name) in [("ml", "x"), ("ml", "y"), ("web", "z")] {
        let row = row(name);
        view.groups.insert((namespace.into(), row.name.clone()), Arc::new(row));
    }
    view
}

/// Holds a committed file, named from the top of the repository, to what is generated
/// now. `TIDEGATE_BLESS=1` rewrites it instead.
pub fn assert_current(path: &str, generated: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, generated).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == generated, "{path} is stale: set TIDEGATE_BLESS=1 and run this again");
}
