//! The rules on a real apiserver, the same whoever adds the gate.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tidegate::admission::server::{Limits, Service, serve};
use tidegate::admission::{Backlogs, Exempt, QueueTree, Queues};
use tidegate::api::v1alpha1::Queue;
use tidegate::certs::{Held, Home, Names, Pace, Resolver, inject, store};
use tidegate::manifests::{self, Values};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::bench::{
    BACKUP, DAEMON_SETS, Pods, account, ann, api, apply, assert_gated, client, cluster, delete,
    gates, namespace, open, opt, pod, refusal, releaser, rights,
};
use crate::support::wait;

const OURS: &str = "tidegate-system";
const ORDER: &str = "only Tidegate removes the scheduling gate tidegate.dev/queue";
const MARKERS: &str = "are Tidegate's to write";
const NODE_NAME: &str = "nodeSelector kubernetes.io/hostname";

#[tokio::test(flavor = "multi_thread")]
async fn the_same_rules_hold_whoever_adds_the_gate() -> Result<()> {
    let values = Values::new(OURS, &[BACKUP.to_owned()]);
    namespace(OURS, true).await?;
    apply(&manifests::crds()?).await?;
    apply(&rights()).await?;
    apply(&manifests::guard(&values)).await?;
    let policy = manifests::gate_policy(&values);
    apply(&policy).await?;
    all_rules("by-policy").await?;
    delete(&policy).await?;
    nothing_is_stored_ungated("by-policy").await?;
    let webhook = Webhook::start(&values).await?;
    all_rules("by-webhook").await?;
    queues_are_checked_together().await?;
    a_wiped_bundle_is_back_at_once(&webhook).await?;
    a_dead_webhook_stops_opted_in_namespaces_only(webhook).await
}

async fn all_rules(ns: &str) -> Result<()> {
    namespace(ns, true).await?;
    in_force(ns).await?;
    new_pods_are_gated(ns).await.context("new pods")?;
    our_gate_stays(ns).await.context("gates")?;
    markers_stay(ns).await.context("markers")?;
    nodes_are_named_by_nobody_else(ns).await.context("nodeName")?;
    waiting_pods_do_not_grow(ns).await.context("resize")?;
    queues_need_the_right_to_use_them(ns).await.context("use")?;
    our_own_namespaces_are_left_alone().await.context("exclusions")?;
    releases_are_of_the_leader(ns).await.context("epochs")
}

/// The apiserver takes new policies in after a moment.
async fn in_force(ns: &str) -> Result<()> {
    let pods = Pods::of(&ann(), ns).await?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait::until("the rules are in force", wait::SOON, async || {
        let probe: Pod = serde_json::from_value(pod("probe", &json!({})))?;
        let gated = pods.0.create(&dry, &probe).await?;
        let pinned = serde_json::from_value(pod("probe", &json!({"spec": {"nodeName": "n1"}})))?;
        Ok(!gates(&gated).is_empty() && pods.0.create(&dry, &pinned).await.is_err())
    })
    .await?;
    ensure!(pods.0.get_opt("probe").await?.is_none(), "a dry run left a pod");
    Ok(())
}

async fn new_pods_are_gated(ns: &str) -> Result<()> {
    let pods = Pods::of(&ann(), ns).await?;
    let unnamed = json!({"metadata": {"name": null, "generateName": "worker-"}});
    let made = pods.create(pod("", &unnamed)).await?;
    assert_gated(&made);
    ensure!(made.annotations().is_empty());
    let restored = pods
        .create(pod(
            "restored",
            &json!({
                "metadata": {
                    "labels": {"tidegate.dev/managed": "no", "app": "db"},
                    "annotations": {"tidegate.dev/released": "{}", "tidegate.dev/epoch": "9",
                        "tidegate.dev/created-by": "{}", "keep": "me"},
                },
                "spec": {"schedulingGates": [{"name": "example.com/own-gate"}]},
            }),
        ))
        .await?;
    assert_gated(&restored);
    assert_eq!(gates(&restored), ["example.com/own-gate", "tidegate.dev/queue"]);
    assert_eq!(restored.annotations().keys().collect::<Vec<_>>(), ["keep"]);
    assert_eq!(restored.labels()["app"], "db");
    let uid = "0b1c2d3e-0000-4000-8000-000000000001";
    let by_pod = Pods::of(&ann().of_pod(uid, "driver-0"), ns).await?;
    let child = by_pod.create(pod("child", &json!({}))).await?;
    let note: Value = serde_json::from_str(&child.annotations()["tidegate.dev/created-by"])?;
    assert_eq!(note, json!({"uid": uid, "name": "driver-0"}));
    Ok(())
}

async fn our_gate_stays(ns: &str) -> Result<()> {
    let pods = Pods::of(&ann(), ns).await?;
    let two = json!({"spec": {"schedulingGates": [{"name": "example.com/own-gate"}]}});
    pods.create(pod("two-gates", &two)).await?;
    let message = refusal(pods.merge("two-gates", json!({"spec": {"schedulingGates": []}})).await)?;
    ensure!(message.contains(ORDER), "{message}");
    ensure!(message.contains("Remove only example.com/own-gate"), "{message}");
    ensure!(message.contains(r#""$patch":"delete","name":"example.com/own-gate""#), "{message}");
    let message = refusal(pods.strategic("two-gates", open()).await)?;
    ensure!(message.contains(ORDER), "{message}");
    let remove =
        serde_json::from_value(json!([{"op": "remove", "path": "/spec/schedulingGates"}]))?;
    let by_json = Patch::<()>::Json(remove);
    refusal(pods.0.patch("two-gates", &PatchParams::default(), &by_json).await)?;
    let mut whole = pods.0.get("two-gates").await?;
    whole.spec.as_mut().context("spec")?.scheduling_gates = None;
    refusal(pods.0.replace("two-gates", &PostParams::default(), &whole).await)?;
    applied_gates_stay(&pods).await?;
    opt(ns, false).await?;
    let message = refusal(pods.strategic("two-gates", open()).await)?;
    ensure!(message.contains(ORDER), "after the opt-in was removed: {message}");
    opt(ns, true).await?;
    let own = json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/own-gate"}]}});
    assert_eq!(gates(&pods.strategic("two-gates", own).await?), ["tidegate.dev/queue"]);
    in_force(ns).await?;
    released_once_the_rest_is_free(ns).await
}

/// Who applied our gate along with a pod does not own it either.
async fn applied_gates_stay(pods: &Pods) -> Result<()> {
    let apply = PatchParams::apply("ann");
    let with =
        pod("applied", &json!({"spec": {"schedulingGates": [{"name": "tidegate.dev/queue"}]}}));
    pods.0.patch("applied", &apply, &Patch::Apply(with)).await?;
    let without = Patch::Apply(pod("applied", &json!({})));
    let message = refusal(pods.0.patch("applied", &apply, &without).await)?;
    ensure!(message.contains("tidegate why pod/applied"), "{message}");
    Ok(())
}

async fn released_once_the_rest_is_free(ns: &str) -> Result<()> {
    let (pods, releaser) = (Pods::of(&ann(), ns).await?, Pods::of(&releaser(), ns).await?);
    let two = json!({"spec": {"schedulingGates": [{"name": "example.com/own-gate"}]}});
    pods.create(pod("free", &two)).await?;
    let mut release = open();
    release["metadata"] =
        json!({"annotations": {"tidegate.dev/released": "{}", "tidegate.dev/epoch": "1"}});
    assert_eq!(gates(&releaser.strategic("free", release).await?), ["example.com/own-gate"]);
    let rest = pods.merge("free", json!({"spec": {"schedulingGates": []}})).await?;
    assert_eq!(gates(&rest), [""; 0]);
    let again = json!({"metadata": {"annotations": {"tidegate.dev/released": "other"}}});
    ensure!(refusal(pods.merge("free", again).await)?.contains(MARKERS));
    Ok(())
}

/// Who leads no more lets nothing go, whatever rights it has; without a number to compare
/// with everybody may, and so may a person who opens a gate by hand.
async fn releases_are_of_the_leader(ns: &str) -> Result<()> {
    let (pods, releaser) = (Pods::of(&ann(), ns).await?, Pods::of(&releaser(), ns).await?);
    let number = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"epoch": "5"},
        "metadata": {"name": "tidegate-epoch", "namespace": OURS}});
    let release = |epoch: &str| {
        let mut release = open();
        release["metadata"] =
            json!({"annotations": {"tidegate.dev/released": "{}", "tidegate.dev/epoch": epoch}});
        Patch::Strategic(release)
    };
    pods.create(pod("current", &json!({}))).await?;
    pods.create(pod("by-hand", &json!({}))).await?;
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    releaser.0.patch("current", &dry, &release("1")).await?;
    apply(std::slice::from_ref(&number)).await?;
    let told = wait::for_some("an earlier epoch is refused", wait::SOON, async || {
        Ok(refusal(releaser.0.patch("current", &dry, &release("4")).await).ok())
    })
    .await?;
    ensure!(told.contains("leads no more (epoch 4, now 5)"), "{told}");
    refusal(releaser.0.patch("current", &dry, &release("five")).await)?;
    let opened = releaser.0.patch("current", &PatchParams::default(), &release("5")).await?;
    assert_eq!(gates(&opened), [""; 0]);
    assert_eq!(gates(&releaser.strategic("by-hand", open()).await?), [""; 0]);
    delete(&[number]).await
}

async fn markers_stay(ns: &str) -> Result<()> {
    let pods = Pods::of(&ann(), ns).await?;
    pods.create(pod("marked", &json!({}))).await?;
    for metadata in [
        json!({"annotations": {"tidegate.dev/released": "{}"}}),
        json!({"annotations": {"tidegate.dev/epoch": "99"}}),
        json!({"annotations": {"tidegate.dev/created-by": "{}"}}),
        json!({"labels": {"tidegate.dev/managed": null}}),
        json!({"labels": {"tidegate.dev/managed": "false"}}),
    ] {
        let patch = json!({"metadata": metadata});
        let message = refusal(pods.merge("marked", patch.clone()).await)?;
        ensure!(message.contains(MARKERS), "{message}");
        let message = refusal(pods.subresource("status", "marked", patch).await)?;
        ensure!(message.contains(MARKERS), "{message}");
    }
    let free =
        json!({"metadata": {"labels": {"app": "x"}, "annotations": {"tidegate.dev/group": "g"}}});
    pods.merge("marked", free).await?;
    Ok(())
}

async fn nodes_are_named_by_nobody_else(ns: &str) -> Result<()> {
    let pinned = |name: &str| {
        pod(
            name,
            &json!({
                "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": true,
                    "uid": "0b1c2d3e-0000-4000-8000-0000000000aa"}]},
                "spec": {"nodeName": "n1"},
            }),
        )
    };
    let pods = Pods::of(&ann(), ns).await?;
    let message = refusal(pods.create(pinned("pretender")).await)?;
    ensure!(message.contains(NODE_NAME) && message.contains("exemptAccounts"), "{message}");
    for (name, who) in [
        ("static", account("system:node:n1", &["system:nodes"])),
        ("daemon", account(DAEMON_SETS, &[])),
        ("backup", account(BACKUP, &[])),
    ] {
        let mut pinned = pinned(name);
        // A node may name no owner but itself.
        pinned["metadata"]["ownerReferences"] = Value::Null;
        let made = Pods::of(&who, ns).await?.create(pinned).await.context(name)?;
        assert_eq!(gates(&made), [""; 0], "{name}");
        ensure!(made.labels().is_empty(), "{name}");
    }
    Ok(())
}

async fn waiting_pods_do_not_grow(ns: &str) -> Result<()> {
    let pods = Pods::of(&ann(), ns).await?;
    pods.create(pod("sized", &json!({}))).await?;
    let size = |requests: Value| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}});
    for requests in [json!({"cpu": "101m"}), json!({"cpu": "100m", "memory": "1Mi"})] {
        let message = refusal(pods.subresource("resize", "sized", size(requests)).await)?;
        ensure!(message.contains("must not grow"), "{message}");
    }
    pods.subresource("resize", "sized", size(json!({"cpu": "0.05"}))).await?;
    Ok(())
}

async fn queues_need_the_right_to_use_them(ns: &str) -> Result<()> {
    let client = client(&ann()).await?;
    let job = |name: &str, queue: &str, owners: &Value| {
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": ns, "labels": {"tidegate.dev/queue": queue}, "ownerReferences": owners},
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "image": "pause"}]}}}})
    };
    let create = async |object: Value| {
        let (jobs, _) = api(&client, &object).unwrap();
        jobs.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
    };
    create(job("mine", "a", &json!([]))).await?;
    let message = refusal(create(job("theirs", "b", &json!([]))).await)?;
    ensure!(message.contains("ann may not use queue \"b\""), "{message}");
    let (jobs, _) = api(&client, &job("mine", "a", &json!([])))?;
    let patch = async |name: &str, metadata: Value| {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        jobs.patch(name, &PatchParams::default(), &patch).await
    };
    refusal(patch("mine", json!({"labels": {"tidegate.dev/queue": "b"}})).await)?;
    patch("mine", json!({"labels": {"app": "x"}})).await?;
    // A label on an owned object chooses nothing; it does once nobody owns it.
    let mine = jobs.get("mine").await?;
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "mine", "uid": mine.uid()}]);
    create(job("owned", "b", &owner)).await?;
    let message = refusal(patch("owned", json!({"ownerReferences": null})).await)?;
    ensure!(message.contains("may not use queue \"b\""), "{message}");
    Ok(())
}

/// Neither system namespaces nor ours, whatever their labels say.
async fn our_own_namespaces_are_left_alone() -> Result<()> {
    opt("kube-system", true).await?;
    for ns in [OURS, "kube-system", "default"] {
        let made = Pods::of(&ann(), ns).await?.create(pod("alone", &json!({}))).await?;
        assert_eq!(gates(&made), [""; 0], "{ns}");
        Pods::of(&ann(), ns)
            .await?
            .0
            .delete("alone", &DeleteParams::default().grace_period(0))
            .await?;
    }
    opt("kube-system", false).await
}

/// With nobody to add gates the guard refuses.
async fn nothing_is_stored_ungated(ns: &str) -> Result<()> {
    let pods = Pods::of(&ann(), ns).await?;
    // The apiserver takes a moment to see that the gating policy is gone.
    wait::until("the guard refuses what nobody gates", wait::SOON, async || {
        match pods.create(pod("ungated", &json!({}))).await {
            Ok(stored) => {
                assert_gated(&stored);
                pods.0.delete("ungated", &DeleteParams::default()).await?;
                Ok(false)
            }
            Err(kube::Error::Api(status)) => Ok(status.message.contains("tell an administrator")),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// The webhook of this process behind the Service of the chart's name.
struct Webhook {
    client: Client,
    stop: CancellationToken,
}

impl Webhook {
    async fn start(values: &Values) -> Result<Self> {
        let client = cluster()?.client().await?;
        let stop = CancellationToken::new();
        let resolver = Arc::new(Resolver::default());
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (bundle, bundles) = watch::channel(None);
        let home = home("tidegate-tls");
        let keeper = store::Keeper::new(client.clone(), home.clone(), Pace::default());
        tokio::spawn(store::keep(keeper, resolver.clone(), bundle, stop.clone()));
        let mutating = inject::keep::<MutatingWebhookConfiguration>(
            client.clone(),
            home.clone(),
            bundles.clone(),
            stop.clone(),
        );
        tokio::spawn(mutating);
        let validating = inject::keep::<
            k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration,
        >(client.clone(), home, bundles, stop.clone());
        tokio::spawn(validating);
        let queues = Queues::default();
        tokio::spawn(follow(client.clone(), queues.clone(), stop.clone()));
        let service = Service::new(Exempt::new([BACKUP.to_owned()]), queues, Backlogs::default());
        let limits = Limits { drain: std::time::Duration::ZERO, ..Limits::default() };
        tokio::spawn(serve(listener, resolver, service, limits, stop.clone()));
        apply(&configurations(values, port)).await?;
        let webhook = Self { client, stop };
        webhook.has_bundle().await?;
        Ok(webhook)
    }

    async fn has_bundle(&self) -> Result<()> {
        let all: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        wait::until("the configuration has its bundle", wait::SOON, async || {
            let webhooks = all.get(manifests::names::CONFIGURATION).await?.webhooks;
            Ok(webhooks.unwrap_or_default().iter().all(|w| w.client_config.ca_bundle.is_some()))
        })
        .await
    }
}

fn home(secret: &str) -> Home {
    let service = manifests::names::WEBHOOK_SERVICE;
    Home {
        namespace: OURS.to_owned(),
        secret: secret.to_owned(),
        names: Names::of_services(OURS, &[service], &["localhost"]),
        configuration: manifests::names::CONFIGURATION.to_owned(),
        api_service: "none.tidegate.dev".to_owned(),
    }
}

/// The configurations as they are rendered, with this process's port.
fn configurations(values: &Values, port: u16) -> Vec<Value> {
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": manifests::names::WEBHOOK_SERVICE, "namespace": OURS},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let with_port = |mut configuration: Value| {
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            webhook["clientConfig"]["service"]["port"] = json!(port);
        }
        configuration
    };
    let webhooks = [manifests::mutating(values), manifests::validating(values)].map(with_port);
    std::iter::once(service).chain(webhooks).collect()
}

/// Keeps the view of the queues fresh by looking.
async fn follow(client: Client, queues: Queues, stop: CancellationToken) {
    let all: Api<Queue> = Api::all(client);
    while !stop.is_cancelled() {
        if let Ok(list) = all.list(&kube::api::ListParams::default()).await {
            queues.store(Some(Arc::new(list.items.iter().collect::<QueueTree>())));
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn queues_are_checked_together() -> Result<()> {
    let queues: Api<Queue> = Api::all(cluster()?.client().await?);
    let create = async |params: &PostParams, name: &str, spec: Value| {
        let queue = Queue::new(name, serde_json::from_value(spec).unwrap());
        queues.create(params, &queue).await
    };
    // The webhook's view trails, so what it must refuse is tried dry until it does.
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let refused = async |name: &str, spec: Value, reason: &str| {
        wait::until(reason, wait::SOON, async || match create(&dry, name, spec.clone()).await {
            Err(kube::Error::Api(status)) => Ok(status.message.contains(reason)),
            _ => Ok(false),
        })
        .await
    };
    refused("orphan", json!({"parent": "nobody"}), "does not exist").await?;
    // As one command makes them: the child right after its parent.
    let real = PostParams::default();
    create(&real, "org", json!({"guaranteed": {"cpu": 10}})).await?;
    create(&real, "team", json!({"parent": "org", "guaranteed": {"cpu": 6}})).await?;
    let too_much = json!({"parent": "org", "guaranteed": {"cpu": 5}});
    refused("other", too_much, "would be 11, more than its own 10").await?;
    let ring = Patch::Merge(json!({"spec": {"parent": "team"}}));
    let message = refusal(queues.patch("org", &PatchParams::default(), &ring).await)?;
    ensure!(message.contains("chain of parents"), "{message}");
    let message = refusal(queues.delete("org", &DeleteParams::default()).await)?;
    ensure!(message.contains("kubectl delete queues team org"), "{message}");
    queues.delete("team", &DeleteParams::default()).await?;
    queues.delete("org", &DeleteParams::default()).await?;
    Ok(())
}

/// A tool that puts the rendered configuration back takes the bundle with it.
async fn a_wiped_bundle_is_back_at_once(webhook: &Webhook) -> Result<()> {
    let all: Api<MutatingWebhookConfiguration> = Api::all(webhook.client.clone());
    let name = manifests::names::CONFIGURATION;
    for _ in 0..3 {
        let mut rendered = all.get(name).await?;
        for webhook in rendered.webhooks.iter_mut().flatten() {
            webhook.client_config.ca_bundle = None;
        }
        let wiped = all.replace(name, &PostParams::default(), &rendered).await?;
        let start = std::time::Instant::now();
        webhook.has_bundle().await?;
        ensure!(start.elapsed().as_secs() < 5, "took {:?}", start.elapsed());
        let restored = all.get(name).await?;
        let generation = |object: &MutatingWebhookConfiguration| object.metadata.generation;
        assert_eq!(generation(&restored), generation(&wiped).map(|n| n + 1), "one write");
    }
    in_force("by-webhook").await
}

/// Only namespaces that opted in depend on us, and they are told on what.
async fn a_dead_webhook_stops_opted_in_namespaces_only(webhook: Webhook) -> Result<()> {
    webhook.stop.cancel();
    let pods = Pods::of(&ann(), "by-webhook").await?;
    wait::until("the webhook is gone", wait::START, async || {
        match pods.create(pod("gap", &json!({}))).await {
            Err(kube::Error::Api(status)) => Ok(status.message.contains("gate-pods.tidegate.dev")),
            _ => Ok(pods.0.delete("gap", &DeleteParams::default()).await.is_err()),
        }
    })
    .await?;
    Pods::of(&ann(), "default").await?.create(pod("elsewhere", &json!({}))).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_controllers_that_make_the_secret_one_wins_and_the_other_adopts() -> Result<()> {
    namespace(OURS, true).await?;
    let client = cluster()?.client().await?;
    let now = jiff::Timestamp::now();
    let home = home("raced");
    let race = async |now| {
        let racer = async || {
            let pace = Pace::default();
            store::Keeper::new(client.clone(), home.clone(), pace).ensure(now).await
        };
        let held: Vec<Held> = futures::future::try_join_all((0..8).map(|_| racer())).await?;
        ensure!(held.iter().all(|one| one == &held[0]));
        anyhow::Ok(held[0].authority.clone())
    };
    let made = race(now).await?;
    let renewed = race(now + jiff::SignedDuration::from_hours(24 * 70)).await?;
    assert_eq!(renewed.ca_crt, made.ca_crt);
    assert_ne!(renewed.tls_crt, made.tls_crt);
    Ok(())
}
