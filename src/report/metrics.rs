//! Everything Prometheus may read, in one list: the source of `/metrics` and of
//! `docs/metrics.md`.
//!
//! Labels are closed: queues that exist, resources of the cluster, outcomes of a
//! release. Nothing a tenant can name becomes a label, and long lists are cut.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::quantity;
use crate::view::{Amounts, Published, QueueRow, View};

use super::health::Health;

/// Queues with a label of their own, by name; the rest are summed as [`OTHER`].
const QUEUES: usize = 1000;
/// Stands for all queues beyond [`QUEUES`]. No queue can have this name.
const OTHER: &str = "_other";
/// Resources with a label of their own, by name; others are left out.
const RESOURCES: usize = 64;

/// `/metrics`, `/livez` and `/readyz` for a plain HTTP port.
pub fn router(view: Published, writes: Writes, health: &Health) -> Router {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape { view, writes }));
    let registry = Arc::new(registry);
    health.router().route("/metrics", get(async move || answer(&registry)))
}

fn answer(registry: &Registry) -> Response {
    let mut text = String::new();
    match prometheus_text::encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], text).into_response(),
        Err(fmt::Error) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Tells what the writer has done; asked at each scrape.
pub type Writes = Arc<dyn Fn() -> Written + Send + Sync>;

/// What the writer has done since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Release patches sent, repetitions included.
    pub patches: u64,
    /// Release patches that were to be repeated.
    pub retries: u64,
    /// Pods evicted.
    pub evicted: u64,
    /// Evictions that were to be repeated.
    pub eviction_retries: u64,
    /// Evictions that a `PodDisruptionBudget` refused.
    pub evictions_guarded: u64,
    /// Evictions given up for now for any other reason.
    pub evictions_refused: u64,
    /// Kubernetes Events written.
    pub events: u64,
    /// Kubernetes Events that were not: refused, failed, or too many.
    pub events_dropped: u64,
    /// Queue statuses written.
    pub statuses: u64,
    /// Queue statuses that could not be written.
    pub status_failures: u64,
    /// Times that releases to a cluster were paused.
    pub pauses: u64,
    /// How releases flow now, one for each cluster.
    pub flows: Vec<Flow>,
}

/// How releases flow to one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// Where its circuit stands: one of [`CIRCUIT_STATES`].
    pub state: &'static str,
    /// Release patches that may be in flight at once.
    pub window: u32,
}

/// Where a circuit can stand.
pub const CIRCUIT_STATES: [&str; 3] = ["closed", "open", "half-open"];

/// What one scrape shows.
struct Moment {
    view: Arc<View>,
    written: Written,
}

/// One metric.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    samples: fn(&Moment) -> Samples,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// Values by their labels' values, in the order of the family's labels.
type Samples = BTreeMap<Vec<Arc<str>>, f64>;

const FAMILIES: &[Family] = &[
    Family {
        name: "tidegate_build_info",
        help: "Always 1; the label is the version that runs.",
        kind: Kind::Gauge,
        labels: &["version"],
        samples: |_| by_label(&[(env!("CARGO_PKG_VERSION"), 1)]),
    },
    Family {
        name: "tidegate_synced",
        help: "1 when all first lists are in, so that what is missing does not exist.",
        kind: Kind::Gauge,
        labels: &[],
        samples: |now| alone(u64::from(now.view.synced)),
    },
    Family {
        name: "tidegate_leader",
        help: "1 while this process decides; of several controllers one does.",
        kind: Kind::Gauge,
        labels: &[],
        samples: |now| alone(u64::from(now.view.leads)),
    },
    Family {
        name: "tidegate_view_timestamp_seconds",
        help: "When the control loop last published what it knows, in Unix time.",
        kind: Kind::Gauge,
        labels: &[],
        samples: |now| alone(seconds(now.view.time)),
    },
    Family {
        name: "tidegate_recording",
        help: "1 while what the decision core is told is written down (`--record`); 0 after a record has ended before the process.",
        kind: Kind::Gauge,
        labels: &[],
        samples: |now| alone(u64::from(now.view.totals.recording)),
    },
    Family {
        name: "tidegate_loop_rounds_total",
        help: "Rounds of the control loop.",
        kind: Kind::Counter,
        labels: &[],
        samples: |now| alone(now.view.totals.rounds),
    },
    Family {
        name: "tidegate_loop_inputs_total",
        help: "Inputs the control loop took from its inbox.",
        kind: Kind::Counter,
        labels: &[],
        samples: |now| alone(now.view.totals.inputs),
    },
    Family {
        name: "tidegate_decided_pods_total",
        help: "Pods decided to start.",
        kind: Kind::Counter,
        labels: &[],
        samples: |now| alone(now.view.totals.decided),
    },
    Family {
        name: "tidegate_releases_total",
        help: "Releases by what became of them: released, refused (tried again) or gone.",
        kind: Kind::Counter,
        labels: &["outcome"],
        samples: |now| releases(&now.view),
    },
    Family {
        name: "tidegate_gates_opened_by_others_total",
        help: "Gates seen open that this process had not opened while it led: by an earlier leader's last writes, or by hand.",
        kind: Kind::Counter,
        labels: &[],
        samples: |now| alone(now.view.totals.opened_by_others),
    },
    Family {
        name: "tidegate_release_patches_total",
        help: "Patches sent to open gates, repetitions included.",
        kind: Kind::Counter,
        labels: &[],
        samples: |now| alone(now.written.patches),
    },
    Family {
        name: "tidegate_release_retries_total",
        help: "Patches that failed for a moment and were to be repeated.",
        kind: Kind::Counter,
        labels: &[],
        samples: |now| alone(now.written.retries),
    },
    Family {
        name: "tidegate_release_pauses_total",
        help: "Times that releases were paused because an apiserver or its store suffered.",
        kind: Kind::Counter,
        labels: &[],
        samples: |now| alone(now.written.pauses),
    },
    Family {
        name: "tidegate_release_circuit",
        help: "1 for where releases of a cluster stand: closed (they flow), open (paused) or half-open (one at a time, to see).",
        kind: Kind::Gauge,
        labels: &["cluster", "state"],
        samples: |now| circuits(&now.written.flows),
    },
    Family {
        name: "tidegate_release_window",
        help: "Release patches that may be in flight at once; shrinks when an apiserver is in trouble or slow.",
        kind: Kind::Gauge,
        labels: &["cluster"],
        samples: |now| windows(&now.written.flows),
    },
    Family {
        name: "tidegate_evictions_total",
        help: "Evictions by what became of a try: evicted, retried (failed for a moment), guarded (refused by a PodDisruptionBudget) or refused (given up for now, for any other reason).",
        kind: Kind::Counter,
        labels: &["outcome"],
        samples: |now| evictions(&now.written),
    },
    Family {
        name: "tidegate_events_total",
        help: "Kubernetes Events: written, or dropped because refused, failed or too many.",
        kind: Kind::Counter,
        labels: &["outcome"],
        samples: |now| {
            by_label(&[("written", now.written.events), ("dropped", now.written.events_dropped)])
        },
    },
    Family {
        name: "tidegate_queue_statuses_total",
        help: "Writes of queue statuses: written or failed.",
        kind: Kind::Counter,
        labels: &["outcome"],
        samples: |now| {
            by_label(&[("written", now.written.statuses), ("failed", now.written.status_failures)])
        },
    },
    Family {
        name: "tidegate_capacity",
        help: "What all queues share: allocatable of usable nodes less foreign requests.",
        kind: Kind::Gauge,
        labels: &["resource"],
        samples: |now| capacity(&now.view),
    },
    Family {
        name: "tidegate_queue_pending_groups",
        help: "Groups that wait in a queue and below it.",
        kind: Kind::Gauge,
        labels: &["queue"],
        samples: |now| per_queue(&now.view, |row| float(row.pending.0)),
    },
    Family {
        name: "tidegate_queue_pending_pods",
        help: "Pods that wait in a queue and below it.",
        kind: Kind::Gauge,
        labels: &["queue"],
        samples: |now| per_queue(&now.view, |row| float(row.pending.1)),
    },
    Family {
        name: "tidegate_queue_max_pending_pods",
        help: "Pods that may wait in a queue and below it before new ones are refused; absent when not limited.",
        kind: Kind::Gauge,
        labels: &["queue"],
        samples: |now| max_pending(&now.view),
    },
    Family {
        name: "tidegate_queue_backlog_full",
        help: "1 while so many pods wait in a queue and below it that new ones are refused.",
        kind: Kind::Gauge,
        labels: &["queue"],
        samples: |now| per_queue(&now.view, |row| float(u64::from(row.full))),
    },
    Family {
        name: "tidegate_queue_running_groups",
        help: "Groups let go and not ended, in a queue and below it.",
        kind: Kind::Gauge,
        labels: &["queue"],
        samples: |now| per_queue(&now.view, |row| float(row.running.0)),
    },
    Family {
        name: "tidegate_queue_running_pods",
        help: "Pods let go and not ended, in a queue and below it.",
        kind: Kind::Gauge,
        labels: &["queue"],
        samples: |now| per_queue(&now.view, |row| float(row.running.1)),
    },
    Family {
        name: "tidegate_queue_oldest_pending_timestamp_seconds",
        help: "Creation of the pod that has waited longest, in Unix time; 0 when none waits.",
        kind: Kind::Gauge,
        labels: &["queue"],
        samples: |now| oldest(&now.view),
    },
    Family {
        name: "tidegate_queue_dominant_share",
        help: "The largest part of the capacity, of any resource, that a queue is charged: 0 to 1, before weight.",
        kind: Kind::Gauge,
        labels: &["queue"],
        samples: |now| per_queue(&now.view, |row| float(row.share_per_mille) / 1000.0),
    },
    Family {
        name: "tidegate_queue_blocked",
        help: "1 when nothing of a queue may start: stopped, or its configuration is wrong.",
        kind: Kind::Gauge,
        labels: &["queue"],
        samples: |now| per_queue(&now.view, |row| float(u64::from(row.problem.is_some()))),
    },
    Family {
        name: "tidegate_queue_usage",
        help: "What a queue is charged, with those below, in cores, bytes or pieces.",
        kind: Kind::Gauge,
        labels: &["queue", "resource"],
        samples: |now| per_resource(&now.view, |row| &row.usage),
    },
    Family {
        name: "tidegate_queue_limit",
        help: "What a queue may use at most, in cores, bytes or pieces; absent when not limited.",
        kind: Kind::Gauge,
        labels: &["queue", "resource"],
        samples: |now| per_resource(&now.view, |row| &row.limit),
    },
    Family {
        name: "tidegate_queue_guaranteed",
        help: "What is always a queue's own, in cores, bytes or pieces.",
        kind: Kind::Gauge,
        labels: &["queue", "resource"],
        samples: |now| per_resource(&now.view, |row| &row.guaranteed),
    },
];

fn alone(value: u64) -> Samples {
    Samples::from([(Vec::new(), float(value))])
}

fn releases(view: &View) -> Samples {
    let totals = view.totals;
    by_label(&[("released", totals.released), ("refused", totals.refused), ("gone", totals.gone)])
}

fn evictions(written: &Written) -> Samples {
    by_label(&[
        ("evicted", written.evicted),
        ("retried", written.eviction_retries),
        ("guarded", written.evictions_guarded),
        ("refused", written.evictions_refused),
    ])
}

fn by_label(counts: &[(&str, u64)]) -> Samples {
    counts.iter().map(|&(label, count)| (vec![label.into()], float(count))).collect()
}

fn circuits(flows: &[Flow]) -> Samples {
    let states = |flow: &Flow| {
        let (cluster, now) = (flow.cluster.clone(), flow.state);
        CIRCUIT_STATES
            .map(|state| (vec![cluster.clone(), state.into()], float(u64::from(state == now))))
    };
    flows.iter().flat_map(states).collect()
}

fn windows(flows: &[Flow]) -> Samples {
    flows.iter().map(|flow| (vec![flow.cluster.clone()], f64::from(flow.window))).collect()
}

fn capacity(view: &View) -> Samples {
    let amounts = view.capacity.iter().take(RESOURCES);
    amounts.map(|(resource, amount)| (vec![resource.clone()], value(amount))).collect()
}

/// Queues that exist, each with its label.
fn labelled(view: &View) -> impl Iterator<Item = (Arc<str>, &QueueRow)> {
    let existing = view.queues.values().filter(|row| row.exists).enumerate();
    existing.map(|(at, row)| (if at < QUEUES { row.name.clone() } else { OTHER.into() }, row))
}

fn per_queue(view: &View, of: fn(&QueueRow) -> f64) -> Samples {
    let mut samples = Samples::new();
    for (queue, row) in labelled(view) {
        *samples.entry(vec![queue]).or_default() += of(row);
    }
    samples
}

fn max_pending(view: &View) -> Samples {
    let mut samples = Samples::new();
    for (queue, row) in labelled(view) {
        if let Some(most) = row.max_pending {
            *samples.entry(vec![queue.clone()]).or_default() += float(most);
        }
    }
    samples
}

/// Times are not summed: of many queues the earliest counts.
fn oldest(view: &View) -> Samples {
    let mut samples = Samples::new();
    for (queue, row) in labelled(view) {
        let oldest = row.oldest.map_or(0.0, |time| float(seconds(time)));
        let known = samples.entry(vec![queue]).or_insert(oldest);
        if oldest > 0.0 && (*known <= 0.0 || oldest < *known) {
            *known = oldest;
        }
    }
    samples
}

fn per_resource(view: &View, of: fn(&QueueRow) -> &Amounts) -> Samples {
    let mut samples = Samples::new();
    for (queue, row) in labelled(view) {
        for (resource, amount) in of(row).iter().take(RESOURCES) {
            *samples.entry(vec![queue.clone(), resource.clone()]).or_default() += value(amount);
        }
    }
    samples
}

/// A quantity as cores, bytes or pieces; the view's own always parse.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows floats only")]
fn value(amount: &str) -> f64 {
    quantity::parse(amount).map_or(f64::NAN, |quantity| quantity.nanos() as f64 / 1e9)
}

/// Milliseconds since the epoch as seconds.
fn seconds(millis: i64) -> u64 {
    u64::try_from(millis / 1000).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows floats only")]
fn float(count: u64) -> f64 {
    count as f64
}

/// Reads the newest view at each scrape.
struct Scrape {
    view: Published,
    writes: Writes,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let now = Moment { view: self.view.load_full(), written: (self.writes)() };
        FAMILIES.iter().try_for_each(|family| family.encode(&now, &mut encoder))
    }
}

impl Family {
    fn encode(&self, now: &Moment, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        // The encoder adds the ending of counters itself.
        let name = self.name.trim_end_matches("_total");
        let mut metric = encoder.encode_descriptor(name, self.help, None, self.kind.type_())?;
        for (values, value) in (self.samples)(now) {
            let labels: Vec<(&str, &str)> =
                self.labels.iter().copied().zip(values.iter().map(|value| &**value)).collect();
            let sample = metric.encode_family(&labels)?;
            match self.kind {
                Kind::Counter => ConstCounter::new(value).encode(sample)?,
                Kind::Gauge => ConstGauge::new(value).encode(sample)?,
            }
        }
        Ok(())
    }
}

impl Kind {
    fn type_(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{assert_current, view};

    fn text(view: View) -> String {
        let published = crate::view::published();
        published.store(Arc::new(view));
        let mut registry = Registry::default();
        let flow = Flow { cluster: "hub".into(), state: "open", window: 1 };
        let writes: Writes = Arc::new(move || Written {
            patches: 3,
            retries: 1,
            flows: vec![flow.clone()],
            ..Written::default()
        });
        registry.register_collector(Box::new(Scrape { view: published, writes }));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn a_scrape_shows_the_view() {
        let text = text(view());
        let values: Vec<_> = text.lines().filter(|line| !line.starts_with("# HELP")).collect();
        insta::assert_snapshot!(values.join("\n"), @r#"
        # TYPE tidegate_build_info gauge
        tidegate_build_info{version="0.1.0"} 1.0
        # TYPE tidegate_synced gauge
        tidegate_synced 1.0
        # TYPE tidegate_leader gauge
        tidegate_leader 0.0
        # TYPE tidegate_view_timestamp_seconds gauge
        tidegate_view_timestamp_seconds 1796067834.0
        # TYPE tidegate_recording gauge
        tidegate_recording 0.0
        # TYPE tidegate_loop_rounds_total counter
        tidegate_loop_rounds_total 0.0
        # TYPE tidegate_loop_inputs_total counter
        tidegate_loop_inputs_total 0.0
        # TYPE tidegate_decided_pods_total counter
        tidegate_decided_pods_total 0.0
        # TYPE tidegate_releases_total counter
        tidegate_releases_total{outcome="gone"} 0.0
        tidegate_releases_total{outcome="refused"} 0.0
        tidegate_releases_total{outcome="released"} 0.0
        # TYPE tidegate_gates_opened_by_others_total counter
        tidegate_gates_opened_by_others_total 0.0
        # TYPE tidegate_release_patches_total counter
        tidegate_release_patches_total 3.0
        # TYPE tidegate_release_retries_total counter
        tidegate_release_retries_total 1.0
        # TYPE tidegate_release_pauses_total counter
        tidegate_release_pauses_total 0.0
        # TYPE tidegate_release_circuit gauge
        tidegate_release_circuit{cluster="hub",state="closed"} 0.0
        tidegate_release_circuit{cluster="hub",state="half-open"} 0.0
        tidegate_release_circuit{cluster="hub",state="open"} 1.0
        # TYPE tidegate_release_window gauge
        tidegate_release_window{cluster="hub"} 1.0
        # TYPE tidegate_evictions_total counter
        tidegate_evictions_total{outcome="evicted"} 0.0
        tidegate_evictions_total{outcome="guarded"} 0.0
        tidegate_evictions_total{outcome="refused"} 0.0
        tidegate_evictions_total{outcome="retried"} 0.0
        # TYPE tidegate_events_total counter
        tidegate_events_total{outcome="dropped"} 0.0
        tidegate_events_total{outcome="written"} 0.0
        # TYPE tidegate_queue_statuses_total counter
        tidegate_queue_statuses_total{outcome="failed"} 0.0
        tidegate_queue_statuses_total{outcome="written"} 0.0
        # TYPE tidegate_capacity gauge
        tidegate_capacity{resource="cpu"} 16.0
        tidegate_capacity{resource="memory"} 68719476736.0
        # TYPE tidegate_queue_pending_groups gauge
        tidegate_queue_pending_groups{queue="a"} 3.0
        tidegate_queue_pending_groups{queue="org"} 3.0
        # TYPE tidegate_queue_pending_pods gauge
        tidegate_queue_pending_pods{queue="a"} 8.0
        tidegate_queue_pending_pods{queue="org"} 8.0
        # TYPE tidegate_queue_max_pending_pods gauge
        tidegate_queue_max_pending_pods{queue="a"} 8.0
        # TYPE tidegate_queue_backlog_full gauge
        tidegate_queue_backlog_full{queue="a"} 1.0
        tidegate_queue_backlog_full{queue="org"} 0.0
        # TYPE tidegate_queue_running_groups gauge
        tidegate_queue_running_groups{queue="a"} 1.0
        tidegate_queue_running_groups{queue="org"} 1.0
        # TYPE tidegate_queue_running_pods gauge
        tidegate_queue_running_pods{queue="a"} 7.0
        tidegate_queue_running_pods{queue="org"} 7.0
        # TYPE tidegate_queue_oldest_pending_timestamp_seconds gauge
        tidegate_queue_oldest_pending_timestamp_seconds{queue="a"} 1796067744.0
        tidegate_queue_oldest_pending_timestamp_seconds{queue="org"} 1796067744.0
        # TYPE tidegate_queue_dominant_share gauge
        tidegate_queue_dominant_share{queue="a"} 0.437
        tidegate_queue_dominant_share{queue="org"} 0.437
        # TYPE tidegate_queue_blocked gauge
        tidegate_queue_blocked{queue="a"} 0.0
        tidegate_queue_blocked{queue="org"} 0.0
        # TYPE tidegate_queue_usage gauge
        tidegate_queue_usage{queue="a",resource="cpu"} 7.0
        tidegate_queue_usage{queue="org",resource="cpu"} 7.0
        # TYPE tidegate_queue_limit gauge
        tidegate_queue_limit{queue="a",resource="cpu"} 8.0
        tidegate_queue_limit{queue="org",resource="cpu"} 8.0
        # TYPE tidegate_queue_guaranteed gauge
        "#);
    }

    #[test]
    fn queues_that_do_not_exist_have_no_label() {
        let mut view = view();
        view.queues.get_mut("a").unwrap().exists = false;
        assert!(!text(view).contains("queue=\"a\""));
    }

    #[test]
    fn of_ten_thousand_queues_with_the_longest_names_those_beyond_the_bound_are_summed() {
        let mut view = view();
        view.queues.clear();
        for number in 0..10_000i64 {
            let name: Arc<str> = format!("q{number:062}").into();
            let row = QueueRow {
                name: name.clone(),
                exists: true,
                pending: (1, 2),
                oldest: Some(number * 1000),
                ..QueueRow::default()
            };
            view.queues.insert(name, row);
        }
        let text = text(view);
        let pending = "tidegate_queue_pending_pods{queue=\"_other\"} 18000.0";
        assert!(text.lines().any(|line| line == pending));
        let oldest = "tidegate_queue_oldest_pending_timestamp_seconds{queue=\"_other\"} 1000.0";
        assert!(text.lines().any(|line| line == oldest));
        assert_eq!(text.matches("tidegate_queue_pending_pods{").count(), QUEUES + 1);
        assert!(text.len() < 2 << 20, "{} bytes", text.len());
    }

    #[test]
    fn the_committed_table_is_current() {
        let rows = FAMILIES.iter().map(|family| {
            let kind = family.kind.type_();
            let kind = kind.as_str();
            let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{}` | {kind} | {} | {} |\n", family.name, labels.join(", "), family.help)
        });
        let rows: Vec<_> = rows.collect();
        let page = format!(
            "# Metrics\n\nServed as Prometheus text at `/metrics` of the controller's plain HTTP port. \
             Made from the list in `src/report/metrics.rs`; `TIDEGATE_BLESS=1 cargo test --lib metrics` \
             rewrites it.\n\nLabel `queue` has a value for each queue that exists, the first {QUEUES} by name; \
             all others are summed as `{OTHER}`. Label `resource` has a value for the first {RESOURCES} by \
             name. Counters start again at 0 with the process.\n\n\
             | metric | type | labels | meaning |\n|---|---|---|---|\n{}",
            rows.concat()
        );
        assert_current("docs/metrics.md", &page);
    }
}
