//! `tidegate why`.

use clap::Args;
use kube::Client;

use crate::api::names::{SYSTEM_NAMESPACES, VISIBILITY_GROUP};
use crate::cli::output::{Format, Printed, Table, machine, or_none};
use crate::cli::{Connect, Failure};
use crate::report::visibility::objects::{Explanation, Group, Pod, QueueStep, Wait};
use crate::report::visibility::select::ObjectName;

use super::lookup::{Found, Missing};
use super::shape::shape;
use super::{ago, amounts, ask, lookup, now};

/// Groups explained at once; an object is rarely in more than one.
const MOST: usize = 10;

/// Whose wait to explain.
#[derive(Debug, Args)]
pub struct Why {
    /// The object, as KIND/NAME or KIND NAME: a pod or anything that owns pods.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    object: Vec<String>,
    /// Namespace; else the context's.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: Connect,
}

/// Asks the controller why an object's pods wait.
pub async fn why(args: &Why) -> Result<Printed, Failure> {
    args.object()?;
    answer(args.connect.client().await?, args, now()).await
}

impl Why {
    pub(super) fn object(&self) -> Result<ObjectName, Failure> {
        ObjectName::parse(&self.object.join("/")).map_err(Failure::Usage)
    }
}

pub(super) async fn answer(client: Client, args: &Why, now: i64) -> Result<Printed, Failure> {
    let (object, format) = (args.object()?, args.output);
    let own = args.namespace.as_deref().unwrap_or(client.default_namespace());
    let namespace = own.to_owned();
    let groups = match lookup::find(&client, &namespace, &object).await? {
        Found::Groups(groups) => groups,
        Found::Nothing(missing) => return Err(not_found(&missing, &object, &namespace)),
    };
    let explanations = explain(&client, &groups).await?;
    let out = match format {
        Format::Table | Format::Wide => blocks(&explanations, format == Format::Wide, now),
        Format::Name => explanations.iter().map(reference).collect(),
        Format::Json | Format::Yaml => machine(&explanations, true, format)?,
    };
    let more = groups.len().saturating_sub(MOST);
    let note = (more > 0).then(|| format!("{more} more groups of this object are not shown."));
    Ok(Printed { out, note, ..Printed::default() })
}

async fn explain(client: &Client, groups: &[Group]) -> Result<Vec<Explanation>, Failure> {
    let mut explanations = Vec::new();
    for group in groups.iter().take(MOST) {
        explanations.extend(ask::explanation(client, group).await?);
    }
    if explanations.is_empty() {
        return Err(Failure::NotFound("it ended while you asked".to_owned()));
    }
    Ok(explanations)
}

fn not_found(missing: &Missing, object: &ObjectName, namespace: &str) -> Failure {
    let name = format!("{}/{}", object.kind, object.name);
    Failure::NotFound(match missing {
        Missing::Namespace => format!("there is no namespace {namespace:?}"),
        Missing::Kind => format!("the cluster has no kind {:?}", object.kind),
        Missing::ClusterScoped => format!(
            "{} objects are in no namespace and have no pods that wait; for queues: tidegate queues \
             NAME",
            object.kind
        ),
        Missing::Object => format!("there is no {name} in namespace {namespace:?}"),
        Missing::OptIn(_) if SYSTEM_NAMESPACES.contains(&namespace) => {
            format!("Tidegate never looks at namespace {namespace:?}: it is the system's")
        }
        Missing::OptIn(Some(value)) => format!(
            "Tidegate does not look at namespace {namespace:?}: its label \
             tidegate.dev/managed={value:?} does not opt it in, only \"true\" does: kubectl label \
             namespace {namespace} --overwrite tidegate.dev/managed=true"
        ),
        Missing::OptIn(None) => format!(
            "Tidegate does not look at namespace {namespace:?}, which has not opted in: kubectl label \
             namespace {namespace} tidegate.dev/managed=true"
        ),
        Missing::Pods => format!(
            "{name} is there and has no pods that Tidegate holds or counts: its controller has made \
             none yet, its pods were refused, or all are gone; see kubectl describe {name} -n {namespace}"
        ),
        Missing::Unreadable(why) => format!(
            "the controller knows no pods of {name} in namespace {namespace:?}, and why cannot be \
             told: {why}"
        ),
    })
}

fn reference(explanation: &Explanation) -> String {
    format!("group.{VISIBILITY_GROUP}/{}\n", explanation.metadata.name)
}

fn blocks(explanations: &[Explanation], wide: bool, now: i64) -> String {
    let blocks: Vec<_> =
        explanations.iter().map(|explanation| block(explanation, wide, now)).collect();
    blocks.join("\n---\n\n")
}

/// What it waits for, the numbers, who is ahead, the evidence, what to do.
fn block(explanation: &Explanation, wide: bool, now: i64) -> String {
    let sections = [
        headline(explanation, now),
        listed("Warning", &explanation.work.warnings),
        numbers(explanation),
        queues(explanation),
        ahead(explanation),
        pods(explanation, wide, now),
        listed("Evidence", &explanation.evidence),
        to_do(explanation.work.wait.as_ref()),
    ];
    let sections: Vec<_> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    sections.join("\n")
}

fn headline(explanation: &Explanation, now: i64) -> String {
    let work = &explanation.work;
    let since = ago(explanation.metadata.creation_timestamp.as_deref(), now);
    let wait = match &work.wait {
        Some(wait) => format!("  waits for {since}: {}\n  {}\n", wait.reason, wait.message),
        None => String::new(),
    };
    let held = match &work.held {
        Some(held) => format!("  let go, and not on a node: {}\n  {}\n", held.reason, held.message),
        None => String::new(),
    };
    let spared = match &work.spared {
        Some(spared) => {
            format!("  to be evicted, and still here: {}\n  {}\n", spared.reason, spared.message)
        }
        None => String::new(),
    };
    format!(
        "{} in namespace {}: {}\n{wait}{held}{spared}",
        shape(work),
        explanation.metadata.namespace,
        work.state
    )
}

fn numbers(explanation: &Explanation) -> String {
    let work = &explanation.work;
    let counts = work.counts;
    let together = match work.min_count {
        0 => "each starts on its own".to_owned(),
        count => format!("{count} start together"),
    };
    let pods = format!(
        "{} waiting, {} let go without a node, {} running, {} ended; {together}",
        counts.waiting, counts.released, counts.running, counts.ended
    );
    [
        ("Queue", or_none(work.queue.as_deref().unwrap_or_default())),
        ("Pods", pods),
        ("Asks", or_none(&amounts(&work.asks))),
        ("Charged", or_none(&amounts(&work.charged))),
        ("Priority", work.priority.to_string()),
        ("Capacity", or_none(&amounts(&explanation.capacity))),
    ]
    .map(|(title, value)| format!("{title:8}   {value}\n"))
    .concat()
}

fn queues(explanation: &Explanation) -> String {
    let path = &explanation.queue_path;
    let table = Table {
        headers: ["QUEUE", "WEIGHT", "SHARE", "USAGE", "LIMIT", "GUARANTEED"],
        narrow: 6,
        rows: path.iter().map(step).collect(),
    };
    let problems = path.iter().filter_map(|step| {
        step.problem.as_ref().map(|problem| format!("{}: {}\n", step.name, problem.message))
    });
    format!("{}{}", table.render(false), problems.collect::<String>())
}

fn step(step: &QueueStep) -> [String; 6] {
    let missing = if step.exists { "" } else { " (does not exist)" };
    [
        format!("{}{missing}", step.name),
        step.weight.to_string(),
        or_none(&step.share),
        or_none(&amounts(&step.usage)),
        or_none(&amounts(&step.limit)),
        or_none(&amounts(&step.guaranteed)),
    ]
}

fn ahead(explanation: &Explanation) -> String {
    match &explanation.work.wait {
        None => String::new(),
        Some(Wait { groups_ahead: 0, .. }) => "Nothing of its queue is ahead of it.\n".to_owned(),
        Some(wait) => format!(
            "Ahead of it in its queue: groups {}, pods {}.\n",
            wait.groups_ahead, wait.pods_ahead
        ),
    }
}

/// The pods by name, when there is room for them.
fn pods(explanation: &Explanation, wide: bool, now: i64) -> String {
    if !wide {
        return String::new();
    }
    let table = Table {
        headers: ["POD", "STATE", "AGE", "HELD BY"],
        narrow: 4,
        rows: explanation.pods.iter().map(|pod| pod_row(pod, now)).collect(),
    };
    let more = match explanation.pods_not_shown {
        0 => String::new(),
        more => format!("{more} more pods are not shown.\n"),
    };
    format!("{}{more}", table.render(wide))
}

fn pod_row(pod: &Pod, now: i64) -> [String; 4] {
    let hindrance = pod.hindrance.clone().unwrap_or_default();
    [pod.name.clone(), pod.state.clone(), ago(Some(&pod.created), now), hindrance]
}

fn listed(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    format!("{title}:\n  {}\n", lines.join("\n  "))
}

fn to_do(wait: Option<&Wait>) -> String {
    let Some(wait) = wait else { return String::new() };
    match (&wait.remedy, wait.needs_action) {
        (Some(remedy), true) => format!("To do:\n  {remedy}\n"),
        (Some(remedy), false) => format!("It goes on by itself, or:\n  {remedy}\n"),
        (None, _) => String::new(),
    }
}
