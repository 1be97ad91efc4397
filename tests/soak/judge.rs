//! What is not as it should be at a moment. In passing that is so all the time, so only what
//! stays is a fault.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::Value;

use crate::{
    book::{Book, Charge, Known},
    tree,
};

/// A judge does not wait for who does not answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Sentences by what they are about.
pub type Complaints = BTreeMap<String, String>;

/// Pods of one root that wait.
#[derive(Debug, Default)]
struct Waiting {
    pods: i128,
    /// What each of them asks, in thousandths of a CPU.
    cpu: i128,
}

/// All complaints of this moment.
pub async fn look(client: &Client, book: &Book) -> Complaints {
    let groups = tokio::time::timeout(ANSWER, groups(client)).await;
    let mut complaints = Complaints::new();
    match groups.context("no answer").flatten() {
        Ok(groups) => of_groups(&groups, book, &mut complaints),
        Err(error) => {
            complaints.insert("the visibility API".to_owned(), format!("{error:#}"));
        }
    }
    of_pods(book, &mut complaints);
    of_queues(book, &mut complaints);
    complaints
}

/// What waits and why, as the controller says it.
pub async fn waits(client: &Client) -> Result<Vec<String>> {
    let groups = tokio::time::timeout(ANSWER, groups(client)).await??;
    let waiting = groups.iter().filter(|group| !group["wait"].is_null());
    Ok(waiting
        .map(|group| {
            format!("{} in {}: {}", group["metadata"], group["queue"], group["wait"]["message"])
        })
        .collect())
}

async fn groups(client: &Client) -> Result<Vec<Value>> {
    let path = "/apis/visibility.tidegate.dev/v1alpha1/groups";
    let list: Value = client.request(http::Request::get(path).body(Vec::new())?).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// What was let go and ends by itself gets a node and ends.
fn of_pods(book: &Book, complaints: &mut Complaints) {
    for (uid, pod) in book.holding().into_iter().filter(|(_, pod)| pod.brief) {
        let said = format!("it was let go and has not ended: {pod:?}");
        complaints.insert(format!("pod {}/{} ({uid})", pod.namespace, pod.name), said);
    }
}

/// The status of a queue says what its pods hold.
fn of_queues(book: &Book, complaints: &mut Complaints) {
    for queue in tree::QUEUES.into_iter().chain([tree::TOP]) {
        let (said, is) = (book.queue(queue).map(|version| version.usage), book.charge(queue).cpu);
        if said != Some(is) {
            complaints.insert(format!("queue {queue}"), format!("{is} in use, it says {said:?}"));
        }
    }
}

fn of_groups(groups: &[Value], book: &Book, complaints: &mut Complaints) {
    let pods = book.pods();
    let mut told = BTreeSet::new();
    for group in groups {
        let roots = roots(group);
        let mine = waiting(pods.values(), &roots);
        let name = roots.iter().cloned().collect::<Vec<_>>().join("+");
        for (about, said) in of_group(group, &roots, &mine, book) {
            complaints.insert(format!("group {name}, {about}"), said);
        }
        told.extend(roots);
    }
    for (uid, pod) in pods.iter().filter(|(_, pod)| pod.gated && !pod.ended) {
        if !told.contains(&pod.root) {
            let said = "it is gated and in no group".to_owned();
            complaints.insert(format!("pod {}/{} ({uid})", pod.namespace, pod.name), said);
        }
    }
}

/// What is wrong with a group: how many wait, why, and whether it started in part.
fn of_group(
    group: &Value,
    roots: &BTreeSet<String>,
    mine: &Waiting,
    book: &Book,
) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    let said = group["counts"]["waiting"].as_i64().map_or(0, i128::from);
    if said != mine.pods {
        let text = format!("{} of its pods are gated, it says {said}", mine.pods);
        wrong.push(("counts".to_owned(), text));
    }
    let least = group["minCount"].as_u64().unwrap_or_default();
    let started: usize = roots.iter().map(|root| book.opened_of(root)).sum();
    if started > 0 && started < usize::try_from(least).unwrap_or_default() && mine.pods > 0 {
        wrong.push(("gang".to_owned(), format!("{started} of {least} were let go")));
    }
    match group["wait"]["reason"].as_str() {
        None if said > 0 => {
            wrong.push(("reason".to_owned(), "it waits and says not why".to_owned()));
        }
        None => {}
        Some(reason) => {
            let text = untrue(group, reason, started, mine, book);
            let text = text.map(|why| format!("{why}; it says {}", group["wait"]["message"]));
            wrong.extend(text.map(|text| (reason.to_owned(), text)));
        }
    }
    wrong
}

/// The objects that made a group's pods, as `namespace/name`.
fn roots(group: &Value) -> BTreeSet<String> {
    let namespace = group["metadata"]["namespace"].as_str().unwrap_or_default();
    let first = |chain: &Value| {
        let name = chain[0].as_str()?.split_once('/')?.1;
        Some(format!("{namespace}/{name}"))
    };
    let own = group["root"]["name"].as_str().map(|name| format!("{namespace}/{name}"));
    let chains: BTreeSet<String> =
        group["chains"].as_array().into_iter().flatten().filter_map(first).collect();
    if chains.is_empty() { own.into_iter().collect() } else { chains }
}

fn waiting<'a>(pods: impl Iterator<Item = &'a Known>, roots: &BTreeSet<String>) -> Waiting {
    let gated = pods.filter(|pod| pod.gated && !pod.ended && roots.contains(&pod.root));
    gated.fold(Waiting::default(), |sum, pod| Waiting {
        pods: sum.pods + 1,
        cpu: sum.cpu.max(pod.cpu),
    })
}

/// Why the reason for which a group waits is not true, by what the watches tell.
fn untrue(
    group: &Value,
    reason: &str,
    started: usize,
    mine: &Waiting,
    book: &Book,
) -> Option<String> {
    let queue = group["queue"].as_str().unwrap_or_default();
    let least = group["minCount"].as_i64().map_or(0, i128::from);
    let together = if started == 0 { least.max(1) } else { 1 };
    let ask = Charge { cpu: mine.cpu * together, pods: together };
    match reason {
        "QueueStopped" => {
            let held = |queue: &str| book.queue(queue).is_some_and(|version| version.held);
            (!tree::path(queue).any(held)).then(|| format!("queue {queue} is open"))
        }
        "QueueLimit" | "LargerThanQueue" => {
            book.fits(queue, ask).then(|| format!("{ask:?} is free in queue {queue}"))
        }
        "BehindInStrictQueue" => {
            (queue != tree::STRICT).then(|| format!("queue {queue} is not strict"))
        }
        "WaitingForMembers" => {
            (started > 0 || mine.pods >= least).then(|| format!("{} of {least} wait", mine.pods))
        }
        _ => Some("nothing should wait for that for long".to_owned()),
    }
}
