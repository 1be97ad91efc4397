//! Tidegate goes: what waits is let go, nothing stays behind, and it can come back.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Namespace, Pod},
    scheduling::v1::PriorityClass,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    rights,
    support::{
        audit,
        lab::{Lab, bare_pod, is_gated},
        process::Process,
        tidegate::{Install, NAMESPACE, Tidegate, cli, kubectl, program},
        wait,
    },
};

const ACCOUNT: &str = "tidegate-uninstall";
/// The Job's pod finds no node until we add one: what it is to do is done here.
const NOWHERE: &str = "controller.nodeSelector.uninstall=now";
const LOW: usize = 8;
const HIGH: usize = 4;

#[tokio::test]
async fn after_helm_uninstall_nothing_waits_and_nothing_is_left() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    let lab = Lab::on(&tidegate, "leaving", json!({"stop": "Hold"})).await?;
    let left = leave(&lab).await;
    // And back again, whatever came of it.
    tidegate.helm(&["upgrade", "--install"], &Install::default()).await?;
    tidegate.start_controller().await?;
    tidegate.start_webhook().await?;
    tidegate.ready().await?;
    left
}

async fn leave(lab: &Lab) -> Result<()> {
    let tidegate = lab.tidegate;
    tidegate.helm(&["upgrade"], &Install { values: vec![NOWHERE.to_owned()] }).await?;
    stand_in(lab).await?;
    waiting_pods(lab).await?;
    let hook = async {
        let args = hook_args(lab).await?;
        interrupted(lab, &args).await?;
        let kubeconfig = tidegate.account_kubeconfig(NAMESPACE, ACCOUNT).await?;
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let output = cli(&kubeconfig, &args).await?;
        ensure!(output.code == 0, "{output:?}");
        let granted = rights::granted(&lab.client, ACCOUNT).await?;
        tidegate.cluster().add_node(json!({"name": "end", "labels": {"uninstall": "now"}})).await?;
        rights::all_used_and_none_missing(tidegate.cluster(), ACCOUNT, &granted)
    };
    let (uninstalled, hooked) = tokio::join!(tidegate.helm_uninstall(), hook);
    hooked?;
    uninstalled?;
    tidegate.stop_webhook("TERM")?;
    tidegate.cluster().remove_node("end").await?;
    in_order(lab)?;
    nothing_is_left(lab).await?;
    nothing_is_held(lab).await
}

/// A pod of the controller's Deployment, of which a test's installation has none.
async fn stand_in(lab: &Lab) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let one = Patch::Merge(json!({"spec": {"replicas": 1}}));
    deployments.patch_scale("tidegate-controller", &PatchParams::default(), &one).await?;
    wait::until("the controller's pod is there", wait::SOON, async || {
        let status = deployments.get("tidegate-controller").await?.status.unwrap_or_default();
        Ok(status.replicas == Some(1))
    })
    .await
}

/// The less urgent first, so that age alone would give another order.
async fn waiting_pods(lab: &Lab) -> Result<()> {
    let classes: Api<PriorityClass> = Api::all(lab.client.clone());
    let class = json!({"metadata": {"name": "leaving-first"}, "value": 1000});
    classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
    for number in 0..LOW {
        lab.pod(&format!("low-{number}"), "10m").await?;
    }
    for number in 0..HIGH {
        let mut pod = bare_pod(&format!("high-{number}"), "10m");
        pod["spec"]["priorityClassName"] = json!("leaving-first");
        lab.create(pod).await?;
    }
    lab.all_gated(LOW + HIGH).await.map(drop)
}

/// What the chart's Job runs.
async fn hook_args(lab: &Lab) -> Result<Vec<String>> {
    let jobs: Api<Job> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let job =
        wait::for_some("the Job is there", wait::SOON, async || Ok(jobs.get_opt(ACCOUNT).await?))
            .await?;
    let pod = job.spec.and_then(|spec| spec.template.spec).context("no pod")?;
    let container = pod.containers.into_iter().next().context("no container")?;
    Ok(container.args.unwrap_or_default())
}

/// A first run, one gate at a time so that the order shows, that is killed half-way. The controller ends when its Deployment is scaled to
/// nothing, as its pod would.
async fn interrupted(lab: &Lab, args: &[String]) -> Result<()> {
    let kubeconfig = lab.tidegate.account_kubeconfig(NAMESPACE, ACCOUNT).await?;
    let mut command = std::process::Command::new(program());
    command.args(args).arg("--in-flight=1").env("KUBECONFIG", kubeconfig);
    let process = Process::start("uninstall", &command, lab.tidegate.cluster().dir())?;
    let deployments: Api<Deployment> = Api::namespaced(lab.client.clone(), NAMESPACE);
    wait::until("the controller is to stop", wait::SOON, async || {
        let spec = deployments.get("tidegate-controller").await?.spec.unwrap_or_default();
        Ok(spec.replicas == Some(0))
    })
    .await?;
    lab.tidegate.stop_controller("TERM")?;
    wait::until("the urgent ones are let go", wait::SOON, async || {
        Ok(lab.pods().await?.iter().filter(|pod| !is_gated(pod)).count() >= HIGH)
    })
    .await?;
    process.end("KILL")
}

/// Each pod saw one PATCH, the urgent ones first.
fn in_order(lab: &Lab) -> Result<()> {
    let mut writes = audit::writes(lab.tidegate.cluster())?;
    writes.retain(|write| write.user.ends_with(ACCOUNT) && write.namespace == lab.namespace);
    writes.sort_by_key(|write| write.time);
    let names: Vec<_> = writes.iter().map(|write| write.name.as_str()).collect();
    // The one whose answer a killed process did not see may be asked for twice.
    let unique: BTreeSet<_> = names.iter().collect();
    ensure!(unique.len() == LOW + HIGH && names.len() <= LOW + HIGH + 1, "{names:?}");
    let last = names.iter().rposition(|name| name.starts_with("high"));
    let first = names.iter().position(|name| name.starts_with("low"));
    ensure!(last < first, "{names:?}");
    Ok(())
}

/// Of everything that the apiserver can list, only what people made is left.
async fn nothing_is_left(lab: &Lab) -> Result<()> {
    let kubeconfig = lab.tidegate.cluster().kubeconfig();
    let kinds = kubectl(kubeconfig, &["api-resources", "--verbs=list", "-o", "name"]).await?;
    ensure!(kinds.code == 0, "{kinds:?}");
    let kinds: Vec<_> = kinds.stdout.lines().filter(|kind| !kind.starts_with("events")).collect();
    wait::until("nothing of Tidegate is left", wait::SOON, async || {
        let all = kubectl(kubeconfig, &["get", &kinds.join(","), "-A", "-o", "name"]).await?;
        ensure!(all.code == 0, "{all:?}");
        let made_by_people = |line: &&str| {
            // Their kind stays with them, and the apiserver's own entry for its group.
            line.starts_with("queue.tidegate.dev/")
                || line.ends_with("/queues.tidegate.dev")
                || line.ends_with("/v1alpha1.tidegate.dev")
                || *line == format!("namespace/{NAMESPACE}")
        };
        let ours = all.stdout.lines().filter(|line| line.contains("tidegate"));
        let left: Vec<_> = ours.filter(|line| !made_by_people(line)).collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(true)
    })
    .await
}

/// Pods run, new ones are not gated, queues can be changed and namespaces go.
async fn nothing_is_held(lab: &Lab) -> Result<()> {
    let pods = lab.pods().await?;
    ensure!(pods.len() == LOW + HIGH && !pods.iter().any(is_gated));
    ensure!(!is_gated(&lab.pod("later", "10m").await?));
    wait::until("the scheduler has looked at all", wait::SOON, async || {
        Ok(lab.pods().await?.iter().all(is_scheduled_or_has_no_room))
    })
    .await?;
    lab.set_queue(&lab.namespace, json!({"weight": 3})).await?;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    namespaces.delete(&lab.namespace, &DeleteParams::default()).await?;
    wait::until("the namespace is gone", Duration::from_secs(90), async || {
        Ok(namespaces.get_opt(&lab.namespace).await?.is_none())
    })
    .await
}

/// What other tests left may fill the nodes.
fn is_scheduled_or_has_no_room(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| {
        let unschedulable = condition.reason.as_deref() == Some("Unschedulable");
        condition.type_ == "PodScheduled" && (condition.status == "True" || unschedulable)
    })
}
