//! Sentences that people meet when admission refuses something.
//!
//! Webhook and policies say the same words: both are made from these.

/// A pod that names its node was sent to a namespace that opted in.
pub const NODE_NAME: &str = "spec.nodeName skips the queue and is refused in this namespace: \
remove it and use nodeSelector kubernetes.io/hostname instead (runner hooks: set \
ACTIONS_RUNNER_USE_KUBE_SCHEDULER), or have an administrator list the creating account in the \
chart's admission.exemptAccounts";
