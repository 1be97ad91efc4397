//! What can go wrong with a write, and what follows from it.

use std::time::Duration;

use kube::core::response::Status;

use crate::api::refusals;
use crate::engine::event::Trouble;

/// Longest text of somebody else that is kept, in bytes.
const MESSAGE_BYTES: usize = 512;
/// Longest wait a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// Why a write did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The object is gone, or another one has its name. Drop.
    #[error("the object is gone")]
    Gone,
    /// Somebody said no: an admission plug-in, the authorizer, validation. Drop: trying
    /// the same again at once would get the same answer.
    #[error("refused with status {code}: {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// What the answer said, cut.
        message: String,
    },
    /// A `PodDisruptionBudget` does not let the pod be evicted now. Drop: it may be long before
    /// it does, and nothing is wrong with the apiserver.
    #[error("refused by a PodDisruptionBudget: {0}")]
    Guarded(String),
    /// Another controller leads by now and its guard refuses our releases. Stop.
    #[error("fenced off: {0}")]
    Fenced(String),
    /// It went wrong this time: a conflict, a failing webhook. Retry.
    #[error("failed with status {code}: {message}")]
    Failed {
        /// HTTP status.
        code: u16,
        /// What the answer said, cut.
        message: String,
    },
    /// The apiserver asks for less. Retry, and slow down.
    #[error("the apiserver is overloaded (status {code})")]
    Overloaded {
        /// HTTP status.
        code: u16,
        /// Not before this long.
        after: Option<Duration>,
    },
    /// No answer, so it may or may not have been done. Retry, and slow down.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The control loop is gone. Stop.
    #[error("the inbox was closed")]
    InboxClosed,
    /// Nobody can send actions any more. Stop.
    #[error("all senders of actions are gone")]
    ActionsClosed,
}

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Repeat the same write after a while.
    Retry,
    /// Do not repeat it.
    Drop,
    /// End the process.
    Stop,
}

impl ReleaseError {
    /// What follows.
    #[must_use]
    pub fn handling(&self) -> Handling {
        match self {
            Self::Gone | Self::Refused { .. } | Self::Guarded(_) => Handling::Drop,
            Self::Failed { .. } | Self::Overloaded { .. } | Self::NoAnswer(_) => Handling::Retry,
            Self::Fenced(_) | Self::InboxClosed | Self::ActionsClosed => Handling::Stop,
        }
    }

    /// What the apiserver as a whole, not this one write, suffers from.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        match self {
            Self::Overloaded { .. } => Some(Trouble::Overloaded),
            Self::NoAnswer(_) => Some(Trouble::NoAnswer),
            Self::Failed { code, message } => failing(*code, message),
            _ => None,
        }
    }

    /// How long the apiserver asked to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { after, .. } => *after,
            _ => None,
        }
    }
}

impl From<kube::Error> for ReleaseError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::NoAnswer(cut(&error.to_string()));
        };
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        classify(Answer {
            code: status.code,
            reason: &status.reason,
            message: &status.message,
            budget: budget(&status),
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
        })
    }
}

/// An answer of the apiserver that is no success.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    /// HTTP status.
    pub code: u16,
    /// `reason` of the `Status` object; empty when the body is something else.
    pub reason: &'a str,
    /// Its `message`, or the body.
    pub message: &'a str,
    /// What a `PodDisruptionBudget` has against it.
    pub budget: Option<&'a str>,
    /// The header `Retry-After`, if it has seconds.
    pub retry_after: Option<Duration>,
}

/// What a `PodDisruptionBudget` has against an eviction, as the Eviction API says it: by a cause,
/// with the status of an overloaded apiserver; or, of a pod that has two, as a failure of the
/// apiserver that never ends.
pub(super) fn budget(status: &Status) -> Option<&str> {
    let causes = status.details.as_ref().map(|details| &details.causes[..]).unwrap_or_default();
    let cause = causes.iter().find(|cause| cause.reason == "DisruptionBudget");
    let two = || status.message.contains("more than one PodDisruptionBudget");
    let cause = cause.map(|cause| cause.message.as_str());
    cause.or_else(|| (status.code == 500 && two()).then_some(&status.message))
}

/// What an answer means for a write that named the uid of its object.
pub(super) fn classify(answer: Answer<'_>) -> ReleaseError {
    let Answer { code, reason, message, budget, retry_after } = answer;
    if let Some(budget) = budget {
        return ReleaseError::Guarded(cut(budget));
    }
    match code {
        404 if reason == "NotFound" => ReleaseError::Gone,
        409 | 422 if names_another_uid(reason, message) => ReleaseError::Gone,
        403 if message.contains(refusals::FENCED) => ReleaseError::Fenced(cut(message)),
        429 | 503 | 504 => ReleaseError::Overloaded {
            code,
            after: retry_after.map(|after| after.min(RETRY_AFTER_MAX)),
        },
        // 401: tokens are rotated under us. 404 without a `Status`: something between us and
        // the apiserver answered.
        401 | 404 | 408 | 409 | 500..=599 => ReleaseError::Failed { code, message: cut(message) },
        _ => ReleaseError::Refused { code, message: cut(message) },
    }
}

/// A webhook that fails, fails for its own pods only; what it says is its own affair. A
/// conflict or a slow body is this write's.
fn failing(code: u16, message: &str) -> Option<Trouble> {
    match code {
        500 if message.contains("webhook") => None,
        // etcd's words, passed on by the apiserver: the alarm NOSPACE is raised.
        500..=599 if message.contains("database space exceeded") => Some(Trouble::StoreFull),
        401 | 404 | 500..=599 => Some(Trouble::Failing),
        _ => None,
    }
}

/// A patch with a foreign uid is an attempt to change an immutable field. Policies may
/// deny with 422 as well, and with any text; they never have this reason and field.
fn names_another_uid(reason: &str, message: &str) -> bool {
    match reason {
        "Invalid" => message.contains("metadata.uid: Invalid value"),
        "Conflict" => message.contains("UID in precondition") || message.contains("uid mismatch"),
        _ => false,
    }
}

/// The first [`MESSAGE_BYTES`] of a text.
pub(super) fn cut(text: &str) -> String {
    shorten(text, MESSAGE_BYTES).to_owned()
}

/// As much of a text as fits into so many bytes without breaking a character.
pub(super) fn shorten(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    const OTHER_UID: &str =
        r#"Pod "a" is invalid: metadata.uid: Invalid value: "b": field is immutable"#;
    const POLICY: &str = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: metadata.uid";

    fn means(code: u16, reason: &str, message: &str) -> ReleaseError {
        classify(Answer { code, reason, message, budget: None, retry_after: None })
    }

    #[rstest]
    #[case(404, "NotFound", "pods \"a\" not found")]
    #[case(422, "Invalid", OTHER_UID)]
    #[case(409, "Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b")]
    #[case(409, "Conflict", "uid mismatch: the provided object specified uid a")]
    fn a_missing_object_or_a_foreign_uid_is_gone(
        #[case] code: u16,
        #[case] reason: &str,
        #[case] message: &str,
    ) {
        assert_eq!(means(code, reason, message), ReleaseError::Gone);
    }

    #[rstest]
    #[case(400, "BadRequest", "admission webhook \"x\" denied the request: no")]
    #[case(403, "Forbidden", "admission webhook \"x\" denied the request: no")]
    #[case(403, "Forbidden", "exceeded quota: q")]
    #[case(422, "Invalid", POLICY)]
    #[case(
        422,
        "Invalid",
        "Pod \"a\" is invalid: spec: Forbidden: pod updates may not change fields"
    )]
    #[case(413, "RequestEntityTooLarge", "")]
    #[case(405, "MethodNotAllowed", "")]
    #[case(302, "", "elsewhere")]
    fn a_no_is_refused_and_not_repeated(
        #[case] code: u16,
        #[case] reason: &str,
        #[case] message: &str,
    ) {
        let error = means(code, reason, message);
        assert_eq!(error, ReleaseError::Refused { code, message: message.to_owned() });
        assert_eq!(error.handling(), Handling::Drop);
    }

    #[test]
    fn a_leader_that_another_has_followed_stops() {
        let text = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'x' denied \
            request: this release was decided by a controller that leads no more (epoch 1, now 2)";
        let error = means(403, "Forbidden", text);
        assert_eq!(error, ReleaseError::Fenced(text.to_owned()));
        assert_eq!(error.handling(), Handling::Stop);
    }

    #[rstest]
    #[case(408, "", "text")]
    #[case(409, "Conflict", "text")]
    #[case(500, "InternalError", "failed calling webhook \"x\": context deadline exceeded")]
    #[case(500, "InternalError", "admission webhook \"x\" denied: database space exceeded")]
    fn a_failure_of_one_write_is_repeated_at_the_same_pace(
        #[case] code: u16,
        #[case] reason: &str,
        #[case] text: &str,
    ) {
        let error = means(code, reason, text);
        assert_eq!(error, ReleaseError::Failed { code, message: text.to_owned() });
        assert_eq!((error.handling(), error.trouble()), (Handling::Retry, None));
    }

    #[rstest]
    #[case(401, "Unauthorized", "text", Trouble::Failing)]
    #[case(404, "", "page not found", Trouble::Failing)]
    #[case(500, "InternalError", "etcdserver: request timed out", Trouble::Failing)]
    #[case(502, "", "bad gateway", Trouble::Failing)]
    #[case(500, "", "etcdserver: mvcc: database space exceeded", Trouble::StoreFull)]
    fn a_failure_of_the_apiserver_is_repeated_slower(
        #[case] code: u16,
        #[case] reason: &str,
        #[case] text: &str,
        #[case] trouble: Trouble,
    ) {
        let error = means(code, reason, text);
        assert_eq!((error.handling(), error.trouble()), (Handling::Retry, Some(trouble)));
    }

    #[rstest]
    #[case(429, "TooManyRequests")]
    #[case(503, "ServiceUnavailable")]
    #[case(504, "Timeout")]
    fn too_much_is_repeated_slower(#[case] code: u16, #[case] reason: &str) {
        let error = means(code, reason, "later");
        assert_eq!(error, ReleaseError::Overloaded { code, after: None });
        assert_eq!(error.handling(), Handling::Retry);
        assert_eq!(error.trouble(), Some(Trouble::Overloaded));
    }

    /// As an apiserver of Kubernetes 1.36 answers.
    #[rstest]
    #[case::one(json!({"code": 429, "reason": "TooManyRequests",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget \
            web needs 4 healthy pods and has 4 currently"}]}}),
        "The disruption budget web needs 4 healthy pods and has 4 currently")]
    #[case::two(json!({"code": 500, "message": "This pod has more than one PodDisruptionBudget, \
        which the eviction subresource does not support."}),
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not \
        support.")]
    fn a_budget_is_no_trouble_of_the_apiserver(#[case] status: Value, #[case] said: &str) {
        let status: Status = serde_json::from_value(status).unwrap();
        let error = ReleaseError::from(kube::Error::Api(Box::new(status)));
        assert_eq!(error, ReleaseError::Guarded(said.to_owned()));
        assert_eq!((error.handling(), error.trouble()), (Handling::Drop, None));
    }

    #[test]
    fn a_server_may_ask_for_a_minute_at_most() {
        let answer = |seconds| {
            let retry_after = Some(Duration::from_secs(seconds));
            classify(Answer { code: 429, reason: "", message: "", budget: None, retry_after })
        };
        let after = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(answer(3), ReleaseError::Overloaded { code: 429, after: after(3) });
        assert_eq!(answer(86_400), ReleaseError::Overloaded { code: 429, after: after(60) });
    }

    #[test]
    fn foreign_texts_are_cut_between_characters() {
        assert_eq!(shorten("aé", 2), "a");
        assert_eq!(shorten("aé", 3), "aé");
        assert_eq!(cut(&"x".repeat(5_000)).len(), MESSAGE_BYTES);
    }
}
