//! What a user may read, asked of the apiserver and remembered for seconds.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use thiserror::Error;

use crate::api::names::{VERSION, VISIBILITY_GROUP};

use super::identity::Identity;
use super::{EXPLANATION, GROUPS};

/// One thing a user wants to read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ask {
    /// `get` or `list`.
    pub verb: &'static str,
    /// `explanation`, or the group itself.
    pub subresource: Option<&'static str>,
    /// The namespace; all of them when absent.
    pub namespace: Option<String>,
    /// The group's name, for `get`.
    pub name: Option<String>,
}

impl Ask {
    /// Listing a namespace, or all of them.
    #[must_use]
    pub fn list(namespace: Option<&str>) -> Self {
        let namespace = namespace.map(str::to_owned);
        Self { verb: "list", subresource: None, namespace, name: None }
    }

    /// Reading one group.
    #[must_use]
    pub fn get(namespace: &str, name: &str) -> Self {
        Self {
            verb: "get",
            subresource: None,
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
        }
    }

    /// Reading why one group waits.
    #[must_use]
    pub fn explanation(namespace: &str, name: &str) -> Self {
        Self { subresource: Some(EXPLANATION), ..Self::get(namespace, name) }
    }
}

/// As the apiserver says it: `list resource "groups" in API group … in the namespace …`.
impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = match self.subresource {
            Some(subresource) => format!("{GROUPS}/{subresource}"),
            None => GROUPS.to_owned(),
        };
        write!(f, "{} resource {resource:?} in API group {VISIBILITY_GROUP:?} ", self.verb)?;
        match &self.namespace {
            Some(namespace) => write!(f, "in the namespace {namespace:?}"),
            None => f.write_str("at the cluster scope"),
        }
    }
}

/// The authorizer gave no answer. Try again; never treat it as a yes.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The apiserver refused the review or could not be reached.
    #[error("SubjectAccessReview failed: {0}")]
    Review(#[from] kube::Error),
    /// It took too long.
    #[error("SubjectAccessReview took more than {} s", REVIEW_TIMEOUT.as_secs())]
    Timeout,
}

/// Says whether a user may read something.
pub trait Authorizer: Send + Sync + 'static {
    /// `Ok(false)` when the user may not, an error when nobody can tell.
    fn allows<'a>(
        &'a self,
        who: &'a Identity,
        ask: &'a Ask,
    ) -> BoxFuture<'a, Result<bool, AccessError>>;
}

const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the apiserver with a `SubjectAccessReview`, and remembers the answer.
pub struct Apiserver {
    reviews: Api<SubjectAccessReview>,
    known: Mutex<Known>,
}

impl Apiserver {
    /// An authorizer on this client's cluster.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self { reviews: Api::all(client), known: Mutex::default() }
    }

    async fn review(&self, who: &Identity, ask: &Ask) -> Result<bool, AccessError> {
        let review = review(who, ask);
        let params = PostParams::default();
        let answer = tokio::time::timeout(REVIEW_TIMEOUT, self.reviews.create(&params, &review));
        let answer = answer.await.map_err(|_| AccessError::Timeout)??;
        Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }

    fn with_known<T>(&self, f: impl FnOnce(&mut Known) -> T) -> T {
        f(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Authorizer for Apiserver {
    fn allows<'a>(
        &'a self,
        who: &'a Identity,
        ask: &'a Ask,
    ) -> BoxFuture<'a, Result<bool, AccessError>> {
        Box::pin(async move {
            let key = (who.clone(), ask.clone());
            if let Some(verdict) = self.with_known(|known| known.get(&key, Instant::now())) {
                return Ok(verdict);
            }
            let verdict = self.review(who, ask).await?;
            self.with_known(|known| known.put(key, verdict, Instant::now()));
            Ok(verdict)
        })
    }
}

fn review(who: &Identity, ask: &Ask) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(who.user.clone()),
            uid: Some(who.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(who.groups.clone()),
            extra: Some(who.extra.clone()),
            resource_attributes: Some(ResourceAttributes {
                group: Some(VISIBILITY_GROUP.to_owned()),
                version: Some(VERSION.to_owned()),
                resource: Some(GROUPS.to_owned()),
                subresource: ask.subresource.map(str::to_owned),
                verb: Some(ask.verb.to_owned()),
                namespace: ask.namespace.clone(),
                name: ask.name.clone(),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

/// Remembered verdicts, the oldest forgotten first.
#[derive(Default)]
struct Known {
    verdicts: HashMap<Key, (bool, Instant)>,
    order: VecDeque<Key>,
}

type Key = (Identity, Ask);

impl Known {
    const MOST: usize = 1024;
    const YES: Duration = Duration::from_secs(10);
    const NO: Duration = Duration::from_secs(5);

    fn get(&self, key: &Key, now: Instant) -> Option<bool> {
        self.verdicts.get(key).filter(|(_, until)| now < *until).map(|&(verdict, _)| verdict)
    }

    fn put(&mut self, key: Key, verdict: bool, now: Instant) {
        let until = now + if verdict { Self::YES } else { Self::NO };
        if self.verdicts.insert(key.clone(), (verdict, until)).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > Self::MOST {
            if let Some(oldest) = self.order.pop_front() {
                self.verdicts.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(user: &str) -> Key {
        (Identity { user: user.to_owned(), ..Identity::default() }, Ask::list(None))
    }

    #[test]
    fn a_yes_lasts_ten_seconds_and_a_no_five() {
        let (start, mut known) = (Instant::now(), Known::default());
        known.put(key("yes"), true, start);
        known.put(key("no"), false, start);
        let after = |seconds: u64| start + Duration::from_millis(seconds * 1000 - 1);
        assert_eq!(known.get(&key("no"), after(5)), Some(false));
        assert_eq!(known.get(&key("no"), after(6)), None);
        assert_eq!(known.get(&key("yes"), after(10)), Some(true));
        assert_eq!(known.get(&key("yes"), after(11)), None);
    }

    #[test]
    fn an_answer_is_never_given_for_another_question() {
        let (start, mut known) = (Instant::now(), Known::default());
        let (who, _) = key("a");
        known.put((who.clone(), Ask::list(Some("ml"))), true, start);
        assert_eq!(known.get(&(who.clone(), Ask::list(None)), start), None);
        assert_eq!(known.get(&(who.clone(), Ask::list(Some("web"))), start), None);
        let grouped = Identity { groups: vec!["x".to_owned()], ..who };
        assert_eq!(known.get(&(grouped, Ask::list(Some("ml"))), start), None);
    }

    #[test]
    fn no_more_than_a_fixed_number_is_remembered() {
        let (start, mut known) = (Instant::now(), Known::default());
        for number in 0..Known::MOST + 10 {
            known.put(key(&number.to_string()), true, start);
        }
        assert_eq!((known.verdicts.len(), known.order.len()), (Known::MOST, Known::MOST));
        assert_eq!(known.get(&key("9"), start), None);
        assert_eq!(known.get(&key("10"), start), Some(true));
    }

    #[test]
    fn the_review_names_all_that_decides() {
        let (mut who, _) = key("ann");
        who.groups = vec!["team".to_owned()];
        who.extra.insert("scopes".to_owned(), vec!["s".to_owned()]);
        let review = serde_json::to_string(&review(&who, &Ask::explanation("ml", "g")).spec);
        insta::assert_snapshot!(review.unwrap(), @r#"{"extra":{"scopes":["s"]},"groups":["team"],"resourceAttributes":{"group":"visibility.tidegate.dev","name":"g","namespace":"ml","resource":"groups","subresource":"explanation","verb":"get","version":"v1alpha1"},"user":"ann"}"#);
    }

    #[test]
    fn asks_read_as_in_the_apiserver() {
        insta::assert_snapshot!(
            format!("{}\n{}", Ask::list(None), Ask::explanation("ml", "x")), @r#"
        list resource "groups" in API group "visibility.tidegate.dev" at the cluster scope
        get resource "groups/explanation" in API group "visibility.tidegate.dev" in the namespace "ml"
        "#);
    }
}
