//! `tidegate pending`.

use std::cmp::Reverse;

use clap::{Args, ValueEnum};
use kube::Client;

use crate::api::names::VISIBILITY_GROUP;
use crate::cli::output::{Format, Printed, Table, machine, or_none};
use crate::cli::{Connect, Failure};
use crate::report::visibility::objects::{Group, Wait};

use super::lookup::Missing;
use super::queues::Family;
use super::{ago, amounts, ask, lookup, now, queues};

/// Which waiting groups to show.
#[derive(Debug, Args)]
pub struct Pending {
    /// Namespace; else the context's.
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only groups that this queue or one below it pays for.
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// What comes first.
    #[arg(long, value_enum, default_value_t)]
    sort_by: SortBy,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: Connect,
}

/// Orders of waiting groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// The longest wait.
    #[default]
    Wait,
    /// The highest priority.
    Priority,
    /// The queue's name, and in it the longest wait.
    Queue,
}

/// Lists groups with a pod that waits.
pub async fn pending(args: &Pending) -> Result<Printed, Failure> {
    show(args.connect.client().await?, args, now()).await
}

pub(super) async fn show(client: Client, args: &Pending, now: i64) -> Result<Printed, Failure> {
    let own = args.namespace.as_deref().unwrap_or(client.default_namespace());
    let namespace = (!args.all_namespaces).then(|| own.to_owned());
    let family = match &args.queue {
        Some(queue) => Some(queues::family(&client, queue).await?),
        None => None,
    };
    let selector = family.as_ref().map(Family::selector).unwrap_or_default();
    let mut groups = ask::groups(&client, namespace.as_deref(), &selector).await?;
    let pays = |group: &Group| family.as_ref().is_none_or(|family| family.pays_for(group));
    groups.retain(|group| group.work.counts.waiting > 0 && pays(group));
    sort(&mut groups, args.sort_by);
    let out = match args.output {
        Format::Table | Format::Wide => {
            table(&groups, args.all_namespaces, args.output == Format::Wide, now)
        }
        Format::Name => groups.iter().map(reference).collect(),
        Format::Json | Format::Yaml => machine(&groups, false, args.output)?,
    };
    let remark = family.as_ref().and_then(Family::remark);
    let note = if groups.is_empty() {
        Some(nothing(&client, namespace.as_deref(), family.as_ref()).await?)
    } else {
        remark
    };
    Ok(Printed { out, note, ..Printed::default() })
}

/// Why the list is empty. What was asked about may not be there at all.
async fn nothing(
    client: &Client,
    namespace: Option<&str>,
    family: Option<&Family>,
) -> Result<String, Failure> {
    if let Some(family) = family {
        family.must_exist()?;
    }
    let Some(namespace) = namespace else { return Ok("Nothing waits.".to_owned()) };
    match lookup::consent(client, namespace).await {
        Err(Missing::Namespace) => {
            Err(Failure::NotFound(format!("there is no namespace {namespace:?}")))
        }
        Err(Missing::OptIn(_)) => Ok(format!(
            "Nothing waits in namespace {namespace}, which Tidegate does not look at: it has not \
             opted in."
        )),
        _ => Ok(format!("Nothing waits in namespace {namespace}.")),
    }
}

fn sort(groups: &mut [Group], by: SortBy) {
    let since = |group: &Group| group.metadata.creation_timestamp.clone();
    match by {
        SortBy::Wait => groups.sort_by_cached_key(since),
        SortBy::Priority => {
            groups.sort_by_cached_key(|group| (Reverse(group.work.priority), since(group)));
        }
        SortBy::Queue => {
            groups.sort_by_cached_key(|group| (group.work.queue.clone(), since(group)));
        }
    }
}

fn reference(group: &Group) -> String {
    format!("group.{VISIBILITY_GROUP}/{}\n", group.metadata.name)
}

const HEADERS: [&str; 12] = [
    "NAMESPACE",
    "ROOT",
    "QUEUE",
    "WAITING",
    "RUNNING",
    "PRIORITY",
    "AHEAD",
    "REASON",
    "WAIT",
    "ASKS",
    "GROUP",
    "MESSAGE",
];

fn table(groups: &[Group], all_namespaces: bool, wide: bool, now: i64) -> String {
    let rows: Vec<_> = groups.iter().map(|group| row(group, now)).collect();
    if all_namespaces {
        return Table { headers: HEADERS, narrow: 9, rows }.render(wide);
    }
    let [_, headers @ ..] = HEADERS;
    let rows = rows.into_iter().map(|[_, cells @ ..]| cells).collect();
    Table { headers, narrow: 8, rows }.render(wide)
}

fn row(group: &Group, now: i64) -> [String; 12] {
    let work = &group.work;
    let unknown = Wait::default();
    let wait = work.wait.as_ref().unwrap_or(&unknown);
    [
        group.metadata.namespace.clone(),
        format!("{}/{}", work.root.kind, work.root.name),
        or_none(work.queue.as_deref().unwrap_or_default()),
        work.counts.waiting.to_string(),
        work.counts.running.to_string(),
        work.priority.to_string(),
        wait.groups_ahead.to_string(),
        or_none(&wait.reason),
        ago(group.metadata.creation_timestamp.as_deref(), now),
        or_none(&amounts(&work.asks)),
        group.metadata.name.clone(),
        wait.message.clone(),
    ]
}
