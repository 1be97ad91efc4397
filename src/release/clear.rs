//! Opens every gate of a cluster for good, when Tidegate goes.
//!
//! Nothing is decided and nothing remembered: it looks at what waits and opens it, again
//! and again until nothing waits. Whoever is ended half-way is simply run again. The order
//! is priority, age, uid over all queues.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};

use super::error::ReleaseError;
use super::ungate::open_undecided;
use crate::api::names::GATE;
use crate::engine::ClusterId;
use crate::engine::event::Address;

/// Pods of one answer.
const PAGE: u32 = 500;
/// So many looks in a row must find nothing: a pod may be gated by an apiserver that has not
/// yet seen that gating has ended.
const QUIET: u32 = 2;
/// Progress is told no more often.
const TELL: Duration = Duration::from_secs(1);
/// A pod that waits has this phase and no node.
const WAITING: &str = "status.phase=Pending,spec.nodeName=";

/// How to go about it.
#[derive(Clone, Copy, Debug)]
pub struct Clearing {
    /// Patches in flight at once, at most; at least one.
    pub in_flight: usize,
    /// Longest wait for the answer to one PATCH.
    pub timeout: Duration,
    /// Between two looks when nothing waits or nothing could be done.
    pub look: Duration,
    /// Give up when nothing could be opened for so long.
    pub patience: Duration,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Gates opened so far.
    pub opened: usize,
    /// Pods that still wait, as far as is known.
    pub waiting: usize,
}

/// How it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Gates opened.
    pub opened: usize,
    /// `NAMESPACE/NAME` of pods that still wait, and why. Empty when all is done.
    pub stuck: Vec<(String, ReleaseError)>,
}

/// Opens the gates of all pods until none waits or nothing can be done any more.
///
/// # Errors
/// Pods could not be listed for as long as the patience lasts. Run it again.
pub async fn clear(
    client: &Client,
    how: &Clearing,
    mut tell: impl FnMut(Progress),
) -> Result<Cleared, ReleaseError> {
    let (mut done, mut quiet, mut moved) = (Cleared::default(), 0, Instant::now());
    let mut in_flight = how.in_flight.max(1);
    loop {
        let pass = pass(client, how, in_flight, done.opened, &mut tell).await;
        let impatient = moved.elapsed() >= how.patience;
        match pass {
            Ok(pass) => {
                quiet = if pass.found == 0 { quiet + 1 } else { 0 };
                done = Cleared { opened: done.opened + pass.opened, stuck: pass.stuck };
                if quiet >= QUIET || (impatient && pass.opened == 0 && pass.found > 0) {
                    return Ok(done);
                }
                in_flight = if pass.overload { in_flight / 2 } else { in_flight * 2 };
                in_flight = in_flight.clamp(1, how.in_flight.max(1));
                if pass.opened > 0 && !pass.overload {
                    moved = Instant::now();
                    continue;
                }
            }
            Err(error) if impatient => return Err(error),
            Err(_) => quiet = 0,
        }
        tokio::time::sleep(how.look).await;
    }
}

/// One look and what came of it.
#[derive(Debug, Default)]
struct Pass {
    found: usize,
    opened: usize,
    stuck: Vec<(String, ReleaseError)>,
    overload: bool,
}

/// Opens what waits now; ends early when the apiserver asks for less.
async fn pass(
    client: &Client,
    how: &Clearing,
    in_flight: usize,
    before: usize,
    tell: &mut impl FnMut(Progress),
) -> Result<Pass, ReleaseError> {
    let waiting = waiting(client).await?;
    let mut pass = Pass { found: waiting.len(), ..Pass::default() };
    let open = |address: Address| async {
        let outcome = open_undecided(client.clone(), &address, how.timeout).await;
        (address, outcome)
    };
    let mut opening = futures::stream::iter(waiting).map(open).buffered(in_flight);
    let mut told: Option<Instant> = None;
    while let Some((address, outcome)) = opening.next().await {
        match outcome {
            Ok(()) => pass.opened += 1,
            Err(ReleaseError::Gone) => pass.found -= 1,
            Err(error) => {
                pass.overload |= error.trouble().is_some();
                pass.stuck.push((format!("{}/{}", address.namespace, address.name), error));
            }
        }
        if told.is_none_or(|told| told.elapsed() >= TELL) {
            told = Some(Instant::now());
            let opened = before + pass.opened;
            tell(Progress { opened, waiting: pass.found - pass.opened });
        }
        if pass.overload {
            break;
        }
    }
    Ok(pass)
}

/// Pods that wait behind our gate, in the order in which to open them.
async fn waiting(client: &Client) -> Result<Vec<Address>, ReleaseError> {
    let pods = Api::<Pod>::all(client.clone());
    let mut page = ListParams::default().fields(WAITING).limit(PAGE);
    let mut found = Vec::new();
    loop {
        let list = pods.list(&page).await?;
        found.extend(list.items.iter().filter(|pod| waits(pod)).filter_map(ranked));
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => break,
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found.into_iter().map(|(_, address)| address).collect())
}

fn waits(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == GATE) && pod.metadata.deletion_timestamp.is_none()
}

/// Who goes first: priority, then seconds of creation, then uid.
type Rank = (Reverse<i32>, Option<i64>, String);

fn ranked(pod: &Pod) -> Option<(Rank, Address)> {
    let meta = &pod.metadata;
    let (namespace, name, uid) = (meta.namespace.clone()?, meta.name.clone()?, meta.uid.clone()?);
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default();
    let created = meta.creation_timestamp.as_ref().map(|time| time.0.as_second());
    let address = Address {
        cluster: ClusterId(0),
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.as_str().into(),
    };
    Some(((Reverse(priority), created, uid), address))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::tests::support::{Api as Fake, Reply, Seen};
    use super::*;
    use serde_json::{Value, json};

    const HOW: Clearing = Clearing {
        in_flight: 1,
        timeout: Duration::from_secs(1),
        look: Duration::from_millis(1),
        patience: Duration::from_millis(30),
    };

    fn pod(name: &str, priority: i32, second: u32, gates: &[&str]) -> Value {
        let gates: Vec<Value> = gates.iter().map(|gate| json!({"name": gate})).collect();
        let created = format!("2026-11-30T12:00:{second:02}Z");
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name,
                "creationTimestamp": created},
            "spec": {"containers": [], "priority": priority, "schedulingGates": gates}})
    }

    /// A cluster of these pods; `refuse` says what else a PATCH is answered with. Also the
    /// names of the pods in the order in which they were opened.
    fn cluster(
        pods: Vec<Value>,
        refuse: impl Fn(&str) -> Option<Reply> + Send + Sync + 'static,
    ) -> (Client, Arc<Mutex<Vec<String>>>) {
        let opened = Arc::new(Mutex::new(Vec::<String>::new()));
        let order = opened.clone();
        let answer = move |seen: &Seen| {
            let mut opened = order.lock().unwrap();
            if seen.method == "GET" {
                let name = |pod: &&Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
                let left: Vec<_> = pods.iter().filter(|p| !opened.contains(&name(p))).collect();
                return Reply::json(&json!({"metadata": {}, "items": left}));
            }
            let name = seen.path.rsplit('/').next().unwrap().to_owned();
            assert_eq!(seen.body["metadata"], json!({"uid": name}));
            refuse(&name).unwrap_or_else(|| {
                opened.push(name);
                Reply::ok()
            })
        };
        (Fake::new(answer).client(), opened)
    }

    #[tokio::test]
    async fn what_waits_is_opened_by_priority_age_and_uid() {
        let mut going = pod("going", 9, 0, &[GATE]);
        going["metadata"]["deletionTimestamp"] = json!("2026-11-30T12:00:00Z");
        let pods = vec![
            pod("young", 0, 9, &[GATE]),
            pod("b", 0, 1, &[GATE]),
            pod("a", 0, 1, &["example.com/other", GATE]),
            pod("urgent", 5, 9, &[GATE]),
            pod("foreign", 5, 0, &["example.com/other"]),
            going,
        ];
        let (client, opened) = cluster(pods, |_| None);
        let mut told = Vec::new();
        let cleared = clear(&client, &HOW, |progress| told.push(progress)).await.unwrap();
        assert_eq!(*opened.lock().unwrap(), ["urgent", "a", "b", "young"]);
        assert_eq!(cleared, Cleared { opened: 4, stuck: vec![] });
        assert_eq!(told[0], Progress { opened: 1, waiting: 3 });
    }

    #[tokio::test]
    async fn an_apiserver_that_asks_for_less_gets_less_and_all_are_opened() {
        let pods = (0..40).map(|n| pod(&format!("p{n}"), 0, 0, &[GATE])).collect();
        let calls = Mutex::new(0);
        let (client, opened) = cluster(pods, move |_| {
            let mut calls = calls.lock().unwrap();
            *calls += 1;
            (*calls % 7 == 0).then(|| Reply::status(429, "TooManyRequests", "later"))
        });
        let how = Clearing { in_flight: 8, ..HOW };
        let cleared = clear(&client, &how, |_| {}).await.unwrap();
        assert_eq!(cleared.stuck, []);
        assert_eq!(opened.lock().unwrap().len(), 40);
    }

    #[tokio::test]
    async fn a_pod_that_stays_shut_is_named_and_holds_up_no_other() {
        let pods = vec![pod("stuck", 9, 0, &[GATE]), pod("fine", 0, 0, &[GATE])];
        let (client, opened) = cluster(pods, |name| {
            (name == "stuck").then(|| Reply::status(403, "Forbidden", "a plug-in said no"))
        });
        let start = Instant::now();
        let cleared = clear(&client, &HOW, |_| {}).await.unwrap();
        assert!(start.elapsed() >= HOW.patience);
        assert_eq!(*opened.lock().unwrap(), ["fine"]);
        assert_eq!(cleared.opened, 1);
        assert_eq!(cleared.stuck.len(), 1);
        assert_eq!(cleared.stuck[0].0, "ns/stuck");
    }
}
