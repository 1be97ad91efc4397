//! Actions, and an apiserver that records and answers.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use crate::engine::action::{Action, Evict, QueueStatus, Release, Terms};
use crate::engine::event::{Address, Event, Input, Outcome, Spared};
use crate::engine::{ClusterId, Millis, PodId, Uid};
use crate::release::{Backoff, Clients, Counters, Counts, ReleaseError, Settings, Writer};

/// The time of all tests.
pub const NOON: Millis = 1_796_040_000_000;
/// Longest that a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn release(pod: u128) -> Release {
    Release {
        pod: Uid(pod),
        address: Address {
            cluster: ClusterId(0),
            namespace: "team-a".into(),
            name: format!("pod-{pod}").into(),
            uid: format!("uid-{pod}").into(),
        },
        queue: "q".into(),
        group: "Job/j".into(),
        root: "root-uid".into(),
        size: 2,
        terms: Box::new(Terms { min_count: Some(2), preemptible: true, ..Terms::default() }),
        time: NOON + 123,
        decision: 5,
        place: None,
    }
}

pub fn evict(pod: u128) -> Evict {
    Evict { pod: Uid(pod), address: release(pod).address, ends_slowly: false }
}

pub fn queue_status(name: &str, running: u64) -> QueueStatus {
    QueueStatus {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        generation: 4,
        pending: (1, 2),
        running: (running, running),
        past: None,
        usage: BTreeMap::new(),
        entitlement: BTreeMap::new(),
        share: 0,
        oldest: None,
        ready: Ok(()),
        releasing: Ok(()),
        over_limit: None,
        beyond_capacity: None,
        max_pending: None,
        full: None,
        urgent: false,
    }
}

/// Real figures but for waits, which are as short as a clock that stands still needs.
pub fn settings() -> Settings {
    Settings {
        tries: 3,
        timeout: Duration::from_millis(50),
        retry: Backoff { first: Duration::ZERO, most: Duration::ZERO },
        eviction: Backoff { first: Duration::ZERO, most: Duration::ZERO },
        status_every: Duration::ZERO,
        ..Settings::new(7)
    }
}

/// One request as the apiserver saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub query: String,
    pub content_type: String,
    pub body: Value,
}

/// How the apiserver answers.
#[derive(Clone)]
pub enum Reply {
    Answer(u16, String),
    /// The connection breaks.
    Cut,
    /// Nothing ever comes.
    Never,
    /// Success once so many requests are there.
    Together(Arc<Barrier>),
    /// Success once told.
    After(Arc<Notify>),
}

impl Reply {
    pub fn ok() -> Self {
        Self::json(&json!({"kind": "Event", "metadata": {"name": "e"}, "regarding": {}}))
    }

    pub fn json(body: &Value) -> Self {
        Self::Answer(200, body.to_string())
    }

    pub fn text(code: u16, body: &str) -> Self {
        Self::Answer(code, body.to_owned())
    }

    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({"kind": "Status", "code": code, "reason": reason, "message": message});
        Self::Answer(code, body.to_string())
    }
}

type Answer = Box<dyn Fn(&Seen) -> Reply + Send + Sync>;

/// A fake apiserver.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    answer: Answer,
    seen: Mutex<Vec<Seen>>,
    number: watch::Sender<usize>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Api {
    pub fn new(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            answer: Box::new(answer),
            seen: Mutex::default(),
            number: watch::Sender::new(0),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        }))
    }

    pub fn client(&self) -> Client {
        let api = self.clone();
        let service = service_fn(move |request| api.clone().handle(request));
        Client::new(service, "default")
    }

    async fn handle(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        let header = parts.headers.get("content-type");
        let seen = Seen {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            content_type: header.map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        let reply = (self.0.answer)(&seen);
        self.0.seen.lock().unwrap().push(seen);
        let now = self.0.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(now, Ordering::SeqCst);
        self.0.number.send_modify(|number| *number += 1);
        let response = play(reply).await;
        self.0.now.fetch_sub(1, Ordering::SeqCst);
        response
    }

    /// Waits until so many requests have come.
    pub async fn requests(&self, number: usize) {
        let mut seen = self.0.number.subscribe();
        patient(seen.wait_for(|seen| *seen >= number)).await.unwrap();
    }

    pub fn most_at_once(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }
}

async fn play(reply: Reply) -> Result<Response<Body>, BoxError> {
    let (code, body) = match reply {
        Reply::Answer(code, body) => (code, body),
        Reply::Cut => return Err("connection reset".into()),
        Reply::Never => std::future::pending().await,
        Reply::Together(barrier) => {
            barrier.wait().await;
            (200, "{}".to_owned())
        }
        Reply::After(notify) => {
            notify.notified().await;
            (200, "{}".to_owned())
        }
    };
    Ok(Response::builder().status(code).body(Body::from(body.into_bytes()))?)
}

async fn patient<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it never happened")
}

/// A running writer and its surroundings.
pub struct Started {
    pub api: Api,
    pub counters: Arc<Counters>,
    pub refusals: Vec<String>,
    /// That releases stopped and went on.
    pub pauses: Vec<Event>,
    actions: Option<mpsc::Sender<Action>>,
    inbox: Option<mpsc::Receiver<Input>>,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), ReleaseError>>>,
}

impl Started {
    pub fn with(api: Api) -> Self {
        Self::with_inbox(api, settings(), 64)
    }

    pub fn with_inbox(api: Api, settings: Settings, inbox: usize) -> Self {
        let (actions, taken) = mpsc::channel(16);
        let (outcomes, inbox) = mpsc::channel(inbox);
        let clients = Clients { hub: api.client(), members: [(ClusterId(0), api.client())].into() };
        let writer = Writer::new(clients, settings, outcomes, Arc::new(|| NOON));
        let (counters, stop) = (writer.counters(), CancellationToken::new());
        let task = tokio::spawn(writer.run(taken, stop.clone()));
        Self {
            api,
            counters,
            refusals: Vec::new(),
            pauses: Vec::new(),
            actions: Some(actions),
            inbox: Some(inbox),
            stop,
            task: Some(task),
        }
    }

    pub async fn send(&mut self, action: Action) {
        let actions = self.actions.as_ref().expect("actions are open");
        patient(actions.send(action)).await.expect("the writer runs");
    }

    /// Sends while outcomes are read, one for each action.
    pub async fn exchange(&mut self, actions: Vec<Action>) -> Vec<(PodId, Outcome)> {
        let (sender, count) = (self.actions.clone().expect("actions are open"), actions.len());
        let send = async {
            for action in actions {
                sender.send(action).await.expect("the writer runs");
            }
        };
        let take = async {
            let mut outcomes = Vec::new();
            while outcomes.len() < count {
                outcomes.push(self.outcome().await);
            }
            outcomes
        };
        tokio::join!(send, take).1
    }

    pub async fn outcome(&mut self) -> (PodId, Outcome) {
        let inbox = self.inbox.as_mut().expect("the inbox is open");
        loop {
            match patient(inbox.recv()).await {
                Some(Input::Event(Event::Outcome(pod, outcome))) => return (pod, outcome),
                Some(Input::Event(event @ (Event::Paused(..) | Event::Resumed(_)))) => {
                    self.pauses.push(event);
                }
                Some(Input::Refusal(_, why) | Input::Spared(_, Spared { why, .. })) => {
                    self.refusals.push(why.to_string());
                }
                other => panic!("not an outcome: {other:?}"),
            }
        }
    }

    pub fn close_actions(&mut self) {
        self.actions = None;
    }

    pub fn close_inbox(&mut self) {
        self.inbox = None;
    }

    pub fn cancel(&self) {
        self.stop.cancel();
    }

    pub async fn end(&mut self) -> Result<(), ReleaseError> {
        patient(self.task.take().expect("it runs")).await.expect("it does not panic")
    }

    /// Stops in good order: all that was asked for, and what was counted.
    pub async fn stop(mut self) -> (Vec<Seen>, Counts) {
        self.cancel();
        assert_eq!(self.end().await, Ok(()));
        let seen = self.api.0.seen.lock().unwrap().clone();
        (seen, self.counters.read())
    }
}
