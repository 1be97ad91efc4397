//! Our accounts hold what they need and no right more: each right that the chart grants is
//! seen used, none is refused, and without any one rule something fails.

mod removed;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Event, Secret},
        rbac::v1::{ClusterRole, PolicyRule, Role},
    },
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate::manifests::rights::{Place, RIGHTS};

use crate::support::{
    audit::{self, Request},
    cluster::Cluster,
    lab::{Lab, bare_pod, deployment},
    tidegate::{NAMESPACE, Tidegate, cli},
    wait,
};

/// The right that no request uses: the guard asks for it.
const UNSEEN: (&str, &str) = ("release", "queues");

/// What stands in the Secret in place of a leaf.
const SPOILT: &[u8] = b"spoilt";

/// One right: a verb on a resource, maybe of one name only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    verb: String,
    group: String,
    resource: String,
    name: Option<String>,
}

impl Right {
    fn is_used_by(&self, request: &Request) -> bool {
        // A list or watch of one name names it in its selector, not in its path.
        let named = self
            .name
            .as_ref()
            .is_none_or(|name| *name == request.name || matches!(&*request.verb, "list" | "watch"));
        request.allowed
            && named
            && request.verb == self.verb
            && request.group == self.group
            && request.resource == self.resource
    }
}

fn rights(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        let names = rule.resource_names.clone().unwrap_or_default();
        let names: Vec<_> =
            if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for verb in &rule.verbs {
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    rights.extend(names.iter().map(|name| Right {
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                    }));
                }
            }
        }
    }
    rights
}

/// What the chart grants an account, beside reading owners, which the operators decide.
pub async fn granted(client: &Client, account: &str) -> Result<BTreeSet<Right>> {
    let everywhere: Api<ClusterRole> = Api::all(client.clone());
    let at_home: Api<Role> = Api::namespaced(client.clone(), NAMESPACE);
    let mut rules = everywhere.get(account).await?.rules.unwrap_or_default();
    rules.extend(at_home.get_opt(account).await?.and_then(|role| role.rules).unwrap_or_default());
    Ok(rights(&rules))
}

/// What a role of Kubernetes itself grants it.
fn lent(account: &str) -> impl Iterator<Item = Right> {
    let lent = RIGHTS
        .iter()
        .filter(move |right| right.place == Place::KubeSystem && right.account == account);
    lent.flat_map(|right| {
        right.verbs.iter().map(|verb| Right {
            verb: (*verb).to_owned(),
            group: right.group.to_owned(),
            resource: right.resource.to_owned(),
            name: Some(right.name.to_owned()),
        })
    })
}

/// Makes the program do all it ever does: start, read, write, renew, end.
async fn exercise(tidegate: &'static Tidegate) -> Result<()> {
    let lab = Lab::on(tidegate, "rights", json!({"limit": {"cpu": "1"}})).await?;
    lab.pod("goes", "1").await?;
    lab.released(&["goes"]).await?;
    lab.create(bare_pod("waits", "1")).await?;
    lab.why_says("pod/waits", "limit").await?;
    // The administrator is let in by group; for anybody else we ask the apiserver.
    lab.editor("reader").await?;
    let reader = lab.kubeconfig("reader").await?;
    let answer = cli(&reader, &["why", "pod/waits", "-n", "rights"]).await?;
    ensure!(answer.code == 0, "{answer:?}");
    // Of what was made in the second in which the controller started only its release is told.
    wait::until("an Event is written", wait::SOON, async || Ok(!lab.events().await?.is_empty()))
        .await?;
    told_again(&lab).await?;
    urgent_class(&lab).await?;
    crowded(&lab, "taken").await?;
    lab.released_at_least("taken-urgent").await?;
    spoil_the_leaf(&lab.client).await?;
    tidegate.stop_controller("TERM")?;
    tidegate.stop_webhook("TERM")?;
    tidegate.start_controller().await?;
    wait::until("the leaf is renewed", wait::SOON, async || leaf_is_good(&lab.client).await)
        .await?;
    tidegate.start_webhook().await?;
    tidegate.ready().await
}

/// Work of this class is urgent.
async fn urgent_class(lab: &Lab) -> Result<()> {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "urgent"}, "value": 1000});
    match lab.create(class).await {
        Err(error) if !format!("{error:#}").contains("already exists") => Err(error),
        _ => Ok(()),
    }
}

/// A pod that runs in a queue of its own with room for no other, and one that is urgent.
async fn crowded(lab: &Lab, name: &str) -> Result<()> {
    let preemption = json!({"withinQueue": "LowerPriority", "minRuntime": "0s"});
    lab.queue(name, json!({"limit": {"pods": 1}, "preemption": preemption})).await?;
    let mut pod = bare_pod(name, "10m");
    pod["metadata"]["labels"] = json!({"tidegate.dev/queue": name});
    lab.create(pod.clone()).await?;
    lab.released_at_least(name).await?;
    pod["metadata"]["name"] = json!(format!("{name}-urgent"));
    pod["spec"]["priorityClassName"] = json!("urgent");
    lab.create(pod).await?;
    Ok(())
}

async fn spoil_the_leaf(client: &Client) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let spoilt = json!({"data": {"tls.crt": ByteString(SPOILT.to_vec())}});
    secrets.patch("tidegate-tls", &PatchParams::default(), &Patch::Merge(spoilt)).await?;
    Ok(())
}

async fn leaf_is_good(client: &Client) -> Result<bool> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let data = secrets.get("tidegate-tls").await?.data.unwrap_or_default();
    Ok(data.get("tls.crt").is_some_and(|leaf| leaf.0 != SPOILT))
}

/// A Deployment that waits, goes and waits again is told of by one Event, twice.
async fn told_again(lab: &Lab) -> Result<()> {
    lab.create(deployment("again", 1, "1")).await?;
    let told = async |times: usize| {
        let scale = async |replicas: usize| {
            lab.merge("apps/v1", "Deployment", "again", json!({"spec": {"replicas": replicas}}))
                .await
        };
        scale(1).await?;
        wait::until(&format!("it is told of {times} times"), wait::SOON, async || {
            let events = lab.events().await?;
            let about = |event: &&Event| event.involved_object.name.as_deref() == Some("again");
            Ok(events.iter().find(about).is_some_and(|event| count(event) == times))
        })
        .await?;
        scale(0).await?;
        let gone = |group: &Value| group["root"]["name"] != "again";
        wait::until("it is gone", wait::SOON, async || Ok(lab.groups().await?.iter().all(gone)))
            .await
    };
    told(1).await?;
    told(2).await
}

fn count(event: &Event) -> usize {
    let series = event.series.as_ref().and_then(|series| series.count);
    series.map_or(1, |count| usize::try_from(count).unwrap_or_default())
}

/// What a request asks, whatever it is called.
fn kind(request: &Request) -> (String, String, String) {
    let Request { verb, group, resource, .. } = request;
    (verb.clone(), group.clone(), resource.clone())
}

/// Fails when a right was never used, or a request was refused and never allowed.
pub fn all_used_and_none_missing(
    cluster: &Cluster,
    account: &str,
    granted: &BTreeSet<Right>,
) -> Result<()> {
    let seen = audit::requests(cluster, &format!("system:serviceaccount:{NAMESPACE}:{account}"))?;
    let unused: Vec<_> = granted
        .iter()
        .filter(|right| UNSEEN != (&right.verb, &right.resource))
        .filter(|right| !seen.iter().any(|request| right.is_used_by(request)))
        .collect();
    ensure!(unused.is_empty(), "never used: {unused:#?}");
    // An apiserver that was just started does not know every rule yet. Owners are
    // asked for whatever they are; a read that is granted is seen used above.
    let allowed: BTreeSet<_> = seen.iter().filter(|it| it.allowed).map(kind).collect();
    let wanted = |it: &&Request| it.verb != "get" && !allowed.contains(&kind(it));
    let refused: Vec<_> = seen.iter().filter(wanted).collect();
    ensure!(refused.is_empty(), "refused: {refused:#?}");
    Ok(())
}

#[tokio::test]
async fn every_right_of_our_accounts_is_used_and_none_is_missing() -> Result<()> {
    let tidegate = Tidegate::exclusive().await?;
    exercise(&tidegate).await?;
    let client = tidegate.cluster().client().await?;
    for account in ["tidegate-controller", "tidegate-webhook"] {
        let mut granted = granted(&client, account).await?;
        granted.extend(lent(account));
        wait::until(&format!("all rights of {account} are used"), wait::SOON, async || {
            all_used_and_none_missing(tidegate.cluster(), account, &granted)?;
            Ok(true)
        })
        .await?;
    }
    Ok(())
}
