//! The `Queue`: what a platform team writes to share a fleet.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use kube::core::{Duration, Rule};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// Amounts by resource name, as in a pod's `resources.requests`.
pub type Resources = BTreeMap<String, Amount>;

/// What is taken as an amount: the grammar of Kubernetes quantities with at least
/// one digit and at most two digits of exponent. The bound matters: the apiserver's
/// own parser spends minutes on `1e99999999999`.
const AMOUNT: &str =
    r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?$";

/// CEL: whether an expression holds an amount.
fn is_amount(expression: &str) -> String {
    format!("string({expression}).matches('{AMOUNT}')")
}

fn amount_is_not_negative() -> Rule {
    Rule::new(format!("{} && sign(quantity(string(self))) >= 0", is_amount("self")))
        .message("must be a Kubernetes quantity and not negative, such as 4, 500m or 1.5Gi")
}

/// Durations as Go writes them, without signs.
const DURATION: &str = r"^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$";

fn min_runtime_is_at_most_a_year() -> Rule {
    Rule::new("duration(self) <= duration('8760h')").message("must be at most a year, 8760h")
}

fn half_life_is_a_minute_to_a_year() -> Rule {
    Rule::new("duration(self) >= duration('1m') && duration(self) <= duration('8760h')")
        .message("must be at least a minute, 1m, and at most a year, 8760h")
}

/// For each resource in both maps; amounts that are malformed have a rule of their own.
fn guaranteed_within_limit() -> Rule {
    let (own, most) = ("self.guaranteed[r]", "self.limit[r]");
    Rule::new(format!(
        "!has(self.guaranteed) || !has(self.limit) || self.guaranteed.all(r, !(r in self.limit) \
         || !({} && {}) || !quantity(string({own})).isGreaterThan(quantity(string({most}))))",
        is_amount(own),
        is_amount(most),
    ))
    .message("guaranteed must not be above limit: raise limit or lower guaranteed")
    .field_path(".guaranteed")
}

fn lendable_within_guaranteed() -> Rule {
    let (lent, own) = ("self.lendable[r]", "self.guaranteed[r]");
    Rule::new(format!(
        "!has(self.lendable) || self.lendable.all(r, has(self.guaranteed) && r in self.guaranteed \
         && (!({} && {}) || !quantity(string({lent})).isGreaterThan(quantity(string({own})))))",
        is_amount(lent),
        is_amount(own),
    ))
    .message("lendable must be part of guaranteed: list the resource there, with at least as much")
    .field_path(".lendable")
}

/// A share of the fleet. Cluster-scoped; queues form a tree by `parent`.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "tidegate.dev",
    version = "v1alpha1",
    kind = "Queue",
    plural = "queues",
    shortname = "tq",
    category = "tidegate",
    doc = "A share of the fleet, under which work waits and runs.",
    status = "QueueStatus",
    printcolumn = r#"{"name":"Parent","type":"string","jsonPath":".spec.parent"}"#,
    printcolumn = r#"{"name":"Weight","type":"integer","jsonPath":".spec.weight"}"#,
    printcolumn = r#"{"name":"Pending","type":"integer","jsonPath":".status.pending.pods"}"#,
    printcolumn = r#"{"name":"Running","type":"integer","jsonPath":".status.running.pods"}"#,
    printcolumn = r#"{"name":"CPU","type":"string","jsonPath":".status.usage.cpu"}"#,
    printcolumn = r#"{"name":"Share","type":"string","jsonPath":".status.share"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Oldest","type":"date","jsonPath":".status.oldestPending"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Max Pending","type":"integer","jsonPath":".spec.maxPending.pods","priority":1}"#,
    printcolumn = r#"{"name":"Full","type":"string","jsonPath":".status.conditions[?(@.type==\"BacklogFull\")].status","priority":1}"#,
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("a queue's name is used as a label value: at most 63 characters"),
    validation = Rule::new("!has(self.spec.parent) || self.spec.parent != self.metadata.name")
        .message("a queue cannot be its own parent: name another queue, or leave parent out")
)]
#[x_kube(validation = guaranteed_within_limit())]
#[x_kube(validation = lendable_within_guaranteed())]
#[serde(rename_all = "camelCase")]
pub struct QueueSpec {
    /// The queue above this one. Absent: directly under the root of the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub parent: Option<String>,
    /// How much this queue counts beside its siblings when room is shared.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub weight: i64,
    /// What is always this queue's own: it goes before queues that borrow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub guaranteed: Resources,
    /// What of `guaranteed` others may use while this queue and those below it do not. A
    /// resource that is not listed is lent whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub lendable: Resources,
    /// What this queue and those below it may use at most. A resource that is
    /// not listed is not limited here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub limit: Resources,
    /// How much may wait here and below before new pods are refused. Absent: any amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pending: Option<MaxPending>,
    /// How much may run here and below at a time. Absent: any amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<MaxRunning>,
    /// What happens when the first of the queue does not fit.
    #[serde(default)]
    pub order: Order,
    /// Where more pods of gangs that run here stand among what waits in this queue itself.
    #[serde(default)]
    pub growth: Growth,
    /// Above what is guaranteed, turns of the queues directly below, and of this queue's own work
    /// beside them, go also by what each used before: half as much of it counts after each such
    /// time, a duration such as `168h`. Absent: by what each uses now alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    #[x_kube(validation = half_life_is_a_minute_to_a_year())]
    pub usage_half_life: Option<Duration>,
    /// Whether waiting work may start.
    #[serde(default)]
    pub stop: Stop,
    /// Namespaces whose work may use this queue. Absent: every opted-in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<LabelSelector>,
    /// Names of the priority classes that pods here may have. Empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub priority_classes: Vec<String>,
    /// What may be evicted for work that waits here, and of what runs here.
    #[serde(default)]
    pub preemption: Preemption,
    /// Whether nodes are looked for before work starts.
    #[serde(default)]
    pub placement: Placement,
}

fn one() -> i64 {
    1
}

/// How much may wait in a queue and below it. About: pods that are created while the
/// controller takes notice still come in.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MaxPending {
    /// Pods. When so many wait, new ones of those who have pods waiting are refused, until
    /// a tenth of them has gone.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub pods: i64,
}

/// What is looked at before a queue's work starts.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Whether the sum of what is free is enough. The scheduler finds the nodes.
    #[default]
    Quota,
    /// Whether each pod has a node, and all of a group are in one domain where it wants that
    /// (annotation `tidegate.dev/topology`). The scheduler is bound to that domain.
    Domain,
    /// As `Domain`; the scheduler is told to prefer the nodes that were found.
    Node,
}

/// How much may run in a queue and below it at a time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MaxRunning {
    /// Groups with a pod that was let go and has not ended. Absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub groups: Option<i64>,
    /// Pods that were let go and have not ended. Absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub pods: Option<i64>,
}

/// What may be evicted for work that waits in a queue, and of what runs there.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Preemption {
    /// What of other queues, which use more than they are entitled to, may be evicted for it.
    #[serde(default)]
    pub reclaim: Reclaim,
    /// What of this queue may be evicted for it.
    #[serde(default)]
    pub within_queue: WithinQueue,
    /// What runs here and below is let run for so long before it may be evicted: a duration
    /// such as `90s`, `10m` or `1h30m`. Absent: as the queue above says, else ten minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = DURATION))]
    #[x_kube(validation = min_runtime_is_at_most_a_year())]
    pub min_runtime: Option<Duration>,
}

/// What of other queues may be evicted for a queue's waiting work.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    /// Nothing.
    Never,
    /// What it needs of its own `guaranteed`.
    #[default]
    Guaranteed,
    /// What it needs of all that it is entitled to.
    Entitled,
}

/// What of a queue's own work may be evicted for its waiting work.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithinQueue {
    /// Nothing.
    #[default]
    Never,
    /// What has a lower priority.
    LowerPriority,
}

/// What happens when the first of a queue does not fit.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Later work that fits goes ahead of it.
    #[default]
    BestEffort,
    /// Everything behind it waits.
    Strict,
}

/// Where more pods of gangs that run stand in their queue.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// As if they were five minutes older than gangs and pods of the same priority that have
    /// not begun, while the queue is within what it is entitled to.
    #[default]
    First,
    /// Where their age puts them.
    Fair,
}

/// Whether waiting work of a queue may start.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// It may.
    #[default]
    None,
    /// It may not; what runs goes on.
    Hold,
    /// It may not, and what runs is evicted, but for work that may not be.
    HoldAndDrain,
}

/// Selects namespaces by their labels, as everywhere in Kubernetes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must all be there with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that must all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One requirement on a label.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct LabelSelectorRequirement {
    /// The label's key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How `values` are compared.
    pub operator: SelectorOperator,
    /// The values; empty for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// Operators of a label selector.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorOperator {
    /// The label is there with one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// Whether labels satisfy every requirement; the empty selector matches all.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }
}

impl LabelSelectorRequirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            SelectorOperator::In => value.is_some_and(|value| self.values.contains(value)),
            SelectorOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// A Kubernetes quantity as written; [`crate::quantity`] gives it a value.
///
/// Accepts a JSON integer (`cpu: 4`) as the apiserver does, always writes a string.
#[derive(Serialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(transparent)]
pub struct Amount(pub String);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Integer(i64),
        }
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Integer(integer) => integer.to_string(),
        }))
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "maxLength": 40,
            "x-kubernetes-validations": [amount_is_not_negative()],
        })
    }
}

/// What the controller last saw of a queue.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Work that waits, here and below.
    #[serde(default)]
    pub pending: Count,
    /// Work that was let go and has not ended, here and below.
    #[serde(default)]
    pub running: Count,
    /// What running work is charged, here and below.
    #[serde(default)]
    pub usage: BTreeMap<String, String>,
    /// What it may have when everybody who asks is served in turn, never more than it asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub entitlement: BTreeMap<String, String>,
    /// What it used before, where that counts: `usageHalfLife` of this queue or the one above.
    /// A controller that begins goes on from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub past_usage: Option<PastUsage>,
    /// Dominant share of the fleet in percent, before weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// Creation time (RFC 3339) of the pod that has waited longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_pending: Option<String>,
    /// Whose new pods are refused; there while more wait than `maxPending` allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<Backlog>,
    /// `Ready`, `OverLimit`, `GuaranteedBeyondCapacity`, `Releasing` and, with `maxPending`,
    /// `BacklogFull`.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<QueueCondition>,
}

/// What a queue used on average, the half counting of what is a half-life ago.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PastUsage {
    /// Until when (RFC 3339). It is written at most twice a minute.
    #[serde(default)]
    pub as_of: String,
    /// By all work here and below, where the queue above has a `usageHalfLife`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<String, String>,
    /// By its own groups alone, where it has a `usageHalfLife` itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own: BTreeMap<String, String>,
}

/// Whose new pods are refused by admission while a queue's backlog is full.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Backlog {
    /// Pods that wait, here and below.
    #[serde(default)]
    pub pods: i64,
    /// When this was last found to hold (RFC 3339), told again every ten seconds. Admission
    /// stops refusing when it sees no new value for thirty.
    #[serde(default)]
    pub renewed: String,
    /// Uids of direct owners of waiting pods, those with most pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub owners: Vec<String>,
    /// Namespaces with waiting pods that nobody owns and that name no queue themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub namespaces: Vec<String>,
}

/// Groups and pods.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Groups of pods that belong together.
    #[serde(default)]
    pub groups: i64,
    /// Pods.
    #[serde(default)]
    pub pods: i64,
}

/// One condition of a queue, shaped as every Kubernetes condition.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QueueCondition {
    /// Kind of condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// When `status` last changed (RFC 3339).
    pub last_transition_time: String,
}
