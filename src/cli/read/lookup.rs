//! Which groups an object belongs to, and if none, why.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject};
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIResourceDiscovery};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Error, ResourceExt};

use crate::api::names::{LABEL_MANAGED, MANAGED};
use crate::cli::Failure;
use crate::report::visibility::objects::Group;
use crate::report::visibility::select::ObjectName;

use super::ask;

/// What came of a search.
pub enum Found {
    /// The object's groups, at least one.
    Groups(Vec<Group>),
    /// None.
    Nothing(Missing),
}

/// What is not there.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// The namespace itself.
    Namespace,
    /// The namespace's consent; the value of its label that means nothing.
    OptIn(Option<String>),
    /// The kind: nothing serves it.
    Kind,
    /// A namespace: objects of this kind have none.
    ClusterScoped,
    /// The object.
    Object,
    /// Pods of the object.
    Pods,
    /// It cannot be told, for this reason.
    Unreadable(String),
}

/// Asks the controller, first with the name as given, then with what the cluster
/// says it stands for: the kind of a short name, the owner of a pod.
pub async fn find(client: &Client, namespace: &str, object: &ObjectName) -> Result<Found, Failure> {
    let groups = asked(client, namespace, &object.kind, &object.name).await?;
    if !groups.is_empty() {
        return Ok(Found::Groups(groups));
    }
    let kind = match kind(client, &object.kind).await {
        Ok(Kind::Namespaced(resource)) => Ok(resource),
        Ok(Kind::ClusterScoped) => return Ok(Found::Nothing(Missing::ClusterScoped)),
        Ok(Kind::Unknown) => Err(Missing::Kind),
        Err(missing) => Err(missing),
    };
    let consent = match consent(client, namespace).await {
        Ok(consent) => consent,
        Err(missing) => return Ok(Found::Nothing(missing)),
    };
    let resource = match kind {
        Ok(resource) => resource,
        Err(missing) => return Ok(Found::Nothing(missing)),
    };
    let read = match existing(client, namespace, &resource, &object.name).await {
        Ok(read) => read,
        Err(missing) => return Ok(Found::Nothing(missing)),
    };
    for (kind, name) in other_names(&resource, &read) {
        let groups = asked(client, namespace, &kind, &name).await?;
        if !groups.is_empty() {
            return Ok(Found::Groups(groups));
        }
    }
    Ok(Found::Nothing(match consent {
        Consent::Given => Missing::Pods,
        Consent::Unknown(why) => Missing::Unreadable(why),
    }))
}

async fn asked(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Vec<Group>, Failure> {
    ask::groups(client, Some(namespace), &format!("object={kind}/{name}")).await
}

/// The object by its kind, and by its owner: a view names no more than the first
/// pods of a long group.
fn other_names(resource: &ApiResource, object: &DynamicObject) -> Vec<(String, String)> {
    let itself = (resource.kind.clone(), object.name_any());
    let owners = object.owner_references().iter().filter(|owner| owner.controller == Some(true));
    std::iter::once(itself)
        .chain(owners.map(|owner| (owner.kind.clone(), owner.name.clone())))
        .collect()
}

/// Whether a namespace that exists has opted in.
pub enum Consent {
    /// It has.
    Given,
    /// It cannot be told, for this reason.
    Unknown(String),
}

/// Asks the namespace.
pub async fn consent(client: &Client, namespace: &str) -> Result<Consent, Missing> {
    let api: Api<Namespace> = Api::all(client.clone());
    match api.get(namespace).await {
        Ok(read) if read.labels().get(LABEL_MANAGED).is_some_and(|value| value == MANAGED) => {
            Ok(Consent::Given)
        }
        Ok(read) => Err(Missing::OptIn(read.labels().get(LABEL_MANAGED).cloned())),
        Err(Error::Api(status)) if status.code == 404 => Err(Missing::Namespace),
        Err(error) => Ok(Consent::Unknown(unreadable("its namespace", &error))),
    }
}

async fn existing(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    name: &str,
) -> Result<DynamicObject, Missing> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    match api.get(name).await {
        Ok(read) => Ok(read),
        Err(Error::Api(status)) if status.code == 404 => Err(Missing::Object),
        Err(error) => Err(Missing::Unreadable(unreadable("it", &error))),
    }
}

fn unreadable(what: &str, error: &Error) -> String {
    match error {
        Error::Api(status) => format!("{what} could not be read: {}", status.message),
        other => format!("{what} could not be read: {other}"),
    }
}

/// What a kind, plural, singular or short name stands for.
enum Kind {
    Namespaced(ApiResource),
    ClusterScoped,
    Unknown,
}

async fn kind(client: &Client, name: &str) -> Result<Kind, Missing> {
    let core = client.list_core_api_versions_aggregated().await;
    let groups = client.list_api_groups_aggregated().await;
    let lists = core.and_then(|core| Ok([core, groups?]));
    let lists = lists.map_err(|error| Missing::Unreadable(unreadable("the kinds", &error)))?;
    let mut known = lists.iter().flat_map(|list| called(list, name)).peekable();
    let somewhere = known.peek().is_some();
    let namespaced = known.find(|(.., resource)| resource.scope.as_deref() == Some("Namespaced"));
    Ok(
        match namespaced
            .and_then(|(group, version, resource)| api_resource(group, version, resource))
        {
            Some(resource) => Kind::Namespaced(resource),
            None if somewhere => Kind::ClusterScoped,
            None => Kind::Unknown,
        },
    )
}

/// Resources of that name in the first version of each group, with group and version.
fn called<'a>(
    list: &'a APIGroupDiscoveryList,
    name: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str, &'a APIResourceDiscovery)> {
    list.items.iter().flat_map(move |group| {
        let group_name = group.metadata.as_ref().and_then(|meta| meta.name.as_deref());
        let versions = group.versions.first().into_iter();
        versions.flat_map(move |version| {
            let named = version.resources.iter().filter(move |resource| is_called(resource, name));
            named.map(move |resource| {
                (
                    group_name.unwrap_or_default(),
                    version.version.as_deref().unwrap_or_default(),
                    resource,
                )
            })
        })
    })
}

fn is_called(resource: &APIResourceDiscovery, name: &str) -> bool {
    let kind = resource.response_kind.as_ref().and_then(|kind| kind.kind.as_deref());
    let names = [resource.resource.as_deref(), resource.singular_resource.as_deref(), kind];
    names.into_iter().flatten().any(|known| known.to_lowercase() == name)
        || resource.short_names.iter().any(|short| short == name)
}

/// Group and version are the list's: built-in kinds leave them out of `responseKind`.
fn api_resource(
    group: &str,
    version: &str,
    resource: &APIResourceDiscovery,
) -> Option<ApiResource> {
    let kind = resource.response_kind.as_ref()?.kind.as_deref()?;
    let gvk = GroupVersionKind::gvk(group, version, kind);
    Some(ApiResource::from_gvk_with_plural(&gvk, resource.resource.as_deref()?))
}
