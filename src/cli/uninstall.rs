//! `tidegate uninstall`: lets everything go and takes away what would be in the way.
//!
//! The chart runs it before `helm uninstall`; by hand it does the same with the rights of
//! whoever runs it. Each step finds what is there, so it can be ended and run again.

use std::fmt::Debug;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::api::names::{EPOCH_OBJECT, FIELD_MANAGER, LEASE, VERSION, VISIBILITY_GROUP};
use crate::manifests::{self, CONFIGURATION, Values};
use crate::release::{self, Cleared, Clearing, Progress};

use super::output::Printed;
use super::{Connect, Failure, Home};

/// The controller's Deployment.
const CONTROLLER: &str = "tidegate-controller";
const CONTROLLER_PODS: &str =
    "app.kubernetes.io/name=tidegate,app.kubernetes.io/component=controller";
/// The controller's pods have so long to end, their grace period and some more.
const ENDING: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(500);
/// Longest wait for an answer of the apiserver.
const ANSWER: Duration = Duration::from_secs(30);
/// Pods that are named when they stay shut.
const NAMED: usize = 10;

/// Lets every waiting pod go and removes what would be in the way of new ones.
#[derive(Debug, Args)]
pub struct Uninstall {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    home: Home,
    /// Gates that are opened at once, at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    in_flight: u16,
    /// Give up when no gate could be opened for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    patience: u64,
    /// Secret with the controller's certificates, deleted at the end; empty to keep it, as
    /// when cert-manager owns it.
    #[arg(long, value_name = "NAME", default_value = "tidegate-tls")]
    tls_secret: String,
}

/// Controller, gating, gates, leftovers, in this order.
///
/// # Errors
/// A right is missing, the apiserver does not answer, or pods stay shut. What was done stays
/// done.
pub async fn uninstall(args: &Uninstall) -> Result<Printed, Failure> {
    let mut config = args.connect.config().await?;
    config.read_timeout = Some(ANSWER);
    let client = release::client(config).map_err(|error| Failure::Error(error.to_string()))?;
    stop_deciding(&client, &args.home.namespace).await?;
    stop_gating(&client, &args.home.namespace).await?;
    let how = Clearing {
        in_flight: args.in_flight.into(),
        timeout: Duration::from_secs(10),
        look: Duration::from_secs(2),
        patience: Duration::from_secs(args.patience),
    };
    let cleared = release::clear(&client, &how, progress).await;
    let opened = done(&cleared.map_err(|error| Failure::Error(error.to_string()))?)?;
    remove_leftovers(&client, args).await?;
    Ok(Printed::out(format!(
        "{opened} pods were let go. No pod waits, none will be gated.\n\
         Queues and their kind are still there: kubectl delete crd queues.tidegate.dev\n"
    )))
}

fn say(text: &str) {
    // Nobody is left to tell when this fails.
    drop(writeln!(io::stderr(), "{text}"));
}

fn progress(Progress { opened, waiting }: Progress) {
    say(&format!("{opened} pods were let go, {waiting} wait"));
}

/// How many were let go, or which were not.
fn done(cleared: &Cleared) -> Result<usize, Failure> {
    if cleared.stuck.is_empty() {
        return Ok(cleared.opened);
    }
    let named = cleared.stuck.iter().take(NAMED).map(|(pod, why)| format!("\n  {pod}: {why}"));
    Err(Failure::Error(format!(
        "{} pods were let go, these still wait:{}\nRun it again once what refuses is gone.",
        cleared.opened,
        named.collect::<String>()
    )))
}

/// No controller runs after this, so nothing is decided or made again.
async fn stop_deciding(client: &Client, namespace: &str) -> Result<(), Failure> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match deployments.patch_scale(CONTROLLER, &params, &none).await {
        Err(error) if !is_missing(&error) => return Err(failed("stopping the controller", &error)),
        _ => say("the controller is to stop"),
    }
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let controllers = ListParams::default().labels(CONTROLLER_PODS);
    let start = Instant::now();
    while start.elapsed() < ENDING {
        let left = pods.list_metadata(&controllers).await;
        if left
            .map_err(|error| failed("looking for the controller's pods", &error))?
            .items
            .is_empty()
        {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    say("a pod of the controller does not end; going on without it");
    Ok(())
}

/// Pods are stored as they are asked for after this: first nothing insists on the gate, then
/// nothing adds it.
async fn stop_gating(client: &Client, namespace: &str) -> Result<(), Failure> {
    for name in guards(namespace) {
        remove::<ValidatingAdmissionPolicyBinding>(&Api::all(client.clone()), &name).await?;
    }
    for name in bindings(manifests::gate_policy(&Values::new(namespace, &[]))) {
        remove::<MutatingAdmissionPolicyBinding>(&Api::all(client.clone()), &name).await?;
    }
    let configuration = CONFIGURATION;
    remove::<MutatingWebhookConfiguration>(&Api::all(client.clone()), configuration).await?;
    remove::<ValidatingWebhookConfiguration>(&Api::all(client.clone()), configuration).await?;
    // Without a controller it would keep namespaces from being deleted.
    let api_service = format!("{VERSION}.{VISIBILITY_GROUP}");
    remove::<APIService>(&Api::all(client.clone()), &api_service).await?;
    say("new pods are no longer gated");
    Ok(())
}

fn guards(namespace: &str) -> Vec<String> {
    bindings(manifests::guard(&Values::new(namespace, &[])))
}

/// Names of the bindings among manifests; a policy without one does nothing.
fn bindings(manifests: Vec<serde_json::Value>) -> Vec<String> {
    let bound = manifests.into_iter().filter(|object| object.pointer("/spec/policyName").is_some());
    let name =
        |object: serde_json::Value| Some(object.pointer("/metadata/name")?.as_str()?.to_owned());
    bound.filter_map(name).collect()
}

/// What processes of ours made while they ran; Helm knows nothing of it.
async fn remove_leftovers(client: &Client, args: &Uninstall) -> Result<(), Failure> {
    let namespace = &args.home.namespace;
    remove::<Lease>(&Api::namespaced(client.clone(), namespace), LEASE).await?;
    remove::<ConfigMap>(&Api::namespaced(client.clone(), namespace), EPOCH_OBJECT).await?;
    if !args.tls_secret.is_empty() {
        remove::<Secret>(&Api::namespaced(client.clone(), namespace), &args.tls_secret).await?;
    }
    Ok(())
}

/// Deletes an object, if it and its kind are there.
async fn remove<K>(api: &Api<K>, name: &str) -> Result<(), Failure>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(error) if !is_missing(&error) => {
            Err(failed(&format!("deleting {} {name}", K::kind(&())), &error))
        }
        _ => Ok(()),
    }
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn failed(what: &str, error: &kube::Error) -> Failure {
    Failure::Error(format!("{what}: {error}\nRun it again; what was done stays done."))
}
