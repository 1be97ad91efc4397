//! Watches, reduced at once to observations.

use std::fmt::Debug;
use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::api::names;
use crate::api::v1alpha1::Queue;

use super::facts::{Observation, Watch};
use super::pod::Pod;
use super::strip;

/// Pods that take room and are not ours to release.
const ON_A_NODE: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// How objects of one watch become observations.
struct Reading<K> {
    watch: Watch,
    there: fn(&K) -> Observation,
    gone: fn(&K) -> Observation,
}

/// Everything that is seen in a cluster. A watch that breaks is begun again with a
/// growing, random wait, and a list again if need be; `None` says that one ended for
/// good, which none should.
pub(super) fn observations(
    client: &Client,
) -> impl Stream<Item = Option<Observation>> + Send + use<> {
    let watches = [
        namespaces(client),
        nodes(client),
        queues(client),
        managed_pods(client),
        other_pods(client),
    ];
    let end = || stream::once(std::future::ready(None));
    stream::select_all(watches.map(|watch| watch.map(Some).chain(end()).boxed()))
}

fn namespaces(client: &Client) -> BoxStream<'static, Observation> {
    let reading = Reading {
        watch: Watch::Namespaces,
        there: |it: &Namespace| Observation::Namespace(strip::namespace(it)),
        gone: |it| Observation::NamespaceGone(name(it)),
    };
    follow(Api::all(client.clone()), Config::default(), reading)
}

fn nodes(client: &Client) -> BoxStream<'static, Observation> {
    let reading = Reading {
        watch: Watch::Nodes,
        there: |it: &Node| Observation::Node(strip::node(it)),
        gone: |it| Observation::NodeGone(name(it)),
    };
    follow(Api::all(client.clone()), Config::default(), reading)
}

/// Read without a type: one queue that this version cannot read must not stop the others.
fn queues(client: &Client) -> BoxStream<'static, Observation> {
    let reading = Reading {
        watch: Watch::Queues,
        there: |it: &DynamicObject| Observation::Queue(strip::queue(it)),
        gone: |it| Observation::QueueGone(name(it)),
    };
    let kind = ApiResource::erase::<Queue>(&());
    follow(Api::all_with(client.clone(), &kind), Config::default(), reading)
}

fn managed_pods(client: &Client) -> BoxStream<'static, Observation> {
    let reading = Reading {
        watch: Watch::ManagedPods,
        there: |it: &Pod| Observation::ManagedPod(strip::pod(it)),
        gone: |it| Observation::ManagedPodGone(strip::uid(&it.uid().unwrap_or_default())),
    };
    let ours = format!("{}={}", names::LABEL_MANAGED, names::MANAGED);
    follow(Api::all(client.clone()), Config::default().labels(&ours), reading)
}

fn other_pods(client: &Client) -> BoxStream<'static, Observation> {
    let reading = Reading {
        watch: Watch::OtherPods,
        there: |it: &Pod| Observation::OtherPod(strip::pod(it)),
        gone: |it| Observation::OtherPodGone(strip::uid(&it.uid().unwrap_or_default())),
    };
    let not_ours = format!("{}!={}", names::LABEL_MANAGED, names::MANAGED);
    let config = Config::default().labels(&not_ours).fields(ON_A_NODE);
    follow(Api::all(client.clone()), config, reading)
}

fn name(object: &impl ResourceExt) -> Arc<str> {
    object.name_any().into()
}

fn follow<K>(api: Api<K>, config: Config, reading: Reading<K>) -> BoxStream<'static, Observation>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api, config)
        .default_backoff()
        .filter_map(move |event| std::future::ready(reading.read(event)))
        .boxed()
}

impl<K> Reading<K> {
    fn read(&self, event: Result<Event<K>, watcher::Error>) -> Option<Observation> {
        match event {
            Ok(Event::Init) => Some(Observation::ListStarted(self.watch)),
            Ok(Event::InitDone) => {
                tracing::debug!(watch = self.watch.as_str(), "listed");
                Some(Observation::ListDone(self.watch))
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => Some((self.there)(&object)),
            Ok(Event::Delete(object)) => Some((self.gone)(&object)),
            Err(error) => {
                tracing::warn!(watch = self.watch.as_str(), %error, "watch broke");
                None
            }
        }
    }
}
