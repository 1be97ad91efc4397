//! Sentences that people meet when admission refuses something.
//!
//! Webhook and policies say the same words: both are made from these.

/// A pod that names its node was sent to a namespace that opted in.
pub const NODE_NAME: &str = "spec.nodeName skips the queue and is refused in this namespace: \
remove it and use nodeSelector kubernetes.io/hostname instead (runner hooks: set \
ACTIONS_RUNNER_USE_KUBE_SCHEDULER), or have an administrator list the creating account in the \
chart's admission.exemptAccounts";

/// A pod in a namespace that opted in was about to be stored without our gate.
pub const NOT_GATED: &str = "this namespace queues its pods, but the pod was to be stored without \
the scheduling gate tidegate.dev/queue and the label tidegate.dev/managed: whatever adds them did \
not run, or a later admission step took them away; tell an administrator";

/// A pod was sent with our gate to a namespace that did not opt in.
pub const GATE_ELSEWHERE: &str = "this namespace is not queued, so nothing would ever remove the \
scheduling gate tidegate.dev/queue: leave it out, or have an administrator put the label \
tidegate.dev/managed=true on the namespace";

/// A new pod still carries markers that only a release writes.
pub const FORGED_MARKER: &str = "the annotations tidegate.dev/released, tidegate.dev/epoch and \
tidegate.dev/created-by are Tidegate's to write: leave them out";

/// Somebody changed a marker or the managed label of a stored pod.
pub const MARKER_CHANGED: &str = "the label tidegate.dev/managed and the annotations \
tidegate.dev/released, tidegate.dev/epoch and tidegate.dev/created-by are Tidegate's to write: \
leave them as they are";

/// Somebody without the right removed our gate. A hint follows.
pub const GATE_DROPPED: &str = "only Tidegate removes the scheduling gate tidegate.dev/queue, when \
the queue lets the pod go. ";

/// A release by a controller that leads no more.
pub const FENCED: &str = "this release was decided by a controller that leads no more";

/// A pod that waits was to be made larger.
pub const RESIZED: &str = "a pod that waits in a queue must not grow: delete it and create it anew \
with the new size, or resize it once it runs";
