//! Labels, annotations, gates, verbs and other frozen names.
//!
//! These are API: a released version never renames one.

/// API group of Tidegate's own kinds.
pub const GROUP: &str = "tidegate.dev";
/// API group of the aggregated, read-only view of waiting and running work.
pub const VISIBILITY_GROUP: &str = "visibility.tidegate.dev";
/// Version served in both groups.
pub const VERSION: &str = "v1alpha1";

/// The scheduling gate that holds a pod until its queue lets it go.
pub const GATE: &str = "tidegate.dev/queue";

/// Label: on a namespace it opts in, on a pod it says that admission gated it.
pub const LABEL_MANAGED: &str = "tidegate.dev/managed";
/// The only value of [`LABEL_MANAGED`] that means anything.
pub const MANAGED: &str = "true";
/// Label: the queue, on the root of an owner chain or, as default, on a namespace.
pub const LABEL_QUEUE: &str = "tidegate.dev/queue";

/// Label: `false` for work that is never evicted, and so starts only within what is guaranteed.
pub const LABEL_PREEMPTIBLE: &str = "tidegate.dev/preemptible";
/// Label: one group of this key runs at a time in a queue.
pub const LABEL_SINGLETON: &str = "tidegate.dev/singleton";

/// Annotation: joins pods of several trees of one namespace into one group.
pub const ANNOTATION_GROUP: &str = "tidegate.dev/group";
/// Annotation: how many pods of a group must be let go together.
pub const ANNOTATION_MIN_COUNT: &str = "tidegate.dev/min-count";
/// Annotation: `auto`, `all` or `none`.
pub const ANNOTATION_GANG: &str = "tidegate.dev/gang";

/// Annotation: a label key of nodes; all pods of the group run where it has the same value.
pub const ANNOTATION_TOPOLOGY: &str = "tidegate.dev/topology";
/// Label keys of nodes with this in them, and that of the host's name, tell which nodes are near
/// each other.
pub const TOPOLOGY: &str = "topology";
/// Label of a node: its own name.
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";

/// Annotation: `AtLeastOnce` or `AtMostOnce`, which is never evicted once it has started.
pub const ANNOTATION_RUN: &str = "tidegate.dev/run";

/// Annotation set at admission: uid and name of the pod that created this pod.
pub const ANNOTATION_CREATED_BY: &str = "tidegate.dev/created-by";
/// Annotation written with the release: what was decided and why.
pub const ANNOTATION_RELEASED: &str = "tidegate.dev/released";
/// Seconds that a pod which is evicted has to end, at most: what it uses is somebody else's by then.
pub const GRACE_SECONDS: u32 = 1_800;

/// Annotation written with the release: the fencing number of the leader.
pub const ANNOTATION_EPOCH: &str = "tidegate.dev/epoch";

/// Annotation of the Secret of our certificates, put there by whoever wants another authority.
pub const ANNOTATION_ROTATE: &str = "tidegate.dev/rotate";

/// Lease in our namespace: which controller leads.
pub const LEASE: &str = "tidegate-controller";
/// `ConfigMap` in our namespace: the smallest epoch of which releases are accepted.
pub const EPOCH_OBJECT: &str = "tidegate-epoch";
/// Key of that number in the `ConfigMap`.
pub const EPOCH_KEY: &str = "epoch";

/// Verb on `queues.tidegate.dev`: may open our gate.
pub const VERB_RELEASE: &str = "release";
/// Verb on one queue by name: may put that queue's label on an object.
pub const VERB_USE: &str = "use";

/// Key of the pod's uid in the extra information of a bound token's user.
pub const EXTRA_POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// Key of the pod's name in the extra information of a bound token's user.
pub const EXTRA_POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// Annotation the kubelet puts on the API's copy of a static pod.
pub const ANNOTATION_MIRROR: &str = "kubernetes.io/config.mirror";
/// Group of kubelets, which create mirror pods.
pub const GROUP_NODES: &str = "system:nodes";
/// Account that creates the pods of every `DaemonSet`.
pub const USER_DAEMON_SET_CONTROLLER: &str =
    "system:serviceaccount:kube-system:daemon-set-controller";

/// Label that the backup tool Velero puts on what it restores: the name of the restore.
pub const LABEL_RESTORE: &str = "velero.io/restore-name";
/// Label that the apiserver keeps equal to a namespace's name.
pub const LABEL_NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Namespaces that are never gated, whatever their labels say.
pub const SYSTEM_NAMESPACES: &[&str] = &["kube-system", "kube-public", "kube-node-lease"];
/// Label of roles that let the controller read further kinds of owners.
pub const LABEL_AGGREGATE_TO_OWNERS: &str = "rbac.tidegate.dev/aggregate-to-owners";

/// User agent and field manager of every write of ours.
pub const FIELD_MANAGER: &str = "tidegate";
