//! What breaks, and how it is mended.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    },
    core::v1::{ConfigMap, ResourceQuota, Secret},
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{
    book::Book,
    plant::Plant,
    random::Random,
    support::{
        cluster::Component,
        proxy::{self, Proxy},
        tidegate::{NAMESPACE, RELEASE},
        wait,
    },
    tree,
};

/// etcd's words when its alarm NOSPACE is raised, as the apiserver passes them on.
const STORE_FULL: &str = "etcdserver: mvcc: database space exceeded";
/// What the objects of a foreign policy and quota are called.
const FOREIGN: &str = "soak-foreign";
/// How long all that can run may take to do so once a fault is over, on a loaded machine.
const BOUND: Duration = Duration::from_secs(90);
/// The same when watches have fallen silent without being closed: a controller believes
/// in one for 130 s.
const BOUND_OF_SILENCE: Duration = Duration::from_secs(210);

/// What faults touch: two at a time touch different parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Objects in the apiserver.
    Objects,
    /// The fake nodes.
    Nodes,
    /// Between the controllers and the apiserver.
    Network,
    /// The webhooks.
    Webhooks,
    /// The controllers.
    Controllers,
    /// Kubernetes itself.
    ControlPlane,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The leader is killed.
    LeaderKilled,
    /// The leader ends in good order.
    LeaderEnded,
    /// The other one is killed.
    FollowerKilled,
    /// No controller is left.
    ControllersKilled,
    /// The leader is stopped until its Lease has expired, and wakes.
    LeaderFrozen,
    /// One of the webhooks is killed.
    WebhookKilled,
    /// No webhook is left.
    WebhooksKilled,
    /// One of the webhooks does not answer.
    WebhookFrozen,
    /// Both webhooks stop and go on all the time.
    WebhooksSlow,
    /// The apiserver is killed.
    ApiServerKilled,
    /// The apiserver ends in good order.
    ApiServerEnded,
    /// etcd is killed.
    EtcdKilled,
    /// Connections are cut, and no new ones are taken for a while.
    NetworkCut,
    /// Nothing passes for a while.
    NetworkHeld,
    /// What is open never carries a byte again.
    NetworkFrozen,
    /// Watches are told that they know too little.
    WatchesExpired,
    /// PATCHes are done and their answers lost.
    AnswersLost,
    /// PATCHes are done and never answered.
    AnswersHeld,
    /// PATCHes are answered with 429.
    TooManyRequests,
    /// PATCHes are answered with 500.
    ServerErrors,
    /// PATCHes are answered as when etcd is full.
    StoreFull,
    /// PATCHes take long.
    SlowAnswers,
    /// The Secret of the certificates is deleted.
    SecretDeleted,
    /// The bundles of the webhook configuration are emptied.
    BundleEmptied,
    /// The number that fences leaders off is deleted.
    EpochDeleted,
    /// A `ResourceQuota` lets few pods in.
    QuotaFull,
    /// A policy of somebody else refuses releases.
    ReleasesRefused,
    /// A node is not ready for a while.
    NodeAsleep,
    /// A node is gone, and another one comes.
    NodeLost,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::LeaderKilled,
        Self::LeaderEnded,
        Self::FollowerKilled,
        Self::ControllersKilled,
        Self::LeaderFrozen,
        Self::WebhookKilled,
        Self::WebhooksKilled,
        Self::WebhookFrozen,
        Self::WebhooksSlow,
        Self::ApiServerKilled,
        Self::ApiServerEnded,
        Self::EtcdKilled,
        Self::NetworkCut,
        Self::NetworkHeld,
        Self::NetworkFrozen,
        Self::WatchesExpired,
        Self::AnswersLost,
        Self::AnswersHeld,
        Self::TooManyRequests,
        Self::ServerErrors,
        Self::StoreFull,
        Self::SlowAnswers,
        Self::SecretDeleted,
        Self::BundleEmptied,
        Self::EpochDeleted,
        Self::QuotaFull,
        Self::ReleasesRefused,
        Self::NodeAsleep,
        Self::NodeLost,
    ];

    /// What it touches.
    pub fn part(self) -> Part {
        match self {
            Self::LeaderKilled
            | Self::LeaderEnded
            | Self::FollowerKilled
            | Self::ControllersKilled
            | Self::LeaderFrozen => Part::Controllers,
            Self::WebhookKilled
            | Self::WebhooksKilled
            | Self::WebhookFrozen
            | Self::WebhooksSlow => Part::Webhooks,
            Self::ApiServerKilled | Self::ApiServerEnded | Self::EtcdKilled => Part::ControlPlane,
            Self::NetworkCut
            | Self::NetworkHeld
            | Self::NetworkFrozen
            | Self::WatchesExpired
            | Self::AnswersLost
            | Self::AnswersHeld
            | Self::TooManyRequests
            | Self::ServerErrors
            | Self::StoreFull
            | Self::SlowAnswers => Part::Network,
            Self::SecretDeleted
            | Self::BundleEmptied
            | Self::EpochDeleted
            | Self::QuotaFull
            | Self::ReleasesRefused => Part::Objects,
            Self::NodeAsleep | Self::NodeLost => Part::Nodes,
        }
    }

    /// Whether an answer to a PATCH that was done may not arrive, so that the PATCH is repeated.
    pub fn loses_answers(self) -> bool {
        let answers = matches!(
            self,
            Self::NetworkCut
                | Self::NetworkHeld
                | Self::NetworkFrozen
                | Self::WatchesExpired
                | Self::AnswersLost
                | Self::AnswersHeld
                | Self::LeaderFrozen
        );
        answers || self.part() == Part::ControlPlane
    }

    /// How long all that can run may take to do so once it is over.
    pub fn bound(self) -> Duration {
        if self == Self::NetworkFrozen { BOUND_OF_SILENCE } else { BOUND }
    }

    fn becomes_of_patches(self) -> Option<proxy::Fault> {
        match self {
            Self::AnswersLost => Some(proxy::Fault::LoseAnswer),
            Self::AnswersHeld => Some(proxy::Fault::HoldAnswer),
            Self::TooManyRequests => Some(proxy::Fault::Answer(429, "too many requests")),
            Self::ServerErrors => Some(proxy::Fault::Answer(500, "etcdserver: request timed out")),
            Self::StoreFull => Some(proxy::Fault::Answer(500, STORE_FULL)),
            Self::SlowAnswers => Some(proxy::Fault::Delay(Duration::from_millis(900))),
            _ => None,
        }
    }
}

/// A fault that is going to happen.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What.
    pub fault: Fault,
    /// To which of two; of controllers to the leader if 0.
    pub which: usize,
    /// Where, if it is to a namespace.
    pub namespace: &'static str,
    /// For how long.
    pub length: Duration,
}

/// All faults in an order by chance, again and again.
#[derive(Debug)]
pub struct Deck {
    random: Random,
    left: Vec<Fault>,
}

impl Deck {
    /// Full.
    pub fn new(random: Random) -> Self {
        Self { random, left: Fault::ALL.to_vec() }
    }

    /// How long nothing breaks, at most so many seconds.
    pub fn quiet(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.random.within(500, most * 1_000))
    }

    /// The faults that come next: one, or two that touch different parts. What takes minutes
    /// to mend comes only when there are so many left.
    pub fn next(&mut self, left: Duration) -> Vec<Plan> {
        let first = self.draw(|fault| fault.bound() <= left.max(BOUND));
        let mut plans = vec![first];
        if self.random.one_in(3) {
            let part = plans[0].fault.part();
            plans.push(self.draw(|fault| fault.part() != part && fault.bound() == BOUND));
        }
        // The control plane breaks last and is mended first: the others need it.
        plans.sort_by_key(|plan| plan.fault.part());
        plans
    }

    fn draw(&mut self, suits: impl Fn(Fault) -> bool) -> Plan {
        if !self.left.iter().any(|fault| suits(*fault)) {
            self.left.extend(Fault::ALL);
        }
        let suiting: Vec<Fault> = self.left.iter().copied().filter(|fault| suits(*fault)).collect();
        let fault = *self.random.one_of(&suiting);
        if let Some(at) = self.left.iter().position(|other| *other == fault) {
            self.left.swap_remove(at);
        }
        let length = match fault {
            Fault::LeaderFrozen => self.random.within(8_500, 11_000),
            _ => self.random.within(1_500, 7_000),
        };
        Plan {
            fault,
            which: usize::from(self.random.one_in(3)),
            namespace: self.random.one_of(&tree::NAMESPACES[..3]).0,
            length: Duration::from_millis(length),
        }
    }
}

impl Plan {
    /// Breaks it. `which` becomes what it turned out to be.
    pub async fn begin(&mut self, plant: &mut Plant, book: &Book) -> Result<()> {
        match self.fault.part() {
            Part::Objects => self.begin_with_objects(plant).await,
            Part::Nodes => self.begin_with_a_node(plant, book).await,
            Part::Network => {
                let leader = plant.controllers.leader_but(None).await?;
                // Only the leader sends PATCHes.
                let other = self.which == 1 && self.fault.becomes_of_patches().is_none();
                self.which = if other { 1 - leader } else { leader };
                self.begin_with_the_network(&plant.networks[self.which]);
                Ok(())
            }
            Part::Webhooks => self.begin_with_webhooks(plant),
            Part::Controllers => self.begin_with_controllers(plant).await,
            Part::ControlPlane => match self.fault {
                Fault::ApiServerEnded => plant.cluster().stop(Component::ApiServer).await,
                Fault::ApiServerKilled => plant.cluster().kill(Component::ApiServer).await,
                _ => plant.cluster().kill(Component::Etcd).await,
            },
        }
    }

    async fn begin_with_objects(&self, plant: &Plant) -> Result<()> {
        let client = plant.client.clone();
        let delete = DeleteParams::default();
        match self.fault {
            Fault::SecretDeleted => {
                let api: Api<Secret> = Api::namespaced(client, NAMESPACE);
                api.delete("tidegate-tls", &delete).await?;
            }
            Fault::EpochDeleted => {
                let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
                api.delete("tidegate-epoch", &delete).await?;
            }
            Fault::BundleEmptied => {
                let api: Api<MutatingWebhookConfiguration> = Api::all(client);
                wait::until("the bundles are emptied", wait::SOON, async || {
                    let mut stored = api.get(RELEASE).await?;
                    for webhook in stored.webhooks.iter_mut().flatten() {
                        webhook.client_config.ca_bundle = None;
                    }
                    api.replace(RELEASE, &PostParams::default(), &stored).await?;
                    Ok(true)
                })
                .await?;
            }
            Fault::QuotaFull => {
                let api: Api<ResourceQuota> = Api::namespaced(client, self.namespace);
                let quota = json!({"metadata": {"name": FOREIGN}, "spec": {"hard": {"pods": "3"}}});
                api.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
            }
            _ => refuse_releases(client, self.namespace).await?,
        }
        Ok(())
    }

    async fn begin_with_a_node(&self, plant: &mut Plant, book: &Book) -> Result<()> {
        let node = plant.a_node()?;
        if self.fault == Fault::NodeLost {
            book.node_goes(&node);
            return plant.lose_node(&node).await;
        }
        book.node_sleeps(&node);
        plant.cluster().set_ready(&node, false).await
    }

    fn begin_with_the_network(&self, network: &Proxy) {
        match self.fault {
            Fault::NetworkCut => {
                network.refuse(true);
                network.cut();
            }
            Fault::NetworkHeld => network.hold(true),
            Fault::NetworkFrozen => network.freeze(),
            Fault::WatchesExpired => {
                network.expire_watches(5);
                network.cut();
            }
            fault => network.every_patch(fault.becomes_of_patches()),
        }
    }

    fn begin_with_webhooks(&self, plant: &mut Plant) -> Result<()> {
        match self.fault {
            Fault::WebhookKilled => {
                plant.kill_webhook(self.which)?;
                plant.only_webhook(1 - self.which);
            }
            Fault::WebhooksKilled => {
                plant.kill_webhook(0)?;
                plant.kill_webhook(1)?;
            }
            Fault::WebhookFrozen => {
                plant.signal_webhook(self.which, "STOP")?;
                plant.only_webhook(1 - self.which);
            }
            _ => {}
        }
        Ok(())
    }

    async fn begin_with_controllers(&mut self, plant: &mut Plant) -> Result<()> {
        self.which = plant.controllers.leader_but(None).await?;
        match self.fault {
            Fault::LeaderKilled => plant.controllers.end(self.which, "KILL"),
            Fault::LeaderEnded => plant.controllers.end(self.which, "TERM"),
            Fault::LeaderFrozen => plant.controllers.signal(self.which, "STOP"),
            Fault::FollowerKilled => {
                self.which = 1 - self.which;
                plant.controllers.end(self.which, "KILL")
            }
            _ => {
                plant.controllers.end(0, "KILL")?;
                plant.controllers.end(1, "KILL")
            }
        }
    }

    /// While it lasts, every so often.
    pub fn go_on(&self, plant: &Plant, turn: usize) -> Result<()> {
        if self.fault == Fault::WebhooksSlow {
            let signal = if turn % 3 == 2 { "CONT" } else { "STOP" };
            plant.signal_webhook(0, signal)?;
            plant.signal_webhook(1, signal)?;
        }
        Ok(())
    }

    /// Mends what does not mend itself; what does not run is started by the plant.
    pub async fn end(&self, plant: &mut Plant) -> Result<()> {
        match self.fault.part() {
            Part::Network => {
                let network = &plant.networks[self.which];
                network.refuse(false);
                network.hold(false);
                network.every_patch(None);
                Ok(())
            }
            Part::ControlPlane => mend_control_plane(plant).await,
            Part::Nodes if self.fault == Fault::NodeLost => plant.another_node().await,
            Part::Nodes => plant.cluster().set_ready(&plant.a_node()?, true).await,
            _ => match self.fault {
                Fault::LeaderFrozen => plant.controllers.signal(self.which, "CONT"),
                Fault::WebhookFrozen => plant.signal_webhook(self.which, "CONT"),
                Fault::WebhooksSlow => {
                    plant.signal_webhook(0, "CONT")?;
                    plant.signal_webhook(1, "CONT")
                }
                Fault::QuotaFull => {
                    let api: Api<ResourceQuota> =
                        Api::namespaced(plant.client.clone(), self.namespace);
                    api.delete(FOREIGN, &DeleteParams::default()).await?;
                    Ok(())
                }
                Fault::ReleasesRefused => allow_releases(plant).await,
                _ => Ok(()),
            },
        }
    }
}

/// Controllers and scheduler would look again by themselves, in up to half a minute.
async fn mend_control_plane(plant: &Plant) -> Result<()> {
    for component in [Component::Etcd, Component::ApiServer] {
        plant.cluster().start_component(component).await?;
    }
    for component in [Component::ControllerManager, Component::Scheduler] {
        plant.cluster().restart(component).await?;
    }
    Ok(())
}

/// A policy of somebody else that lets nobody open a gate in a namespace.
async fn refuse_releases(client: kube::Client, namespace: &str) -> Result<()> {
    let policy = json!({"metadata": {"name": FOREIGN}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"], "operations": ["UPDATE"]}]},
        "validations": [{"message": "not on Mondays",
            "expression": "!request.userInfo.username.endsWith(':tidegate-controller')"}]}});
    let binding = json!({"metadata": {"name": FOREIGN}, "spec": {
        "policyName": FOREIGN, "validationActions": ["Deny"], "matchResources": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}}});
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
    let params = PostParams::default();
    policies.create(&params, &serde_json::from_value(policy)?).await.context("a policy")?;
    bindings.create(&params, &serde_json::from_value(binding)?).await.context("a binding")?;
    Ok(())
}

async fn allow_releases(plant: &Plant) -> Result<()> {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(plant.client.clone());
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(plant.client.clone());
    bindings.delete(FOREIGN, &DeleteParams::default()).await?;
    policies.delete(FOREIGN, &DeleteParams::default()).await?;
    Ok(())
}
