//! What people read: one sentence for each reason, rows that add up.

use std::fmt::Write as _;

use rstest::rstest;

use super::*;
use crate::engine::event::{
    Address, Event, GroupConfig, GroupName, Maker, Name, NodeConfig, ObjectRef, Pause, PodConfig,
    QueueConfig, QueueName, Spared, Trouble,
};
use crate::engine::{
    Assignment, Cause, ClusterId, Engine, Eviction, Forbidden, Gang, GroupId, NodeId, PodState,
    QueueId, Reason, ResourceId, Shortage, Uid, Vector,
};

const QUEUE: QueueId = QueueId(1);

fn names() -> Names {
    let mut names = Names::default();
    names.learn(Name::Resource(ResourceId::CPU, "cpu".into()));
    names.learn(Name::Resource(ResourceId::PODS, "pods".into()));
    names.learn(Name::Queue(QUEUE, QueueName { name: "research".into(), object: None }));
    names
}

#[test]
fn every_reason_is_a_sentence_with_its_numbers_and_says_what_would_end_it() {
    let names = names();
    let shortage = Shortage { resource: ResourceId::CPU, need: 1_500, used: 3_000, most: 4_000 };
    let reasons = [
        Reason::ClusterNotSynced,
        Reason::ResolvingOwners,
        Reason::NoQueue,
        Reason::UnknownQueue(QUEUE),
        Reason::QueueForbidden(QUEUE, Forbidden::Namespace),
        Reason::QueueForbidden(QUEUE, Forbidden::PriorityClass),
        Reason::QueueInvalid(QUEUE),
        Reason::QueueStopped(QUEUE),
        Reason::WaitingForMembers { have: 2, need: 3 },
        Reason::Settling { until: 5_000 },
        Reason::LargerThanQueue(Shortage { used: 0, need: 4_500, ..shortage }, QUEUE),
        Reason::LargerThanAnyNode(Shortage { used: 0, need: 4_500, ..shortage }),
        Reason::QueueLimit(shortage, QUEUE),
        Reason::Capacity(shortage),
        Reason::NoNode { placed: 0, pods: 1 },
        Reason::NoNode { placed: 5, pods: 8 },
        Reason::RoomReserved(shortage, QUEUE),
        Reason::NoUsableNode(0),
        Reason::NoUsableNode(3),
        Reason::BehindInStrictQueue(QUEUE),
        Reason::ReleaseRefused { retry_at: 7_000 },
        Reason::ReleasesPaused(Pause { since: 1_500, cause: Trouble::Overloaded }),
        Reason::ReleasesPaused(Pause { since: 1_500, cause: Trouble::StoreFull }),
        Reason::NextRound,
    ];
    let mut text = String::new();
    for reason in &reasons {
        let said = names.sentence(reason, 2_000);
        let remedy = names.remedy(reason).unwrap_or_else(|| "-".to_owned());
        writeln!(text, "{}: {said} | {remedy}", reason.code()).unwrap();
    }
    insta::assert_snapshot!(text, @r#"
    ClusterNotSynced: the controller is still reading the cluster | -
    ResolvingOwners: its owners are being looked up | -
    NoQueue: neither its root object nor its namespace names a queue | put the label tidegate.dev/queue on the root object, or on the namespace as its default
    UnknownQueue: queue "research" does not exist | create queue "research" or name another one
    NamespaceNotAllowed: queue "research" may not be used from this namespace (spec.namespaces) | name a queue that is open to it, or ask whoever owns the queue
    PriorityClassNotAllowed: queue "research" does not list its priority class (spec.priorityClasses) | name a queue that is open to it, or ask whoever owns the queue
    QueueInvalid: queue "research" has an unknown parent, is in a cycle of parents or has something in it that cannot be read | see the conditions of queue "research" and of those above it
    QueueStopped: queue "research" is stopped (spec.stop) | -
    WaitingForMembers: 2 of the 3 pods that must start together have arrived | starts when its other pods are created; tidegate.dev/min-count says how many
    Settling: all its pods must start together and some may still arrive | -
    LargerThanQueue: larger than queue "research": needs 4500m cpu, the most is 4000m | ask less, or raise the limit of queue "research" by 500m cpu
    LargerThanAnyNode: larger than any node: needs 4500m cpu, the most is 4000m | ask less, or add a node with 500m cpu more than the largest
    QueueLimit: limit of queue "research": needs 1500m cpu, 3000m of 4000m in use, 500m missing | starts when queue "research" has 500m cpu more
    Capacity: the cluster is full: needs 1500m cpu, 3000m of 4000m in use, 500m missing | starts when 500m cpu more become free
    NoNode: enough is free in all, but no node that it may run on has room for it | starts when more is free on one node, or in one domain of its topology
    NoNode: enough is free in all, but nodes have room for only 5 of the 8 pods that must start together | starts when more is free on one node, or in one domain of its topology
    RoomReserved: what is free is reserved for work of queue "research" that has waited for long: needs 1500m cpu, 3000m of 4000m in use, 500m missing | starts when that of queue "research" has, or 500m cpu more become free
    NoUsableNode: the cluster has no nodes | starts when a node is ready and not cordoned: kubectl get nodes
    NoUsableNode: no node is ready and schedulable: nodes not ready or cordoned: 3 | starts when a node is ready and not cordoned: kubectl get nodes
    BehindInStrictQueue: queue "research" is strict and others are first | -
    ReleaseRefused: its release was refused by the apiserver or another admission plugin; tried again in 5 s | -
    ReleasesPaused: releases are paused since 1970-01-01T00:00:01Z: the apiserver is overloaded and asks for less | goes on by itself when the apiserver is well
    ReleasesPaused: releases are paused since 1970-01-01T00:00:01Z: the apiserver's store (etcd) is full and takes no writes | free space in etcd: compact, defragment, disarm the alarm
    NextRound: about to be decided | -
    "#);
}

fn object(kind: &str, name: &str, uid: &str) -> ObjectRef {
    let address = Address {
        cluster: ClusterId(0),
        namespace: "team".into(),
        name: name.into(),
        uid: uid.into(),
    };
    ObjectRef { address, api_version: "batch/v1".into(), kind: kind.into() }
}

/// Two pods of one job: one has its turn, one waits.
fn world() -> (Engine, Names) {
    let (mut engine, mut names) = (Engine::default(), names());
    let cpu = |units| [(ResourceId::CPU, units)].into_iter().collect();
    let queue = QueueConfig { weight: 1, limit: cpu(1_000), ..QueueConfig::default() };
    let allocatable = [(ResourceId::CPU, 4_000), (ResourceId::PODS, 10)].into_iter().collect();
    let node = NodeConfig {
        cluster: ClusterId(0),
        allocatable,
        ready: true,
        schedulable: true,
        ..NodeConfig::default()
    };
    let group = GroupConfig {
        cluster: ClusterId(0),
        root: Uid(1),
        queue: Assignment::Queue(QUEUE),
        gang: Gang::Units,
        singleton: None,
        non_preemptible: false,
        topology: None,
    };
    let mut events = vec![
        Event::QueueChanged(QUEUE, queue),
        Event::NodeChanged(NodeId(1), node),
        Event::GroupChanged(GroupId(1), group),
        Event::Synced(ClusterId(0)),
    ];
    for (id, created) in [(10, 5_000), (11, 6_000)] {
        let cost = [(ResourceId::CPU, 1_000), (ResourceId::PODS, 1)].into_iter().collect();
        let pod = PodConfig {
            group: GroupId(1),
            cost,
            priority: 7,
            created,
            started: None,
            never_preempts: false,
            state: PodState::Gated,
        };
        events.push(Event::PodChanged(Uid(id), pod));
        let address = object("Pod", &format!("pod-{id}"), "u").address;
        names.learn(Name::Pod(Uid(id), Arc::new(address), Maker::Namespace));
    }
    for event in events {
        engine.apply(9_000, event);
    }
    let root = object("Job", "train", "0A1B-2C3D4E5F");
    names.learn(Name::Group(GroupId(1), named(root)));
    engine.decide(10);
    (engine, names)
}

fn named(root: ObjectRef) -> Arc<GroupName> {
    Arc::new(GroupName { namespace: "team".into(), joined: None, root, origin: Arc::default() })
}

#[test]
fn a_group_that_is_partly_let_go_says_so_and_its_queue_counts_both_parts() {
    let (engine, names) = world();
    let view = View::of(&engine, &names, 9_000, Totals::default());
    let row = &view.groups[&("team".into(), "job-train-0a1b2c3d".into())];
    assert_eq!(row.state, GroupState::PartlyReleased);
    assert_eq!((row.counts.waiting, row.counts.released, row.since), (1, 1, 6_000));
    let pods: Vec<_> = row.pods.iter().map(|pod| (&*pod.name, pod.state)).collect();
    assert_eq!(pods, [("pod-11", "Waiting"), ("pod-10", "Released")]);
    assert_eq!(row.charged["cpu"], "1");
    let queue = &view.queues["research"];
    assert_eq!((queue.pending, queue.running, queue.oldest), ((1, 1), (1, 1), Some(6_000)));
    assert_eq!((queue.usage["cpu"].as_str(), queue.share_per_mille), ("1", 250));
}

#[rstest]
#[case::of_its_queue(None, Some(4), true)]
#[case::of_one_above(Some(4), None, true)]
#[case::just_enough(Some(5), Some(5), false)]
#[case::any_amount(None, None, false)]
fn a_gang_that_is_larger_than_a_backlog_on_its_path_is_told_that_it_never_gets_whole(
    #[case] above: Option<u64>,
    #[case] own: Option<u64>,
    #[case] told: bool,
) {
    let (mut engine, mut names) = world();
    let top = QueueId(7);
    names.learn(Name::Queue(top, QueueName { name: "research".into(), object: None }));
    let queue = |parent, max_pending| {
        let config = QueueConfig { weight: 1, parent, max_pending, ..QueueConfig::default() };
        Event::QueueChanged(parent.map_or(top, |_| QUEUE), config)
    };
    let group = GroupConfig {
        cluster: ClusterId(0),
        root: Uid(2),
        queue: Assignment::Queue(QUEUE),
        gang: Gang::AtLeast(5),
        singleton: None,
        non_preemptible: false,
        topology: None,
    };
    let (group, state) = (Event::GroupChanged(GroupId(2), group), PodState::Gated);
    let cost = [(ResourceId::PODS, 1)].into_iter().collect();
    let pod = PodConfig {
        group: GroupId(2),
        cost,
        priority: 0,
        created: 7_000,
        started: None,
        never_preempts: false,
        state,
    };
    let pod = Event::PodChanged(Uid(20), pod);
    for event in [queue(None, above), queue(Some(top), own), group, pod] {
        engine.apply(9_000, event);
    }
    names.learn(Name::Group(GroupId(2), named(object("Job", "gang", "0A1B-2C3D4E5F"))));
    engine.decide(10);
    let view = View::of(&engine, &names, 9_000, Totals::default());
    let row = &view.groups[&("team".into(), "job-gang-0a1b2c3d".into())];
    let why = row.wait.clone().unwrap().why;
    assert_eq!(why.code, "WaitingForMembers");
    assert_eq!(why.needs_action, told);
    if told {
        let said = "1 of the 5 pods that must start together have arrived, and they never all do: \
                    queue \"research\" lets only 4 wait";
        assert_eq!(why.message, said);
        let remedy = "raise spec.maxPending.pods of queue \"research\" to 5 or more";
        assert_eq!(why.remedy.as_deref(), Some(remedy));
    }
}

#[test]
fn what_holds_a_pod_that_was_let_go_is_told_gates_of_others_first() {
    let (mut engine, mut names) = world();
    let held = |engine: &Engine, names: &Names| {
        let view = View::of(engine, names, 9_000, Totals::default());
        let row = view.groups.values().next().unwrap().clone();
        row.held.as_ref().map(|held| format!("{}: {}", held.code, held.message))
    };
    let silence = "Scheduling: pod pod-10: no scheduler has said anything of it yet";
    assert_eq!(held(&engine, &names).as_deref(), Some(silence));
    names.learn(Name::Hindrance(Uid(10), Some("0/3 nodes are available".into())));
    let said = "Unschedulable: pod pod-10: 0/3 nodes are available";
    assert_eq!(held(&engine, &names).as_deref(), Some(said));
    let cost: Vector = [(ResourceId::PODS, 1)].into_iter().collect();
    let state = PodState::Released { held: true };
    let pod = PodConfig {
        group: GroupId(1),
        cost,
        priority: 7,
        created: 6_000,
        started: None,
        never_preempts: false,
        state,
    };
    engine.apply(9_000, Event::PodChanged(Uid(11), pod));
    names.learn(Name::Hindrance(Uid(11), Some("held by example.com/a".into())));
    let gated = "OtherGate: pod pod-11 (and 1 more without a node): held by example.com/a";
    assert_eq!(held(&engine, &names).as_deref(), Some(gated));
    names.learn(Name::Hindrance(Uid(10), None));
    names.forget_pod(Uid(11));
    assert_eq!((names.hindrance(Uid(10)), names.hindrance(Uid(11))), (None, None));
}

#[test]
fn a_queue_says_that_releases_are_paused_only_while_work_of_it_waits_for_that() {
    let (mut engine, names) = world();
    let pause = Pause { since: 0, cause: Trouble::Slow };
    engine.apply(0, Event::Paused(ClusterId(0), pause));
    let paused =
        |engine: &Engine| View::of(engine, &names, 0, Totals::default()).queues["research"].paused;
    assert_eq!(paused(&engine).map(|(code, _)| code), Some("ApiserverSlow"));
    let view = View::of(&engine, &names, 0, Totals::default());
    let row = view.groups.values().next().unwrap();
    assert_eq!(row.wait.as_ref().map(|wait| wait.why.code), Some("ReleasesPaused"));
    assert!(row.held.is_none(), "that a scheduler is silent is not known: {:?}", row.held);
    for pod in [10, 11] {
        engine.apply(0, Event::PodRemoved(Uid(pod)));
    }
    assert_eq!(paused(&engine), None);
}

/// Of a hundred thousand groups that wait for the same, the sentence and the amounts are
/// in memory once.
#[test]
fn what_groups_that_wait_for_the_same_are_told_is_kept_once() {
    let (mut engine, mut names) = world();
    let config = GroupConfig {
        cluster: ClusterId(0),
        root: Uid(2),
        queue: Assignment::Queue(QUEUE),
        gang: Gang::Units,
        singleton: None,
        non_preemptible: false,
        topology: None,
    };
    let cost: Vector = [(ResourceId::CPU, 1_000), (ResourceId::PODS, 1)].into_iter().collect();
    engine.apply(9_000, Event::GroupChanged(GroupId(2), config));
    let pod = |created, state| PodConfig {
        group: GroupId(2),
        cost: cost.clone(),
        priority: 7,
        created,
        started: None,
        never_preempts: false,
        state,
    };
    engine.apply(9_000, Event::PodChanged(Uid(20), pod(7_000, PodState::Gated)));
    names.learn(Name::Group(GroupId(2), named(object("Job", "other", "0A1B-2C3D4E5F"))));
    engine.decide(10);
    let view = View::of(&engine, &names, 9_000, Totals::default());
    let rows: Vec<_> = view.groups.values().collect();
    let [one, two] = rows[..] else { panic!("{rows:?}") };
    let (first, second) = (one.wait.as_ref().unwrap(), two.wait.as_ref().unwrap());
    assert_eq!((first.why.code, first.groups_ahead, second.groups_ahead), ("QueueLimit", 1, 0));
    assert!(Arc::ptr_eq(&first.why, &second.why) && Arc::ptr_eq(&one.asks, &two.asks));
}

#[rstest]
#[case::of_a_budget(true, "; evictions for it refused by a PodDisruptionBudget: 1")]
#[case::of_others(false, "; evictions for it refused: 1")]
fn a_refused_eviction_is_told_to_both_until_it_may_be_tried_again(
    #[case] by_budget: bool,
    #[case] counted: &str,
) {
    let (engine, mut names) = world();
    let cause = Cause::Claim { by: GroupId(1), queue: QUEUE };
    names.evicting(Eviction { pod: Uid(10), group: GroupId(1), queue: QUEUE, cause });
    names.spared(Uid(10), Spared { by_budget, why: "team/web says no".into(), until: 9_500 });
    let told = |names: &Names, now| {
        let view = View::of(&engine, names, now, Totals::default());
        let row = view.groups.values().next().unwrap().clone();
        let said = row.wait.as_ref().unwrap().why.message.clone();
        (said, row.spared.as_ref().map(|spared| spared.message.clone()))
    };
    let (said, spared) = told(&names, 9_000);
    assert!(said.ends_with(counted), "{said}");
    assert_eq!(spared.as_deref(), Some("pod pod-10: team/web says no"));
    let (said, spared) = told(&names, 9_500);
    assert!(!said.contains("refused") && spared.is_none(), "{said}");
    names.forget_pod(Uid(10));
    assert_eq!(told(&names, 9_000).1, None);
}

#[test]
fn a_refusal_is_part_of_the_sentence_until_the_group_is_gone() {
    let (_, mut names) = world();
    let reason = Reason::ReleaseRefused { retry_at: 5_000 };
    names.refused(GroupId(1), "policy says no".into());
    assert!(names.wait(GroupId(1), &reason, 0).ends_with("policy says no"));
    names.learn(Name::GroupGone(GroupId(1)));
    assert!(!names.wait(GroupId(1), &reason, 0).contains("policy"));
}

#[test]
fn a_groups_name_is_a_valid_object_name_however_long_its_root_is_called() {
    let (engine, mut names) = world();
    let root = object("Job", &"x".repeat(253), "0A1B-2C3D4E5F");
    names.learn(Name::Group(GroupId(1), named(root)));
    let view = View::of(&engine, &names, 0, Totals::default());
    let (_, name) = view.groups.keys().next().unwrap();
    assert!(name.len() <= 253 && name.ends_with("-0a1b2c3d"), "{name}");
}
