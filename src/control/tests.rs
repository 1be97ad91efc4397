//! What the loop makes of its inputs: actions, outcomes, views.

use std::sync::atomic::AtomicI64;

use super::*;
use crate::engine::action::Notice;
use crate::engine::event::{
    Address, GroupConfig, GroupName, Maker, Name, NodeConfig, ObjectRef, Origin, PodConfig,
    Preemption, QueueConfig, QueueName,
};
use crate::engine::log::{Entry, Next};
use crate::engine::{
    Assignment, ClusterId, Gang, GroupId, NodeId, PodState, QueueId, ResourceId, Uid, Vector,
    WithinQueue,
};
use crate::view::{GroupState, published};

const QUEUE: QueueId = QueueId(7);

/// A loop with both ends in hand and a clock that stands still.
struct Bench {
    inbox: mpsc::Sender<Input>,
    actions: mpsc::Receiver<Action>,
    published: Published,
    cancel: CancellationToken,
    running: tokio::task::JoinHandle<Result<(), ControlError>>,
}

fn address(name: &str, uid: u128) -> Address {
    Address {
        cluster: ClusterId(0),
        namespace: "team".into(),
        name: name.into(),
        uid: format!("{uid:032x}").into(),
    }
}

fn start() -> Bench {
    start_recorded(None)
}

fn start_recorded(log: Option<Box<dyn Log>>) -> Bench {
    let (inbox, inputs) = mpsc::channel(1_000);
    let (writes, actions) = mpsc::channel(1_000);
    let published = published();
    let time = Arc::new(AtomicI64::new(1_000));
    let edges = Edges {
        inbox: inputs,
        actions: writes,
        published: published.clone(),
        heartbeat: Arc::default(),
        clock: Arc::new(move || time.fetch_add(10, Ordering::Relaxed)),
        log,
    };
    let cancel = CancellationToken::new();
    let running = tokio::spawn(run(edges, cancel.clone()));
    Bench { inbox, actions, published, cancel, running }
}

fn group_name(root: ObjectRef, joined: Option<Arc<str>>) -> GroupName {
    GroupName { namespace: "team".into(), joined, root, origin: Arc::default() }
}

impl Bench {
    async fn tell(&self, event: Event) {
        self.inbox.send(Input::Event(event)).await.unwrap();
    }

    async fn name(&self, name: Name) {
        self.inbox.send(Input::Name(name)).await.unwrap();
    }

    async fn lead(&self) {
        self.inbox.send(Input::Lead(ClusterId(0))).await.unwrap();
    }

    async fn queue(&self, limit: i128) {
        let object = Some(("queue-uid".into(), 1));
        self.name(Name::Resource(ResourceId::CPU, "cpu".into())).await;
        self.name(Name::Queue(QUEUE, QueueName { name: "research".into(), object })).await;
        let limit = [(ResourceId::CPU, limit)].into_iter().collect();
        let config = QueueConfig { weight: 1, limit, ..QueueConfig::default() };
        self.tell(Event::QueueChanged(QUEUE, config)).await;
        let allocatable: Vector =
            [(ResourceId::CPU, 8_000), (ResourceId::PODS, 110)].into_iter().collect();
        let node = NodeConfig {
            cluster: ClusterId(0),
            allocatable,
            ready: true,
            schedulable: true,
            ..NodeConfig::default()
        };
        self.tell(Event::NodeChanged(NodeId(1), node)).await;
    }

    async fn warned_group(&self, group: GroupId, root: ObjectRef, warning: &str) {
        self.group(group, root.clone(), None).await;
        let origin = Arc::new(Origin { warnings: vec![warning.into()], ..Origin::default() });
        let name = GroupName { origin, ..group_name(root, None) };
        self.name(Name::Group(group, Arc::new(name))).await;
    }

    async fn group(&self, group: GroupId, root: ObjectRef, joined: Option<Arc<str>>) {
        let name = group_name(root, joined);
        self.name(Name::Group(group, Arc::new(name))).await;
        let config = GroupConfig {
            cluster: ClusterId(0),
            root: Uid(u128::from(group.0)),
            queue: Assignment::Queue(QUEUE),
            gang: Gang::Units,
            singleton: None,
            non_preemptible: false,
            topology: None,
        };
        self.tell(Event::GroupChanged(group, config)).await;
    }

    async fn job(&self, id: u32, created: Millis) {
        let group = GroupId(u64::from(id));
        let root = ObjectRef {
            address: address(&format!("job-{id}"), u128::from(id)),
            api_version: "batch/v1".into(),
            kind: "Job".into(),
        };
        self.group(group, root, None).await;
        self.pod(group, id, created, PodState::Gated).await;
    }

    async fn pod(&self, group: GroupId, id: u32, created: Millis, state: PodState) {
        let pod = Uid(1_000 + u128::from(id));
        let maker = Maker::Owner(format!("owner-{}", group.0).into());
        let address = Arc::new(address(&format!("pod-{id}"), pod.0));
        self.name(Name::Pod(pod, address, maker)).await;
        let cost = [(ResourceId::CPU, 1_000), (ResourceId::PODS, 1)].into_iter().collect();
        let config = PodConfig {
            group,
            cost,
            priority: 0,
            created,
            started: (state != PodState::Gated).then_some(created),
            never_preempts: false,
            state,
        };
        self.tell(Event::PodChanged(pod, config)).await;
    }

    /// Waits for a view that satisfies the condition.
    async fn view(&self, holds: impl Fn(&View) -> bool) -> Arc<View> {
        for _ in 0..1_000 {
            let view = self.published.load_full();
            if holds(&view) {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no such view; the last one is {:#?}", self.published.load());
    }

    /// Waits for an Event of that reason.
    async fn notice(&mut self, reason: &str) -> Notice {
        loop {
            match self.action().await {
                Action::Notice(notice) if notice.reason == reason => break notice,
                _ => {}
            }
        }
    }

    async fn action(&mut self) -> Action {
        tokio::time::timeout(Duration::from_secs(5), self.actions.recv()).await.unwrap().unwrap()
    }
}

/// Takes so many entries and no more.
struct Short(usize);

impl Log for Short {
    fn take(&mut self, _: Entry) -> Next {
        self.0 -= 1;
        if self.0 > 0 { Next::Entry } else { Next::Nothing }
    }

    fn begin(&mut self, _: &mut dyn Iterator<Item = Entry>) -> Next {
        Next::Nothing
    }
}

#[tokio::test]
async fn the_loop_goes_on_without_a_record_when_that_has_ended() {
    let mut bench = start_recorded(Some(Box::new(Short(20))));
    bench.view(|view| view.totals.recording).await;
    bench.queue(1_000).await;
    bench.lead().await;
    bench.view(|view| !view.totals.recording).await;
    bench.job(1, 5_000_000).await;
    while !matches!(bench.action().await, Action::Release(_)) {}
}

#[tokio::test]
async fn what_fits_is_released_and_what_does_not_is_explained() {
    let mut bench = start();
    bench.queue(1_000).await;
    bench.job(1, 5_000_000).await;
    bench.job(2, 6_000_000).await;
    bench.lead().await;
    let mut released = Vec::new();
    let mut notices = Vec::new();
    let mut status = None;
    while status.is_none() || notices.is_empty() {
        match bench.action().await {
            Action::Release(release) => released.push(release),
            Action::Notice(notice) => notices.push((notice.reason, notice.message)),
            Action::QueueStatus(update) => status = Some(*update),
            Action::Evict(evict) => panic!("{evict:?}"),
        }
    }
    let [release] = released.as_slice() else { panic!("{released:?}") };
    assert_eq!(
        (&*release.address.name, &*release.queue, &*release.group),
        ("pod-1", "research", "Job/job-1")
    );
    let waits = "limit of queue \"research\": needs 1 cpu, 1 of 1 in use, 1 missing; starts when queue \"research\" has 1 cpu more";
    assert_eq!(notices, [("Queued", waits.to_owned())]);
    let view = bench.view(|view| view.groups.len() == 2 && view.totals.decided == 1).await;
    let shown: Vec<GroupState> = view.groups.values().map(|group| group.state).collect();
    assert_eq!(shown, [GroupState::Released, GroupState::Waiting]);
    let row = &view.queues["research"];
    assert_eq!((row.pending, row.running), ((1, 1), (1, 1)));
    assert_eq!(row.usage["cpu"], "1");
    let status = status.unwrap();
    assert_eq!((&*status.name, &*status.uid, status.ready), ("research", "queue-uid", Ok(())));
}

#[tokio::test]
async fn an_outcome_comes_back_as_an_event_and_frees_the_room() {
    let mut bench = start();
    bench.queue(1_000).await;
    bench.job(1, 5_000_000).await;
    bench.job(2, 6_000_000).await;
    bench.lead().await;
    let first = loop {
        if let Action::Release(release) = bench.action().await {
            break release;
        }
    };
    bench.tell(Event::Outcome(first.pod, Outcome::Gone)).await;
    let second = loop {
        if let Action::Release(release) = bench.action().await {
            break release;
        }
    };
    assert_eq!(&*second.address.name, "pod-2");
    assert_eq!(second.decision, 2);
}

/// Why each group waits, in one word.
fn waits(view: &View) -> Vec<&'static str> {
    view.groups.values().filter_map(|group| group.wait.as_ref()).map(|wait| wait.why.code).collect()
}

/// A loop that has just asked for the eviction of the only pod of `job-1`.
async fn evicts() -> Bench {
    let mut bench = start();
    bench.queue(1_000).await;
    let config = QueueConfig {
        weight: 1,
        limit: [(ResourceId::CPU, 1_000)].into_iter().collect(),
        preemption: Preemption {
            within_queue: WithinQueue::LowerPriority,
            min_runtime: Some(0),
            ..Preemption::default()
        },
        ..QueueConfig::default()
    };
    bench.tell(Event::QueueChanged(QUEUE, config)).await;
    bench.job(1, 500).await;
    bench.pod(GroupId(1), 1, 500, PodState::Released { held: false }).await;
    bench.job(2, 600).await;
    let cost = [(ResourceId::CPU, 1_000), (ResourceId::PODS, 1)].into_iter().collect();
    let (group, created, state) = (GroupId(2), 600, PodState::Gated);
    let urgent = PodConfig {
        group,
        cost,
        priority: 10,
        created,
        started: None,
        never_preempts: false,
        state,
    };
    bench.tell(Event::PodChanged(Uid(1_002), urgent)).await;
    bench.lead().await;
    loop {
        match bench.action().await {
            Action::Evict(evict) => break assert_eq!(&*evict.address.name, "pod-1"),
            Action::Notice(notice) => assert_ne!(notice.reason, "Preempted"),
            _ => {}
        }
    }
    bench
}

#[tokio::test]
async fn what_is_evicted_is_told_to_whom_it_concerns_when_it_is_on_its_way() {
    let mut bench = evicts().await;
    let view = bench.view(|view| view.leads && waits(view) == ["MakingRoom"]).await;
    assert_eq!(view.queues["research"].running, (1, 1));
    let leaves = PodState::Bound { node: NodeId(1), terminating: true };
    bench.pod(GroupId(1), 1, 500, leaves).await;
    let told = bench.notice("Preempted").await;
    assert_eq!(&*told.about.address.name, "job-1");
    let why = "pod pod-1 evicted: work of higher priority waits in queue \"research\"";
    assert_eq!(told.message, why);
}

#[tokio::test]
async fn an_eviction_that_is_refused_is_told_and_no_longer_waited_for() {
    let mut bench = evicts().await;
    let (pod, until) = (Uid(1_001), 1_000_000);
    let spared = Spared { by_budget: true, why: "no".into(), until };
    bench.inbox.send(Input::Spared(pod, spared)).await.unwrap();
    bench.tell(Event::Outcome(pod, Outcome::NotEvicted { retry_at: until })).await;
    let told = bench.notice("EvictionRefused").await;
    assert_eq!(&*told.about.address.name, "job-1");
    assert_eq!(told.message, "pod pod-1 is to be evicted and was not: no");
    bench.view(|view| waits(view) == ["QueueLimit"]).await;
    // That it goes later is not our doing.
    bench.tell(Event::PodRemoved(pod)).await;
    loop {
        match bench.action().await {
            Action::Release(_) => break,
            Action::Notice(told) => assert_ne!(told.reason, "Preempted"),
            Action::Evict(_) | Action::QueueStatus(_) => {}
        }
    }
}

#[tokio::test]
async fn the_end_of_a_wait_is_told_and_what_never_waited_has_no_event() {
    let mut bench = start();
    bench.queue(1_000).await;
    bench.lead().await;
    bench.job(1, 5_000_000).await;
    bench.job(2, 6_000_000).await;
    let mut told = Vec::new();
    let mut released = Vec::new();
    while told.len() < 2 {
        match bench.action().await {
            Action::Release(release) => released.push(release.pod),
            Action::Notice(notice) => {
                told.push((notice.about.address.name, notice.reason, notice.message));
                for pod in &released {
                    bench.tell(Event::Outcome(*pod, Outcome::Gone)).await;
                }
            }
            Action::QueueStatus(_) | Action::Evict(_) => {}
        }
    }
    let [(_, "Queued", _), (name, "Released", message)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&**name, &**message), ("job-2", "1 pod released by queue \"research\""));
}

#[tokio::test]
async fn a_group_that_the_process_before_told_of_is_not_told_of_again() {
    let mut bench = start();
    bench.queue(2_000).await;
    bench.job(1, 10).await;
    bench.pod(GroupId(1), 11, 10, PodState::Ended).await;
    bench.pod(GroupId(1), 12, 5_000_000, PodState::Gated).await;
    bench.pod(GroupId(1), 13, 5_000_000, PodState::Gated).await;
    bench.lead().await;
    let view = bench.view(|view| view.totals.decided == 2).await;
    assert!(view.groups.values().all(|group| group.wait.is_some()), "one pod has to wait");
    bench.job(2, 5_000_001).await;
    let mut notices = Vec::new();
    while notices.is_empty() {
        if let Action::Notice(notice) = bench.action().await {
            notices.push((notice.about.address.name, notice.reason));
        }
    }
    assert_eq!(notices, [("job-2".into(), "Queued")], "a new group is told of");
}

#[tokio::test]
async fn what_is_ignored_is_told_once_and_counts_among_the_three() {
    let mut bench = start();
    bench.queue(0).await;
    let root = ObjectRef {
        address: address("typo", 1),
        api_version: "batch/v1".into(),
        kind: "Job".into(),
    };
    bench.warned_group(GroupId(1), root, "annotation x is ignored").await;
    bench.pod(GroupId(1), 1, 5_000_000, PodState::Gated).await;
    bench.lead().await;
    let mut notices = Vec::new();
    while notices.len() < 2 {
        if let Action::Notice(notice) = bench.action().await {
            notices.push((notice.reason, notice.warning, notice.message));
        }
    }
    let told = ("Misconfigured", true, "annotation x is ignored".to_owned());
    assert_eq!(notices.iter().filter(|notice| **notice == told).count(), 1, "{notices:?}");
    assert_eq!(notices[1].0, "LargerThanQueue");
}

#[tokio::test]
async fn a_follower_gives_reasons_and_asks_for_nothing_until_it_leads() {
    let mut bench = start();
    bench.queue(1_000).await;
    bench.job(1, 10).await;
    bench.job(2, 20).await;
    bench.tell(Event::Synced(ClusterId(0))).await;
    let view = bench.view(|view| view.synced && waits(view).len() == 2).await;
    assert_eq!((waits(&view), view.leads), (vec!["NextInLine", "QueueLimit"], false));
    assert_eq!((view.totals.decided, view.queues["research"].usage.len()), (0, 0));
    assert!(bench.actions.try_recv().is_err());

    bench.lead().await;
    let mut told = Vec::new();
    let mut released = Vec::new();
    let mut statuses = 0;
    while statuses == 0 {
        match bench.action().await {
            Action::Release(release) => released.push(release.address.name),
            Action::Notice(notice) => told.push((notice.about.address.name, notice.reason)),
            Action::QueueStatus(_) => statuses += 1,
            Action::Evict(evict) => panic!("{evict:?}"),
        }
    }
    assert_eq!(released, ["pod-1".into()]);
    assert_eq!(told, [("job-1".into(), "Released")], "that they wait was told before");
    let view = bench.view(|view| view.leads && view.totals.decided == 1).await;
    assert_eq!(waits(&view), ["QueueLimit"]);
}

#[tokio::test]
async fn what_an_earlier_leader_lets_go_at_its_last_moment_is_charged_and_counted() {
    let mut bench = start();
    bench.queue(1_000).await;
    bench.lead().await;
    bench
        .tell(Event::QueueChanged(QUEUE, QueueConfig { hold: true, ..QueueConfig::default() }))
        .await;
    bench.job(1, 10).await;
    bench.view(|view| view.leads && view.groups.len() == 1).await;
    bench.pod(GroupId(1), 1, 10, PodState::Released { held: false }).await;
    let view = bench.view(|view| view.totals.opened_by_others == 1).await;
    assert_eq!(view.queues["research"].usage["cpu"], "1");
    bench.pod(GroupId(1), 1, 10, PodState::Ended).await;
    let view = bench.view(|view| !view.queues["research"].usage.contains_key("cpu")).await;
    assert_eq!(view.totals.opened_by_others, 1);
    while let Ok(action) = bench.actions.try_recv() {
        assert!(!matches!(action, Action::Release(_)), "{action:?}");
    }
}

#[tokio::test]
async fn the_loop_ends_when_asked() {
    let bench = start();
    bench.cancel.cancel();
    assert!(bench.running.await.unwrap().is_ok());
}

#[tokio::test]
async fn the_loop_ends_when_its_writer_is_gone() {
    let mut bench = start();
    bench.actions.close();
    bench.queue(1_000).await;
    bench.job(1, 5).await;
    bench.lead().await;
    let ended = bench.running.await.unwrap();
    assert!(matches!(ended, Err(ControlError::WriterGone)), "{ended:?}");
}

#[tokio::test]
async fn groups_of_one_root_and_of_a_root_without_namespace_each_have_a_row() {
    let bench = start();
    bench.queue(0).await;
    let fleet = ObjectRef {
        address: Address { namespace: "".into(), ..address("fleet", 9) },
        api_version: "x/v1".into(),
        kind: "Fleet".into(),
    };
    let cost: Vector = [(ResourceId::CPU, 1_000)].into_iter().collect();
    for (id, joined) in (1..).zip([None, Some("A b"), Some("a-b")]) {
        bench.group(GroupId(id), fleet.clone(), joined.map(Arc::from)).await;
        let state = PodState::Gated;
        let config = PodConfig {
            group: GroupId(id),
            cost: cost.clone(),
            priority: 0,
            created: 1,
            started: None,
            never_preempts: false,
            state,
        };
        bench.tell(Event::PodChanged(Uid(u128::from(id)), config)).await;
    }
    let view = bench.view(|view| view.groups.len() == 3).await;
    let names: Vec<String> =
        view.groups.keys().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
    insta::assert_snapshot!(names.join(" "), @"team/fleet-fleet-00000000 team/group-a-b-2a89df63 team/group-a-b-746d5912");
}
