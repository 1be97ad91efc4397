//! Questions to the visibility API, and what a refusal means.

use http::Request;
use kube::{Client, Error};
use serde::de::DeserializeOwned;

use crate::api::names::{VERSION, VISIBILITY_GROUP};
use crate::cli::Failure;
use crate::report::visibility::objects::{Explanation, Group, GroupList, api_version};
use crate::report::visibility::{EXPLANATION, GROUPS};

/// Groups asked for at a time.
const PAGE: usize = 500;
/// Pages read at most: a list that never ends must not fill the memory.
const PAGES: usize = 400;

/// Every group of a namespace, or of all, that the field selector takes.
pub async fn groups(
    client: &Client,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Vec<Group>, Failure> {
    let mut groups = Vec::new();
    let mut token = String::new();
    for _ in 0..PAGES {
        let path = list_path(namespace, selector, &token);
        let page: GroupList = get(client, path).await?;
        groups.extend(page.items);
        match page.metadata.continue_ {
            Some(next) => token = next,
            None => return Ok(groups),
        }
    }
    Err(Failure::Error(format!("more than {} groups: choose a namespace or a queue", groups.len())))
}

/// Why one group waits; `None` when it is gone by now.
pub async fn explanation(client: &Client, group: &Group) -> Result<Option<Explanation>, Failure> {
    let (namespace, name) = (&group.metadata.namespace, &group.metadata.name);
    let path = format!("{}/{}/{EXPLANATION}", collection(Some(namespace)), escape(name));
    match request(client, path).await {
        Ok(explanation) => Ok(Some(explanation)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(meaning(&error)),
    }
}

async fn get<T: DeserializeOwned>(client: &Client, path: String) -> Result<T, Failure> {
    request(client, path).await.map_err(|error| meaning(&error))
}

async fn request<T: DeserializeOwned>(client: &Client, path: String) -> Result<T, Error> {
    let request = Request::get(path).header(http::header::ACCEPT, "application/json");
    client.request(request.body(Vec::new()).map_err(Error::HttpError)?).await
}

fn collection(namespace: Option<&str>) -> String {
    let namespace = namespace.map(|name| format!("/namespaces/{}", escape(name)));
    format!("/apis/{}{}/{GROUPS}", api_version(), namespace.unwrap_or_default())
}

fn list_path(namespace: Option<&str>, selector: &str, token: &str) -> String {
    let mut path = format!("{}?limit={PAGE}", collection(namespace));
    for (key, value) in [("fieldSelector", selector), ("continue", token)] {
        if !value.is_empty() {
            path = format!("{path}&{key}={}", escape(value));
        }
    }
    path
}

/// Percent-encodes all but the characters that a path segment and a query share.
fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// What an error of the visibility API means to the person who asked.
pub fn meaning(error: &Error) -> Failure {
    let Error::Api(status) = error else { return unreachable(error) };
    let ours = status.details.as_ref().is_some_and(|details| details.group == VISIBILITY_GROUP);
    Failure::Error(match status.code {
        401 => format!("the apiserver does not accept these credentials: {}", status.message),
        403 => format!(
            "not allowed: {}\nThe verbs get and list on {GROUPS} and {GROUPS}/{EXPLANATION} of API \
             group {VISIBILITY_GROUP} are what these commands need.",
            status.message
        ),
        404 => absent("the cluster does not know this API"),
        503 if !ours => absent(&status.message),
        _ => status.message.clone(),
    })
}

fn absent(said: &str) -> String {
    format!(
        "Tidegate's controller is not running or its APIService is missing ({}): kubectl get \
         apiservice {VERSION}.{VISIBILITY_GROUP}",
        said.trim()
    )
}

/// An error without an answer from the apiserver, with all its causes.
pub fn unreachable(error: &Error) -> Failure {
    let mut text = format!("no answer from the cluster: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let next_text = next.to_string();
        if !text.contains(&next_text) {
            text = format!("{text}: {next_text}");
        }
        cause = next.source();
    }
    Failure::Error(text)
}
