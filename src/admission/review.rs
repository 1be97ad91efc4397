//! The envelope of a review: reading requests, writing answers.
//!
//! Shapes are those of `admission.k8s.io/v1`. Objects are read through partial
//! types that skip what we do not look at, and are never written back: an answer
//! holds a patch, so fields of newer versions survive.

use std::collections::BTreeMap;

use json_patch::Patch;
use k8s_openapi::ByteString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The only version of the envelope we speak.
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Why a body is not a review. The caller erred: drop, answer 400, never retry.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Not JSON of the expected shape, or nested too deeply.
    #[error("not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// Another version or kind.
    #[error("expected {API_VERSION} {KIND}, got {0}")]
    Version(String),
    /// The envelope carries no request.
    #[error("the review holds no request")]
    NoRequest,
    /// The operation needs an object that is missing.
    #[error("the request holds no object")]
    NoObject,
}

/// A review as sent by the apiserver, its objects read as `T`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "T: DeserializeOwned")]
pub struct Review<T> {
    api_version: String,
    kind: String,
    request: Option<Request<T>>,
}

/// What is asked. Of the object's own namespace and name nothing is believed:
/// [`Request::namespace`] is the truth, and a name may not exist yet.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "T: DeserializeOwned")]
pub struct Request<T> {
    /// Names this review; comes back in the answer.
    pub uid: String,
    /// What the object was converted to before it was sent here.
    pub resource: Resource,
    /// Subresource, such as `status`; usually absent.
    pub sub_resource: Option<String>,
    /// What is to be done.
    pub operation: Operation,
    /// Name of the object; empty when the apiserver is to make it up.
    #[serde(default)]
    pub name: String,
    /// Where the object is; empty for cluster-scoped ones.
    #[serde(default)]
    pub namespace: String,
    /// Who asks.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The object as it would be stored; absent on DELETE.
    pub object: Option<T>,
    /// The object as it is stored; absent on CREATE, and when it cannot be read as `T`: what
    /// another version stored must not keep anybody from mending or deleting it.
    #[serde(default, deserialize_with = "if_readable")]
    pub old_object: Option<T>,
}

fn if_readable<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

/// What a request does to its object.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// Makes it.
    Create,
    /// Changes it.
    Update,
    /// Deletes it.
    Delete,
    /// Opens a stream to it, or something that is not known yet.
    #[serde(other)]
    Other,
}

/// A resource by its full name.
#[derive(Debug, Deserialize)]
pub struct Resource {
    /// API group, empty for core.
    pub group: String,
    /// Version in that group.
    pub version: String,
    /// Plural name.
    #[serde(rename = "resource")]
    pub plural: String,
}

/// Who asks, as authenticated by the apiserver.
#[derive(Debug, Default, Deserialize)]
pub struct UserInfo {
    /// Name of the user or service account.
    #[serde(default)]
    pub username: String,
    /// Groups of that user.
    pub groups: Option<Vec<String>>,
    /// Further facts, such as the pod that a token is bound to.
    pub extra: Option<BTreeMap<String, Vec<String>>>,
}

impl<T: DeserializeOwned> Review<T> {
    /// Reads the request of a review.
    pub fn read(body: &[u8]) -> Result<Request<T>, Malformed> {
        let review: Self = serde_json::from_slice(body)?;
        if review.api_version != API_VERSION || review.kind != KIND {
            return Err(Malformed::Version(format!("{} {}", review.api_version, review.kind)));
        }
        review.request.ok_or(Malformed::NoRequest)
    }
}

impl<T> Request<T> {
    /// Whether the request is about a resource itself, not one of its subresources.
    #[must_use]
    pub fn is_for(&self, group: &str, version: &str, resource: &str) -> bool {
        let Resource { group: g, version: v, plural: r } = &self.resource;
        self.sub_resource.as_deref().is_none_or(str::is_empty)
            && (g.as_str(), v.as_str(), r.as_str()) == (group, version, resource)
    }
}

/// What we say to a request.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// Go on, with these changes.
    Allow(Patch),
    /// Go on, and tell whoever asked these sentences, of 256 characters at most: the
    /// apiserver cuts longer ones. Shown by kubectl and by most tools.
    Warn(Vec<String>),
    /// Stop, with a sentence for the person or controller who asked.
    Deny(String),
    /// Not now: whoever asked is to come back later by its own measure. It reaches them as
    /// HTTP 429 without `Retry-After`, by which client-go would hold up a whole worker.
    Later(String),
}

impl Answer {
    /// Go on without a change.
    #[must_use]
    pub fn allow() -> Self {
        Self::Allow(Patch::default())
    }

    /// The review to send back for the request of this uid.
    pub fn write(self, uid: &str) -> serde_json::Result<Value> {
        let response = match self {
            Self::Allow(patch) if patch.is_empty() => Response::new(uid, true),
            Self::Allow(patch) => Response {
                patch_type: Some("JSONPatch"),
                patch: Some(ByteString(serde_json::to_vec(&patch)?)),
                ..Response::new(uid, true)
            },
            Self::Warn(warnings) => Response { warnings, ..Response::new(uid, true) },
            Self::Deny(message) => Response::refusal(uid, 403, "Forbidden", message),
            Self::Later(message) => Response::refusal(uid, 429, "TooManyRequests", message),
        };
        serde_json::to_value(Outgoing { api_version: API_VERSION, kind: KIND, response })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outgoing<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

impl<'a> Response<'a> {
    fn new(uid: &'a str, allowed: bool) -> Self {
        Self { uid, allowed, patch_type: None, patch: None, status: None, warnings: Vec::new() }
    }

    fn refusal(uid: &'a str, code: u16, reason: &'static str, message: String) -> Self {
        Self { status: Some(Status { code, reason, message }), ..Self::new(uid, false) }
    }
}
