//! `tidegate queues`.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Error, ResourceExt};

use crate::api::names::GROUP;
use crate::api::v1alpha1::{Queue, QueueStatus, Resources, read_queue};
use crate::cli::output::{Format, Printed, Table, machine, or_none};
use crate::cli::{Connect, Failure};
use crate::report::visibility::objects::Group;

use super::{ago, amounts, ask, now};

/// The role that lets people read queues.
const VIEWER: &str = "tidegate-queue-viewer";

/// Which queues to show.
#[derive(Debug, Args)]
pub struct Queues {
    /// Only this queue.
    name: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: Connect,
}

/// Reads the `Queue` objects, whose status the controller keeps.
pub async fn queues(args: &Queues) -> Result<Printed, Failure> {
    let client = args.connect.client().await?;
    show(client, args.name.as_deref(), args.output, now()).await
}

pub(super) async fn show(
    client: Client,
    name: Option<&str>,
    format: Format,
    now: i64,
) -> Result<Printed, Failure> {
    let stored = read(client, name).await?;
    let none = stored.is_empty().then(|| "There are no queues yet.".to_owned());
    let out = match format {
        Format::Table | Format::Wide => {
            let queues: Vec<_> = stored.into_iter().map(|it| read_queue(it).queue).collect();
            table(&queues, format == Format::Wide, now)
        }
        Format::Name => stored.iter().map(reference).collect(),
        Format::Json | Format::Yaml => machine(&stored, name.is_some(), format)?,
    };
    Ok(Printed { out, note: none, ..Printed::default() })
}

/// A queue and those below it, as far as whoever asks may read queues.
#[derive(Debug)]
pub struct Family {
    name: String,
    below: BTreeSet<String>,
    /// `None` when queues may not be read.
    exists: Option<bool>,
}

/// Reads which queues are below one.
pub async fn family(client: &Client, name: &str) -> Result<Family, Failure> {
    let (below, exists) = match api(client.clone()).list(&ListParams::default()).await {
        Ok(list) => {
            let queues: Vec<_> = list.items.into_iter().map(|it| read_queue(it).queue).collect();
            (below(&queues, name), Some(queues.iter().any(|q| q.name_any() == name)))
        }
        Err(Error::Api(status)) if status.code == 403 => (BTreeSet::new(), None),
        Err(error) => return Err(meaning(&error, None)),
    };
    Ok(Family { name: name.to_owned(), below, exists })
}

fn below(queues: &[Queue], name: &str) -> BTreeSet<String> {
    let mut below = BTreeSet::new();
    let mut next = vec![name.to_owned()];
    while let Some(parent) = next.pop() {
        let children = queues.iter().filter(|q| q.spec.parent.as_deref() == Some(&*parent));
        for child in children.map(ResourceExt::name_any).filter(|child| child != name) {
            if below.insert(child.clone()) {
                next.push(child);
            }
        }
    }
    below
}

impl Family {
    /// The field selector that finds all groups it pays for, and maybe others.
    pub fn selector(&self) -> String {
        if self.below.is_empty() { format!("queue={}", self.name) } else { String::new() }
    }

    /// Whether one of its queues pays for a group.
    pub fn pays_for(&self, group: &Group) -> bool {
        let queue = group.work.queue.as_deref();
        queue.is_some_and(|queue| queue == self.name || self.below.contains(queue))
    }

    /// Said beside what was found.
    pub fn remark(&self) -> Option<String> {
        let name = &self.name;
        match self.exists {
            Some(true) => None,
            Some(false) => Some(format!("Queue {name:?} does not exist.")),
            None => Some(format!(
                "Queues below {name:?} are left out: reading queues takes the role {VIEWER}."
            )),
        }
    }

    /// Fails when the queue is known not to be there.
    pub fn must_exist(&self) -> Result<(), Failure> {
        match self.exists {
            Some(false) => Err(no_queue(&self.name)),
            _ => Ok(()),
        }
    }
}

fn no_queue(name: &str) -> Failure {
    Failure::NotFound(format!("there is no queue {name:?}"))
}

/// Without a type: one queue that this version cannot read must not hide the others.
fn api(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::erase::<Queue>(&()))
}

async fn read(client: Client, name: Option<&str>) -> Result<Vec<DynamicObject>, Failure> {
    let api = api(client);
    let found = match name {
        Some(name) => api.get(name).await.map(|queue| vec![queue]),
        None => api.list(&ListParams::default()).await.map(|list| list.items),
    };
    found.map_err(|error| meaning(&error, name))
}

fn meaning(error: &Error, name: Option<&str>) -> Failure {
    let Error::Api(status) = error else { return ask::unreachable(error) };
    match (status.code, name) {
        (404, Some(name)) if status.message.contains(name) => no_queue(name),
        (404, _) => Failure::Error(format!(
            "this cluster has no Queue kind: Tidegate is not installed (kubectl get crd queues.{GROUP})"
        )),
        (403, _) => Failure::Error(format!(
            "{}\nThe ClusterRole {VIEWER} grants get, list and watch on queues: an \
             administrator binds it with a ClusterRoleBinding. What waits in a namespace that you \
             may view is told without it: tidegate pending -n NAMESPACE",
            status.message
        )),
        _ => Failure::Error(status.message.clone()),
    }
}

fn reference(queue: &DynamicObject) -> String {
    format!("queue.{GROUP}/{}\n", queue.name_any())
}

const HEADERS: [&str; 13] = [
    "QUEUE",
    "WEIGHT",
    "PENDING",
    "RUNNING",
    "SHARE",
    "USAGE",
    "READY",
    "OLDEST",
    "PENDING-GROUPS",
    "RUNNING-GROUPS",
    "GUARANTEED",
    "LIMIT",
    "MAX-PENDING",
];

/// The tree of queues, then a line for each that cannot start work.
fn table(queues: &[Queue], wide: bool, now: i64) -> String {
    let tree = tree(queues);
    let rows = tree.iter().map(|&(depth, queue)| row(depth, queue, now)).collect();
    let table = Table { headers: HEADERS, narrow: 8, rows };
    let problems: String = tree.iter().filter_map(|(_, queue)| problem(queue)).collect();
    let gap = if problems.is_empty() { "" } else { "\n" };
    format!("{}{gap}{problems}", table.render(wide))
}

fn row(depth: usize, queue: &Queue, now: i64) -> [String; 13] {
    let status = queue.status.clone().unwrap_or_default();
    let usage: BTreeMap<_, _> = status.usage.clone();
    [
        format!("{}{}", "  ".repeat(depth), queue.name_any()),
        queue.spec.weight.to_string(),
        status.pending.pods.to_string(),
        status.running.pods.to_string(),
        or_none(status.share.as_deref().unwrap_or_default()),
        or_none(&amounts(&usage)),
        condition(&status, "Ready").map_or("Unknown", |(value, _)| value).to_owned(),
        status.oldest_pending.as_deref().map_or_else(|| or_none(""), |time| ago(Some(time), now)),
        status.pending.groups.to_string(),
        status.running.groups.to_string(),
        or_none(&amounts(&written(&queue.spec.guaranteed))),
        or_none(&amounts(&written(&queue.spec.limit))),
        queue.spec.max_pending.map_or_else(|| or_none(""), |most| most.pods.to_string()),
    ]
}

fn written(resources: &Resources) -> BTreeMap<String, String> {
    resources.iter().map(|(resource, amount)| (resource.clone(), amount.0.clone())).collect()
}

fn condition<'a>(status: &'a QueueStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((&found.status, &found.message))
}

fn problem(queue: &Queue) -> Option<String> {
    let status = queue.status.as_ref()?;
    let not_ready = condition(status, "Ready").filter(|&(value, _)| value != "True");
    let holds = |type_| condition(status, type_).filter(|&(value, _)| value == "True");
    let bad = ["OverLimit", "GuaranteedBeyondCapacity", "BacklogFull"].into_iter();
    let bad = bad.filter_map(holds);
    let paused = condition(status, "Releasing").filter(|&(value, _)| value == "False");
    let all = not_ready.into_iter().chain(bad).chain(paused);
    let said: Vec<_> = all.map(|(_, message)| message).collect();
    (!said.is_empty()).then(|| format!("{}: {}\n", queue.name_any(), said.join("; ")))
}

/// Queues below their parents with their depth. A queue whose parent is not shown,
/// or that is in a cycle, stands at the top: none is left out.
fn tree(queues: &[Queue]) -> Vec<(usize, &Queue)> {
    let names: BTreeSet<String> = queues.iter().map(ResourceExt::name_any).collect();
    let mut children: BTreeMap<Option<&str>, Vec<&Queue>> = BTreeMap::new();
    for queue in queues {
        let parent = queue.spec.parent.as_deref().filter(|parent| names.contains(*parent));
        children.entry(parent).or_default().push(queue);
    }
    let mut shown = BTreeSet::new();
    let mut tree = Vec::new();
    for root in children.get(&None).into_iter().flatten().copied().chain(queues) {
        descend(root, &children, &mut shown, &mut tree);
    }
    tree
}

fn descend<'a>(
    root: &'a Queue,
    children: &BTreeMap<Option<&str>, Vec<&'a Queue>>,
    shown: &mut BTreeSet<String>,
    tree: &mut Vec<(usize, &'a Queue)>,
) {
    let mut stack = vec![(0, root)];
    while let Some((depth, queue)) = stack.pop() {
        let name = queue.name_any();
        if shown.insert(name.clone()) {
            tree.push((depth, queue));
            let below = children.get(&Some(&*name)).into_iter().flatten().rev();
            stack.extend(below.map(|&child| (depth + 1, child)));
        }
    }
}
