//! Which owners the controller may read.

use serde_json::{Value, json};

use crate::api::names::LABEL_AGGREGATE_TO_OWNERS;

/// Groups of operators in wide use. `get` on a kind shows the whole object, so
/// the list holds groups of workloads only and no wildcard.
const OPERATORS: &[&str] = &[
    "kubeflow.org",
    "trainer.kubeflow.org",
    "ray.io",
    "jobset.x-k8s.io",
    "leaderworkerset.x-k8s.io",
    "sparkoperator.k8s.io",
    "spark.apache.org",
    "flink.apache.org",
    "kubernetes.dask.org",
    "argoproj.io",
    "tekton.dev",
    "workload.codeflare.dev",
    "batch.volcano.sh",
    "actions.github.com",
    "serving.kserve.io",
    "serving.knative.dev",
    "katib.kubeflow.org",
    "flow.volcano.sh",
    "scheduling.x-k8s.io",
];

/// The role whose rules are gathered from all roles with the owners' label, and
/// the first such role.
#[must_use]
pub fn owners() -> Vec<Value> {
    let selected = json!({LABEL_AGGREGATE_TO_OWNERS: "true"});
    let gathered = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "tidegate-owners"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": selected}]},
    });
    let rule = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": ["get"]});
    let known = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "tidegate-known-owners", "labels": selected},
        "rules": [
            rule(&[""], &["pods", "replicationcontrollers"]),
            rule(&["apps"], &["daemonsets", "deployments", "replicasets", "statefulsets"]),
            rule(&["batch"], &["cronjobs", "jobs"]),
            rule(OPERATORS, &["*"]),
        ],
    });
    vec![gathered, known]
}
