//! Names of what is installed. The chart's templates use the same.

/// Both webhook configurations.
pub const CONFIGURATION: &str = "tidegate";
/// The Service in front of the webhook.
pub const WEBHOOK_SERVICE: &str = "tidegate-webhook";
/// The Service in front of the controller's aggregated API.
pub const VISIBILITY_SERVICE: &str = "tidegate-controller";

/// Webhook and policy that gate pods. The apiserver shows these names to whoever
/// created a pod when the webhook does not answer.
pub(super) const GATE_PODS: &str = "gate-pods.tidegate.dev";
pub(super) const HOLD_PODS: &str = "hold-pods.tidegate.dev";
pub(super) const CHECK_QUEUES: &str = "check-queues.tidegate.dev";
pub(super) const CHECK_NAMESPACES: &str = "check-namespaces.tidegate.dev";
pub(super) const GUARD_NEW_PODS: &str = "guard-new-pods.tidegate.dev";
pub(super) const GUARD_GATE: &str = "guard-gate.tidegate.dev";
pub(super) const GUARD_PODS: &str = "guard-pods.tidegate.dev";
pub(super) const GUARD_EPOCH: &str = "guard-epoch.tidegate.dev";
pub(super) const GUARD_RESIZE: &str = "guard-resize.tidegate.dev";
pub(super) const USE_QUEUES: &str = "use-queues.tidegate.dev";
