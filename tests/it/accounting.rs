//! What a pod costs: the same as the real scheduler reserves for it.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{lab::Lab, wait};

fn container(name: &str, cpu: &str) -> Value {
    json!({"name": name, "image": "pause", "resources": {"requests": {"cpu": cpu}}})
}

fn sidecar(name: &str, cpu: &str) -> Value {
    let mut sidecar = container(name, cpu);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

fn pod(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["terminationGracePeriodSeconds"] = json!(0);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// Specs by name, and what each costs in thousandths of a CPU.
fn specs() -> Vec<(&'static str, u32, Value)> {
    let app = |cpu| json!([container("app", cpu)]);
    vec![
        (
            "sidecar-first",
            300,
            json!({"containers": app("100m"),
                "initContainers": [sidecar("proxy", "100m"), container("setup", "200m")]}),
        ),
        (
            "init-first",
            200,
            json!({"containers": app("100m"),
                "initContainers": [container("setup", "200m"), sidecar("proxy", "100m")]}),
        ),
        (
            "init-between",
            400,
            json!({"containers": app("50m"), "initContainers": [
                sidecar("s1", "100m"), container("setup", "300m"), sidecar("s2", "200m")]}),
        ),
        (
            "two-containers",
            350,
            json!({"containers": [container("a", "100m"), container("b", "250m")]}),
        ),
        (
            "limits-only",
            700,
            json!({"containers": [{"name": "app", "image": "pause",
                "resources": {"limits": {"cpu": "700m"}}}]}),
        ),
        (
            "pod-level",
            600,
            json!({"containers": app("100m"), "resources": {"requests": {"cpu": "600m"}},
                "initContainers": [container("migrate", "550m")]}),
        ),
        (
            "pod-level-limit",
            500,
            json!({"containers": [{"name": "app", "image": "pause"}],
                "resources": {"limits": {"cpu": "500m"}}}),
        ),
        (
            "pod-level-memory",
            150,
            json!({"containers": app("150m"), "resources": {"requests": {"memory": "1Gi"}}}),
        ),
        ("fraction", 1, json!({"containers": app("0.0005")})),
        ("overhead", 350, json!({"containers": app("100m"), "runtimeClassName": "costly"})),
    ]
}

async fn runtime_class(lab: &Lab) -> Result<()> {
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "costly"}, "handler": "fake", "overhead": {"podFixed": {"cpu": "250m"}}});
    match lab.create(class).await {
        Err(error) if !format!("{error:#}").contains("already exists") => Err(error),
        _ => Ok(()),
    }
}

/// A node of exactly the cost takes the pod; one thousandth less and the scheduler refuses.
#[tokio::test]
async fn the_scheduler_reserves_what_the_queue_charges() -> Result<()> {
    let lab = Lab::new("cost-scheduler", json!({})).await?;
    runtime_class(&lab).await?;
    let nodes: Api<Node> = Api::all(lab.client.clone());
    for (name, milli, spec) in specs() {
        let node = format!("exact-{name}");
        let taint = json!([{"key": "exact", "value": name, "effect": "NoSchedule"}]);
        let cluster = lab.tidegate.cluster();
        let allocatable = format!("{}m", milli.saturating_sub(1));
        let labels = json!({"exact": name});
        cluster
            .add_node(json!({"name": node, "cpu": allocatable, "labels": labels, "taints": taint}))
            .await?;
        let mut spec = spec;
        spec["nodeSelector"] = json!({"exact": name});
        spec["tolerations"] = json!([{"key": "exact", "operator": "Exists"}]);
        lab.create(pod(name, spec)).await?;
        lab.released_at_least(name).await?;
        wait::until(&format!("{name} does not fit one less"), wait::SOON, async || {
            let status = lab.pod_api().get(name).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            Ok(conditions.iter().any(|c| c.reason.as_deref() == Some("Unschedulable")))
        })
        .await?;
        let grow = json!({"status": {"capacity": {"cpu": format!("{milli}m")},
            "allocatable": {"cpu": format!("{milli}m")}}});
        nodes.patch_status(&node, &PatchParams::default(), &Patch::Merge(grow)).await?;
        wait::until(&format!("{name} fits exactly"), wait::SOON, async || {
            let pod = lab.pod_api().get(name).await?;
            Ok(pod.spec.and_then(|spec| spec.node_name).is_some())
        })
        .await?;
        lab.usage_is("cpu", &plain(milli)).await?;
        lab.pod_api().delete(name, &DeleteParams::default()).await?;
        lab.usage_is("cpu", "0").await?;
        cluster.remove_node(&node).await?;
    }
    Ok(())
}

fn plain(milli: u32) -> String {
    if milli.is_multiple_of(1000) { (milli / 1000).to_string() } else { format!("{milli}m") }
}

#[tokio::test]
async fn a_queue_filled_to_the_last_thousandth_takes_all_and_one_less_leaves_the_last() -> Result<()>
{
    let lab = Lab::new("cost-exact", json!({"limit": {"cpu": "899m"}})).await?;
    let mut names = Vec::new();
    for (name, _, spec) in specs().into_iter().take(2) {
        lab.create(pod(name, spec)).await?;
        names.push(name);
        lab.released(&names).await?;
    }
    let (last, _, spec) = specs().remove(2);
    lab.create(pod(last, spec)).await?;
    lab.why_says(&format!("pod/{last}"), "1m missing").await?;
    lab.usage_is("cpu", "500m").await?;
    lab.set_queue(&lab.namespace, json!({"limit": {"cpu": "900m"}})).await?;
    names.push(last);
    lab.released(&names).await?;
    lab.usage_is("cpu", "900m").await
}

#[tokio::test]
async fn what_is_stored_counts_after_defaults_of_a_limit_range() -> Result<()> {
    let lab = Lab::new("cost-range", json!({"limit": {"cpu": "10499m"}})).await?;
    lab.create(json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}}))
        .await?;
    let limits = json!({"limits": {"cpu": 3}});
    let plain = |resources: Value| {
        json!({"restartPolicy": "Always",
            "containers": [{"name": "app", "image": "pause", "resources": resources}]})
    };
    lab.create(pod("limits-only", plain(limits.clone()))).await?;
    lab.create(pod("bare", plain(json!({})))).await?;
    lab.create(pod("explicit", plain(json!({"requests": {"cpu": "500m"}})))).await?;
    lab.released(&["bare", "explicit", "limits-only"]).await?;
    lab.usage_is("cpu", "4500m").await?;
    lab.create(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pair"},
        "spec": {"parallelism": 2, "completions": 2, "template": {
            "metadata": {"annotations": {"fake.tidegate.dev/duration": "1h"}},
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "app", "image": "pause", "resources": limits}]}}}}))
        .await?;
    lab.usage_is("cpu", "7500m").await?;
    lab.why_says("job/pair", "1m missing").await?;
    lab.set_queue(&lab.namespace, json!({"limit": {"cpu": "10500m"}})).await?;
    lab.usage_is("cpu", "10500m").await
}

#[tokio::test]
async fn amounts_beyond_int64_are_large_never_zero_and_never_negative() -> Result<()> {
    let lab = Lab::new(
        "cost-huge",
        json!({"limit": {"cpu": "1E", "ephemeral-storage": "10P", "memory": "1Ti",
            "example.com/tokens": "5E"}}),
    )
    .await?;
    let node = "tokens";
    lab.tidegate
        .cluster()
        .add_node(json!({"name": node, "extended": {"example.com/tokens": "9223372036854775807"}}))
        .await?;
    let asks = |resources: Value| json!({"containers": [{"name": "app", "image": "pause", "resources": resources}]});
    let requests = |name: &str, amount: &str| json!({"requests": {name: amount}});
    lab.create(pod("normal", asks(json!({"requests": {"cpu": 3, "ephemeral-storage": "1Gi"}}))))
        .await?;
    lab.create(pod("huge-memory", asks(requests("memory", "50E")))).await?;
    let tokens = json!({"limits": {"example.com/tokens": "4611686018427387904"}});
    lab.create(pod("tokens-a", asks(tokens.clone()))).await?;
    lab.released(&["normal", "tokens-a"]).await?;
    lab.create(pod("tokens-b", asks(tokens))).await?;
    lab.why_says("pod/tokens-b", "limit of queue").await?;
    lab.why_says("pod/huge-memory", "larger than").await?;
    lab.usage_is("example.com/tokens", "4611686018427387904").await?;
    lab.released(&["normal", "tokens-a"]).await?;
    lab.tidegate.cluster().remove_node(node).await
}

/// What the schema refuses, and with which words.
#[rstest]
#[case::negative(json!({"limit": {"cpu": "-1"}}), "negative")]
#[case::malformed(json!({"limit": {"cpu": "1 core"}}), "quantity")]
#[case::guaranteed_above_limit(json!({"guaranteed": {"cpu": 2}, "limit": {"cpu": "1999m"}}), "guaranteed")]
#[case::weight_zero(json!({"weight": 0}), "weight")]
#[case::unknown_field(json!({"wieght": 2}), "wieght")]
#[case::unknown_order(json!({"order": "Fifo"}), "order")]
#[case::unknown_growth(json!({"growth": "Never"}), "growth")]
#[case::no_half_life(json!({"usageHalfLife": "0s"}), "at least a minute")]
#[case::half_life_too_long(json!({"usageHalfLife": "8761h"}), "at most a year")]
#[case::half_life_without_a_unit(json!({"usageHalfLife": "7"}), "usageHalfLife")]
#[case::unknown_parent(json!({"parent": "nobody"}), "nobody")]
#[tokio::test]
async fn a_queue_that_makes_no_sense_is_refused_with_its_reason(
    #[case] spec: Value,
    #[case] word: &str,
) -> Result<()> {
    let lab = Lab::shared_client().await?;
    let queue = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "Queue",
        "metadata": {"name": "senseless"}, "spec": spec});
    let refused = lab.create_strict(queue).await;
    let Err(error) = refused else { anyhow::bail!("it was taken") };
    let text = format!("{error:#}");
    ensure!(text.contains(word), "the refusal does not say {word:?}: {text}");
    Ok(())
}

/// Every way to write an amount that Kubernetes knows.
#[rstest]
#[case("1E")]
#[case("1e3")]
#[case("100m")]
#[case("1.5Gi")]
#[case("9223372036854775808")]
#[tokio::test]
async fn every_way_to_write_an_amount_is_taken(#[case] amount: &str) -> Result<()> {
    let lab = Lab::shared_client().await?;
    let name = format!("amount-{}", amount.to_lowercase());
    lab.queue(&name, json!({"limit": {"memory": amount}})).await?;
    wait::until("the queue is ready", wait::SOON, async || {
        let queue = lab.get_queue(&name).await?;
        let conditions = queue.status.clone().unwrap_or_default().conditions;
        ensure!(queue.name_any() == name);
        Ok(conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
    })
    .await
}
