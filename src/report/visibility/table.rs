//! Groups as columns and cells, so that `kubectl get groups` reads well.

use serde::Serialize;
use serde_json::{Value, json};

use super::super::age::human;
use super::super::explain;
use super::accept::IncludeObject;
use super::objects::ListMetadata;
use crate::view::{Amounts, GroupRow};

/// `meta.k8s.io/v1` `Table`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    kind: &'static str,
    api_version: &'static str,
    metadata: ListMetadata,
    column_definitions: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Column {
    name: &'static str,
    #[serde(rename = "type")]
    type_: &'static str,
    format: &'static str,
    description: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    priority: u8,
}

#[derive(Debug, Serialize)]
struct Row {
    cells: [Value; COLUMNS.len()],
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<Value>,
}

/// Name, description, and whether it takes `-o wide` to see it.
const COLUMNS: [(&str, &str, bool); 11] = [
    ("Name", "Kind and name of the root, and a few digits of its uid.", false),
    ("Queue", "The queue that pays.", false),
    ("State", "Where the group stands.", false),
    ("Pods", "Pods that are on a node or have ended, of all whose objects exist.", false),
    ("Reason", "Why its next pods wait, else why those let go have no node, in one word.", false),
    ("Age", "Since the creation of the pod that has waited longest.", false),
    ("Priority", "Priority of its first waiting pod.", true),
    ("Asks", "What its first waiting pod, or its gang, asks.", true),
    ("Ahead", "Groups of the same queue that go first.", true),
    ("Root", "The object at the top of the owner chain.", true),
    ("Warning", "What somebody wrote that means nothing and is ignored.", true),
];

/// Groups with their namespaces as a table at the time `now` (ms since the epoch).
pub fn table<'a>(
    groups: impl Iterator<Item = (&'a str, &'a GroupRow)>,
    metadata: ListMetadata,
    include: IncludeObject,
    now: i64,
) -> Table {
    Table {
        kind: "Table",
        api_version: "meta.k8s.io/v1",
        metadata,
        column_definitions: COLUMNS.into_iter().map(column).collect(),
        rows: groups
            .map(|(namespace, group)| Row {
                cells: cells(group, now),
                object: object(namespace, group, include),
            })
            .collect(),
    }
}

fn column((name, description, wide): (&'static str, &'static str, bool)) -> Column {
    Column {
        name,
        type_: if matches!(name, "Priority" | "Ahead") { "integer" } else { "string" },
        format: if name == "Name" { "name" } else { "" },
        description,
        priority: u8::from(wide),
    }
}

fn cells(group: &GroupRow, now: i64) -> [Value; COLUMNS.len()] {
    let wait = group.wait.as_ref();
    let counts = group.counts;
    let placed = counts.running + counts.ended;
    let total = counts.waiting + counts.released + placed;
    let root = &group.who.root;
    let held = group.held.as_ref().or(group.spared.as_ref()).map_or("", |held| held.code);
    [
        json!(&*group.name),
        json!(group.queue.as_deref().unwrap_or("<none>")),
        json!(group.state.as_str()),
        json!(format!("{placed}/{total}")),
        json!(wait.map_or(held, |wait| wait.why.code)),
        json!(human(now - group.since)),
        json!(group.priority),
        json!(listed(&group.asks)),
        json!(wait.map_or(0, |wait| wait.groups_ahead)),
        json!(format!("{}/{}", root.kind, root.address.name)),
        json!(warnings(group)),
    ]
}

fn warnings(group: &GroupRow) -> String {
    let warnings = &group.who.origin.warnings;
    if warnings.is_empty() { "<none>".to_owned() } else { warnings.join("; ") }
}

fn listed(amounts: &Amounts) -> String {
    let parts: Vec<_> =
        amounts.iter().map(|(resource, amount)| format!("{resource}={amount}")).collect();
    parts.join(",")
}

fn object(namespace: &str, group: &GroupRow, include: IncludeObject) -> Option<Value> {
    let whole = explain::group(namespace, group);
    match include {
        IncludeObject::None => None,
        IncludeObject::Metadata => Some(json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": whole.metadata,
        })),
        IncludeObject::Object => Some(json!(whole)),
    }
}
