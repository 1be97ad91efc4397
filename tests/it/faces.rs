//! What people see of real work: kubectl, the command line, metrics; and who may see it.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    lab::{Lab, bare_pod, deployment, job},
    made_up,
    process::Process,
    tidegate::{Output, Tidegate, cli, kubectl, program},
    wait,
};

/// Something of each sort in a queue with room for one: the Job's first pod runs.
async fn furnished(name: &str) -> Result<Lab> {
    let lab = Lab::new(name, json!({"limit": {"cpu": "1"}})).await?;
    lab.create(job("counts", 2, "1", "1h")).await?;
    lab.why_says("job/counts", "limit of queue").await?;
    lab.create(deployment("serves", 1, "500m")).await?;
    lab.create(bare_pod("alone", "500m")).await?;
    made_up::install(&lab.client).await?;
    lab.create(made_up::object("flies", 1)).await?;
    wait::until("all are known to wait", wait::SOON, async || {
        let groups = lab.groups().await?;
        let waiting = groups.iter().filter_map(|group| group["counts"]["waiting"].as_u64());
        Ok(waiting.sum::<u64>() == 5)
    })
    .await?;
    Ok(lab)
}

/// Columns of each line of a table that is about this namespace, without names made by chance.
fn rows(table: &str, namespace: &str) -> Vec<Vec<String>> {
    let lines = table.lines().filter(|line| line.split_whitespace().next() == Some(namespace));
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn well(output: Output) -> Result<String> {
    ensure!(output.code == 0, "ended with {}: {}{}", output.code, output.stdout, output.stderr);
    Ok(output.stdout)
}

/// The name of the group of an object.
async fn group_of(lab: &Lab, root: &str) -> Result<String> {
    let groups = lab.groups().await?;
    let group = groups.iter().find(|group| group["root"]["name"] == root);
    let name = group.context("no such group")?["metadata"]["name"].as_str();
    Ok(name.context("a group without name")?.to_owned())
}

#[tokio::test]
async fn kubectl_shows_groups_of_real_work_and_why_they_wait() -> Result<()> {
    let lab = furnished("face-kubectl").await?;
    let admin = lab.tidegate.cluster().kubeconfig();
    let run = async |args: &[&str]| well(kubectl(admin, args).await?);

    let table = run(&["get", "groups", "-A", "-o", "wide"]).await?;
    // Names, ages and who of the same second is ahead are made by chance.
    let mut shown: Vec<String> = rows(&table, &lab.namespace)
        .iter()
        .map(|row| [&row[10..11], &row[2..6], &row[7..9]].concat().join(" "))
        .collect();
    shown.sort();
    insta::assert_snapshot!(shown.join("\n"), @"
    Deployment/serves face-kubectl Waiting 0/1 QueueLimit 0 cpu=500m,pods=1
    Flock/flies face-kubectl Waiting 0/2 QueueLimit 0 cpu=100m,pods=1
    Job/counts face-kubectl PartlyReleased 1/2 QueueLimit 0 cpu=1,pods=1
    Pod/alone face-kubectl Waiting 0/1 QueueLimit 0 cpu=500m,pods=1
    ");

    let group = group_of(&lab, "counts").await?;
    let of = ["-n", lab.namespace.as_str()];
    let kind = "groups.visibility.tidegate.dev";
    let yaml = run(&[&["get", kind, &group, "-o", "yaml"], &of[..]].concat()).await?;
    let object: Value = serde_yaml::from_str(&yaml)?;
    ensure!(object["state"] == "PartlyReleased" && object["charged"]["cpu"] == "1", "{yaml}");
    ensure!(object["wait"]["reason"] == "QueueLimit", "{yaml}");

    let path = format!(
        "/apis/visibility.tidegate.dev/v1alpha1/namespaces/{}/groups/{group}/explanation",
        lab.namespace
    );
    let explanation: Value = serde_json::from_str(&run(&["get", "--raw", &path]).await?)?;
    ensure!(explanation["queuePath"][0]["usage"]["cpu"] == "1", "{explanation:#}");
    ensure!(explanation["pods"].as_array().is_some_and(|pods| pods.len() == 2), "{explanation:#}");
    Ok(())
}

#[tokio::test]
async fn the_command_line_explains_every_kind_of_work() -> Result<()> {
    let lab = furnished("face-cli").await?;
    let cli = async |args: &[&str]| well(lab.tidegate.cli(args).await?);

    wait::until("the queue's status is written", wait::SOON, async || {
        let queues = cli(&["queues", &lab.namespace]).await?;
        let row = rows(&queues, &lab.namespace).pop().context("no such queue")?;
        ensure!(row[1..4] == ["1", "5", "1"] && queues.contains("cpu 1,"), "{queues}");
        Ok(true)
    })
    .await?;

    let pending = cli(&["pending", "-n", &lab.namespace, "-o", "wide"]).await?;
    for root in ["Job/counts", "Deployment/serves", "Pod/alone", "Flock/flies"] {
        ensure!(pending.contains(root), "{root} is not there: {pending}");
    }
    for (object, headline) in [
        ("job/counts", "Job/counts in namespace face-cli: PartlyReleased"),
        ("deploy/serves", "Deployment/serves -> ReplicaSet/serves-"),
        ("pod/alone", "Pod/alone in namespace face-cli: Waiting"),
        ("flock/flies", "Flock/flies in namespace face-cli: Waiting"),
        ("flocks.inhouse.example.com/flies", "Flock/flies"),
        ("pod/flies-bird-1", "Flock/flies"),
    ] {
        let why = lab.why(object).await?;
        ensure!(why.contains(headline), "{object}: {why}");
        ensure!(why.contains("limit of queue \"face-cli\": needs "), "{why}");
    }
    // What runs has no wait to explain and is explained all the same.
    lab.set_queue(&lab.namespace, json!({"limit": {"cpu": "100"}})).await?;
    lab.why_says("pod/alone", "Pod/alone in namespace face-cli: Running").await
}

#[tokio::test]
async fn what_holds_pods_that_were_let_go_and_what_is_ignored_is_shown() -> Result<()> {
    let lab = Lab::new("face-held", json!({})).await?;
    let mut typo = job("typo", 1, "100m", "1h");
    let template = &mut typo["spec"]["template"];
    template["metadata"]["annotations"]["tidegate.dev/min-count"] = json!("many");
    template["spec"]["nodeSelector"] = json!({"example.com/nowhere": "x"});
    lab.create(typo).await?;
    lab.create(job("done", 2, "100m", "1ms")).await?;
    lab.why_says("job/typo", "let go, and not on a node: Unschedulable").await?;
    let why = lab.why("job/typo").await?;
    ensure!(why.contains("nodes are available"), "{why}");
    ensure!(why.contains("Warning:\n  annotation tidegate.dev/min-count=\"many\""), "{why}");
    wait::until("a warning Event says what is ignored", wait::SOON, async || {
        let events = lab.events().await?;
        let told = |reason: &str| events.iter().any(|e| e.reason.as_deref() == Some(reason));
        Ok(told("Misconfigured"))
    })
    .await?;
    lab.completes("done").await?;
    wait::until("kubectl shows both", wait::SOON, async || {
        let admin = lab.tidegate.cluster().kubeconfig();
        let table = well(kubectl(admin, &["get", "groups", "-n", "face-held"]).await?)?;
        let row = |name: &str| table.lines().find(|line| line.contains(name)).unwrap_or_default();
        ensure!(
            row("typo").contains("Released") && row("typo").contains("Unschedulable"),
            "{table}"
        );
        ensure!(row("done").contains("Ended") && row("done").contains("2/2"), "{table}");
        Ok(true)
    })
    .await?;
    for args in [["-n", "face-nobody"], ["--queue", "face-nobody"]] {
        let output = lab.tidegate.cli(&[&["pending"], &args[..]].concat()).await?;
        ensure!(output.code == 3 && output.stderr.contains("face-nobody"), "{args:?}: {output:?}");
    }
    Ok(())
}

/// A kubeconfig of a ServiceAccount with the role `view` in this namespace.
async fn viewer(lab: &Lab, account: &str) -> Result<PathBuf> {
    lab.create(
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}),
    )
    .await?;
    lab.create(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": lab.namespace}]}))
        .await?;
    lab.kubeconfig(account).await
}

#[tokio::test]
async fn a_tenant_who_may_view_its_namespace_sees_its_groups_and_no_others() -> Result<()> {
    let theirs = furnished("face-theirs").await?;
    let lab = Lab::new("face-tenant", json!({"stop": "Hold"})).await?;
    lab.pod("mine", "100m").await?;
    let tenant = viewer(&lab, "tenant").await?;
    let run = async |args: &[&str]| kubectl(&tenant, args).await;
    let own = wait::for_some("the tenant sees its own", wait::SOON, async || {
        let output = run(&["get", "groups", "-n", "face-tenant"]).await?;
        ensure!(output.code == 0, "{}", output.stderr);
        Ok(output.stdout.contains("pod-mine").then_some(output.stdout))
    })
    .await?;
    ensure!(own.lines().count() == 2, "{own}");
    let why = well(cli(&tenant, &["why", "pod/mine", "-n", "face-tenant"]).await?)?;
    ensure!(why.contains("is stopped"), "{why}");

    let other = group_of(&theirs, "counts").await?;
    for args in [
        &["get", "groups", "-A"][..],
        &["get", "groups", "-n", "face-theirs"],
        &["get", "groups.visibility.tidegate.dev", &other, "-n", "face-theirs"],
    ] {
        let output = run(args).await?;
        ensure!(output.code != 0 && output.stderr.contains("forbidden"), "{args:?}: {output:?}");
        ensure!(!output.stdout.contains("counts"), "{}", output.stdout);
    }
    for args in [&["why", "job/counts", "-n", "face-theirs"][..], &["pending", "-A"], &["queues"]] {
        let output = cli(&tenant, args).await?;
        ensure!(output.code != 0 && !output.stdout.contains("counts"), "{args:?}: {output:?}");
    }
    Ok(())
}

/// The value of a metric, by its name and labels as they are written.
fn metric(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

#[tokio::test]
async fn metrics_and_status_of_a_queue_tell_the_same_numbers() -> Result<()> {
    let lab = furnished("face-metrics").await?;
    for probe in ["/livez", "/readyz", "/healthz"] {
        ensure!(lab.tidegate.get(probe).await? == (200, "ok".to_owned()), "{probe}");
    }
    wait::until("status and metrics agree", wait::SOON, async || {
        let (code, text) = lab.tidegate.get("/metrics").await?;
        let status = lab.get_queue(&lab.namespace).await?.status.unwrap_or_default();
        let of = |name: &str| {
            metric(&text, &format!("tidegate_queue_{name}{{queue=\"face-metrics\"}}"))
                .context("none")
        };
        let usage = metric(&text, "tidegate_queue_usage{queue=\"face-metrics\",resource=\"cpu\"}");
        ensure!(code == 200 && metric(&text, "tidegate_synced") == Some(1.0));
        ensure!(status.usage.get("cpu").map(String::as_str) == Some("1") && usage == Some(1.0));
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        for (name, count) in [
            ("pending_pods", status.pending.pods),
            ("pending_groups", status.pending.groups),
            ("running_pods", status.running.pods),
            ("running_groups", status.running.groups),
        ] {
            ensure!((of(name)? - count as f64).abs() < 0.5, "{name}: {count}\n{text}");
        }
        ensure!(status.pending.pods == 5 && status.running.pods == 1, "{status:?}");
        Ok(true)
    })
    .await
}

#[tokio::test]
async fn one_process_does_all_on_a_laptop() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    tidegate.stop_controller("TERM")?;
    tidegate.stop_webhook("TERM")?;
    let mut all = tidegate.start_all()?;
    wait::until("the one process is ready", wait::SOON, async || {
        all.check()?;
        Ok(tidegate.get("/readyz").await?.0 == 200)
    })
    .await?;
    tidegate.ready().await?;
    let lab = Lab::on(&tidegate, "face-all", json!({"limit": {"cpu": "1"}})).await?;
    lab.create(job("laptop", 2, "1", "300ms")).await?;
    lab.completes("laptop").await?;
    ensure!(lab.pods().await?.iter().all(|pod| pod.labels().contains_key("tidegate.dev/managed")));
    lab.why_says("job/laptop", "Job/laptop in namespace face-all: Ended").await?;
    all.end("TERM")
}

#[tokio::test]
async fn what_is_not_installed_is_said_once_and_plainly() -> Result<()> {
    let cluster = Cluster::bare()?;
    let mut command = Command::new(program());
    command.args(["run", "all", "--namespace=nobody-made-it", "--listen=127.0.0.1:0"]);
    command.arg("--kubeconfig").arg(cluster.kubeconfig());
    let mut all = Process::start("all", &command, cluster.dir())?;
    let said = wait::for_some("it gives up", wait::SOON, async || {
        Ok(all.check().err().map(|error| error.to_string()))
    })
    .await?;
    for advice in ["tidegate crds | kubectl apply", "kubectl create namespace nobody-made-it"] {
        ensure!(said.matches(advice).count() == 1, "{said}");
    }
    ensure!(said.lines().count() < 8, "more is said than needed: {said}");
    Ok(())
}

#[test]
fn a_directory_for_certificates_that_is_missing_is_wrong_usage() -> Result<()> {
    for run in ["all", "controller", "webhook"] {
        let mut command = Command::new(program());
        command.args(["run", run, "--cert-dir=/nowhere/tls", "--kubeconfig=/nowhere/config"]);
        let output = command.output()?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(2) && said.contains("/nowhere/tls"), "{run}: {said}");
    }
    Ok(())
}
