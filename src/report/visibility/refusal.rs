//! Every way a request is turned down, as the `Status` that clients expect.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, Status, StatusDetails};
use thiserror::Error;

use crate::api::names::VISIBILITY_GROUP;

use super::GROUPS;
use super::access::Ask;

/// Why there is no answer. All but the last three are final for the same request.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// 400: a parameter that means nothing here.
    #[error("{0}")]
    BadRequest(String),
    /// 401: no verified front proxy said who asks.
    #[error(
        "this API takes requests only through the Kubernetes apiserver, which vouches for the user"
    )]
    Unauthorized,
    /// 403: the apiserver's authorizer said no.
    #[error("{GROUPS}.{VISIBILITY_GROUP} is forbidden: User {user:?} cannot {ask}")]
    Forbidden {
        /// Who asks.
        user: String,
        /// What for.
        ask: Box<Ask>,
    },
    /// 404: no such group, or none any more.
    #[error("{GROUPS}.{VISIBILITY_GROUP} {0:?} not found")]
    NoGroup(String),
    /// 404: no such path.
    #[error("the server could not find the requested resource")]
    NoPath,
    /// 405: only `get` and `list` are served.
    #[error("groups can only be read: the verbs are get and list")]
    ReadOnly,
    /// 405: there is nothing to watch.
    #[error(
        "groups cannot be watched: list them again, for example with `watch kubectl get groups`"
    )]
    NoWatch,
    /// 429: enough is being answered already.
    #[error("too many requests at once, try again")]
    Busy,
    /// 503: first lists are not in.
    #[error(
        "the controller is still reading the cluster: what it does not know yet would look absent"
    )]
    NotSynced,
    /// 503: the authorizer could not be asked.
    #[error("the apiserver could not be asked whether this is allowed, try again")]
    NoAuthorizer,
}

impl Refusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::NoGroup(_) | Self::NoPath => StatusCode::NOT_FOUND,
            Self::ReadOnly | Self::NoWatch => StatusCode::METHOD_NOT_ALLOWED,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::NotSynced | Self::NoAuthorizer => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The word by which client libraries tell errors apart.
    fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden { .. } => "Forbidden",
            Self::NoGroup(_) | Self::NoPath => "NotFound",
            Self::ReadOnly | Self::NoWatch => "MethodNotAllowed",
            Self::Busy => "TooManyRequests",
            Self::NotSynced | Self::NoAuthorizer => "ServiceUnavailable",
        }
    }

    fn retry_after(&self) -> Option<u8> {
        matches!(self, Self::Busy | Self::NotSynced | Self::NoAuthorizer).then_some(1)
    }

    fn object_name(&self) -> Option<String> {
        match self {
            Self::NoGroup(name) => Some(name.clone()),
            Self::Forbidden { ask, .. } => ask.name.clone(),
            _ => None,
        }
    }

    /// As `meta/v1` `Status`.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            metadata: ListMeta::default(),
            status: Some("Failure".to_owned()),
            code: Some(i32::from(self.code().as_u16())),
            reason: Some(self.reason().to_owned()),
            message: Some(self.to_string()),
            details: Some(StatusDetails {
                group: Some(VISIBILITY_GROUP.to_owned()),
                kind: Some(GROUPS.to_owned()),
                name: self.object_name(),
                retry_after_seconds: self.retry_after().map(i32::from),
                ..StatusDetails::default()
            }),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.code(), axum::Json(self.status())).into_response();
        if let Some(seconds) = self.retry_after() {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(u16::from(seconds)));
        }
        response
    }
}
