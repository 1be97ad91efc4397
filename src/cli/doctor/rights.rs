//! Whether our accounts, and whoever asks, hold the rights they need.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client, Error};

use super::finding::Finding;
use super::{Site, unreadable};
use crate::api::names::{GROUP, VISIBILITY_GROUP};
use crate::manifests::rights::{Place, RIGHTS, Right};

const CHECK: &str = "rights";
/// Questions asked at the same time.
const AT_ONCE: usize = 8;

/// What people need to ask: group, resource, and the role that grants it.
const READERS: [(&str, &str, &str); 3] = [
    (VISIBILITY_GROUP, "groups", "the role view, cluster-wide"),
    (VISIBILITY_GROUP, "groups/explanation", "the role view, cluster-wide"),
    (GROUP, "queues", "the role tidegate-queue-viewer"),
];

/// Asks the apiserver about each right.
pub async fn check(site: &Site, own_certificates: bool) -> Vec<Finding> {
    vec![accounts(site, own_certificates).await, reader(site).await]
}

async fn accounts(site: &Site, own_certificates: bool) -> Finding {
    let needs = RIGHTS.iter().filter(|need| own_certificates || !need.own_certificates);
    let asks = needs.flat_map(|need| need.verbs.iter().map(move |verb| (need, *verb)));
    let answers: Result<Vec<Option<String>>, Error> = stream::iter(asks)
        .map(async |(need, verb)| {
            let held = may(site, need, verb).await?;
            Ok((!held).then(|| missing_right(need, verb)))
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await;
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => return unreadable(CHECK, "what our accounts may do", &error),
    };
    let missing: Vec<_> = answers.iter().flatten().map(String::as_str).collect();
    if missing.is_empty() {
        let count = answers.len();
        return Finding::ok(CHECK, format!("our accounts hold the {count} rights they need"));
    }
    let remedy = "apply the chart again, or see who changed its roles and bindings";
    Finding::fail(CHECK, format!("missing: {}", missing.join("; ")), remedy)
}

fn missing_right(need: &Right, verb: &str) -> String {
    let group = if need.group.is_empty() { String::new() } else { format!(".{}", need.group) };
    let name = if need.name.is_empty() { String::new() } else { format!(" {}", need.name) };
    format!("{} may not {verb} {}{group}{name}", need.account, need.resource)
}

async fn may(site: &Site, need: &Right, verb: &str) -> Result<bool, Error> {
    let namespace = match need.place {
        Place::Everywhere => None,
        Place::Home => Some(site.namespace.clone()),
        Place::KubeSystem => Some("kube-system".to_owned()),
    };
    let ask = ResourceAttributes {
        namespace,
        name: Some(need.name.to_owned()).filter(|name| !name.is_empty()),
        ..attributes(need.group, need.resource, verb)
    };
    let user = format!("system:serviceaccount:{}:{}", site.namespace, need.account);
    let of_accounts = ["system:serviceaccounts", "system:authenticated"].map(str::to_owned);
    let at_home = format!("system:serviceaccounts:{}", site.namespace);
    let spec = SubjectAccessReviewSpec {
        user: Some(user),
        groups: Some(of_accounts.into_iter().chain([at_home]).collect()),
        resource_attributes: Some(ask),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let api: Api<SubjectAccessReview> = Api::all(site.client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn attributes(group: &str, resource: &str, verb: &str) -> ResourceAttributes {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource, None),
    };
    ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    }
}

async fn reader(site: &Site) -> Finding {
    let check = "your rights";
    let mut missing = Vec::new();
    for (group, resource, role) in READERS {
        match may_i(&site.client, group, resource).await {
            Ok(true) => {}
            Ok(false) => missing.push(format!("get {resource}.{group} ({role} grants it)")),
            Err(error) => return unreadable(check, "what you may do", &error),
        }
    }
    if missing.is_empty() {
        return Finding::ok(check, "you may see every queue and every group, and why it waits");
    }
    Finding::warn(
        check,
        format!("you may not {}", missing.join(", nor ")),
        "enough in your own namespaces; for all of them ask an administrator for the role",
    )
}

async fn may_i(client: &Client, group: &str, resource: &str) -> Result<bool, Error> {
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes(group, resource, "get")),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
