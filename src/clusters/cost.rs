//! What a pod costs: kube-scheduler's effective request and one of `pods`.
//!
//! The rules are those of `PodRequests` in `k8s.io/component-helpers/resource`
//! with the options that kube-scheduler 1.36 reserves by
//! (`PodInfo.CalculateResource`): pod-level resources, resources in status and
//! node-allocatable claims are counted. Where a cluster has such a feature off,
//! its apiserver stores no such field, so no option is needed here.
//!
//! Only *stored* pods may be counted: defaulting (a limit without a request, a
//! `LimitRange`, a runtime class's overhead) has then been done by the apiserver.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::quantity::{self, Quantity};

use super::pod::{Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements};

/// Amounts as an object holds them.
type Written = BTreeMap<String, Text>;
/// Exact amounts by resource. Rounding comes last, after all sums.
type Exact<'a> = BTreeMap<&'a str, Quantity>;

/// What a stored pod reserves, in the engine's units, by resource name; `pods` is 1.
///
/// An amount that is no quantity or is negative cannot be stored; should one be
/// seen, it counts as [`Quantity::MAX`], so that it is never taken for free.
#[must_use]
pub fn effective_request(pod: &Pod) -> BTreeMap<String, i128> {
    let exact = exact_request(pod);
    let units = exact.into_iter().map(|(name, amount)| (name, amount.engine_units(name)));
    units.chain([("pods", 1)]).map(|(name, units)| (name.to_owned(), units)).collect()
}

fn exact_request(pod: &Pod) -> Exact<'_> {
    let Some(spec) = &pod.spec else { return Exact::new() };
    let seen = Seen::of(pod.status.as_ref());
    let mut request = containers_request(spec, &seen);
    let claims = seen.status.and_then(|s| s.node_allocatable_resource_claim_statuses.as_ref());
    for claim in claims.into_iter().flatten() {
        add(&mut request, &exact(claim.resources.as_ref()));
    }
    request.extend(pod_level_request(spec, &seen));
    add(&mut request, &exact(spec.overhead.as_ref()));
    request
}

/// The larger of the steady state and of what any moment of initialisation needs.
///
/// A sidecar (an init container that restarts always) runs from its turn on:
/// beside the init containers after it and beside the containers.
fn containers_request<'a>(spec: &'a PodSpec, seen: &Seen<'a>) -> Exact<'a> {
    let mut steady = Exact::new();
    for container in spec.containers.iter().flatten() {
        add(&mut steady, &seen.container_request(container));
    }
    let (mut sidecars, mut peak) = (Exact::new(), Exact::new());
    for container in spec.init_containers.iter().flatten() {
        if is_sidecar(container) {
            let request = seen.container_request(container);
            add(&mut steady, &request);
            add(&mut sidecars, &request);
            raise(&mut peak, &sidecars);
        } else {
            let mut moment = exact(requests(container.resources.as_ref()));
            add(&mut moment, &sidecars);
            raise(&mut peak, &moment);
        }
    }
    raise(&mut steady, &peak);
    steady
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Requests of the pod as a whole. Each replaces what containers add up to; other
/// resources than these cannot be set there and still come from containers.
fn pod_level_request<'a>(spec: &'a PodSpec, seen: &Seen<'a>) -> Exact<'a> {
    let asked = exact(requests(spec.resources.as_ref()));
    let status = seen.status.filter(|status| status.resources.is_some());
    let effective = status.map(|status| {
        let actuated = requests(status.resources.as_ref());
        seen.effective(asked.clone(), actuated, status.allocated_resources.as_ref())
    });
    let amount = |(name, asked)| match &effective {
        Some(effective) => (name, effective.get(name).copied().unwrap_or_default()),
        None => (name, asked),
    };
    asked.into_iter().filter(|(name, _)| has_pod_level(name)).map(amount).collect()
}

fn has_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// What the kubelet has reported, for pods that are resized in place.
struct Seen<'a> {
    status: Option<&'a PodStatus>,
    containers: BTreeMap<&'a str, &'a ContainerStatus>,
    infeasible: bool,
}

impl<'a> Seen<'a> {
    fn of(status: Option<&'a PodStatus>) -> Self {
        let lists =
            status.into_iter().flat_map(|s| [&s.container_statuses, &s.init_container_statuses]);
        let containers = lists.flatten().flatten().map(|status| (status.name.as_str(), status));
        let infeasible = status.is_some_and(resize_is_infeasible);
        Self { status, containers: containers.collect(), infeasible }
    }

    fn container_request(&self, container: &'a Container) -> Exact<'a> {
        let asked = exact(requests(container.resources.as_ref()));
        match self.containers.get(container.name.as_str()) {
            Some(status) if status.resources.is_some() => self.effective(
                asked,
                requests(status.resources.as_ref()),
                status.allocated_resources.as_ref(),
            ),
            _ => asked,
        }
    }

    /// A resize holds both the old and the new amount until it is done. One that
    /// can never be done asks for nothing.
    fn effective(
        &self,
        asked: Exact<'a>,
        actuated: Option<&'a Written>,
        allocated: Option<&'a Written>,
    ) -> Exact<'a> {
        let mut most = if self.infeasible { Exact::new() } else { asked };
        raise(&mut most, &exact(actuated));
        raise(&mut most, &exact(allocated));
        most
    }
}

fn resize_is_infeasible(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let pending = conditions.find(|condition| condition.type_ == "PodResizePending");
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

fn requests(resources: Option<&ResourceRequirements>) -> Option<&Written> {
    resources?.requests.as_ref()
}

fn exact(written: Option<&Written>) -> Exact<'_> {
    written.into_iter().flatten().map(|(name, text)| (name.as_str(), value(text))).collect()
}

fn value(text: &Text) -> Quantity {
    quantity::parse(&text.0).ok().filter(|amount| !amount.is_negative()).unwrap_or(Quantity::MAX)
}

fn add<'a>(sum: &mut Exact<'a>, amounts: &Exact<'a>) {
    for (&name, &amount) in amounts {
        let total = sum.entry(name).or_default();
        *total = *total + amount;
    }
}

fn raise<'a>(most: &mut Exact<'a>, amounts: &Exact<'a>) {
    for (&name, &amount) in amounts {
        let highest = most.entry(name).or_default();
        *highest = amount.max(*highest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// The cost of a pod whose spec and status are YAML, as `cpu=300m memory=4Gi`, without `pods`.
    fn cost(yaml: &str) -> String {
        let pod: Pod = serde_yaml::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"));
        let mut units = effective_request(&pod);
        assert_eq!(units.remove("pods"), Some(1));
        let texts =
            units.iter().map(|(name, units)| format!("{name}={}", quantity::format(name, *units)));
        texts.collect::<Vec<_>>().join(" ")
    }

    #[rstest]
    #[case::sidecar_first(
        "cpu=300m",
        "
spec:
  initContainers:
  - {name: proxy, restartPolicy: Always, resources: {requests: {cpu: 100m}}}
  - {name: setup, resources: {requests: {cpu: 200m}}}
  containers:
  - {name: app, resources: {requests: {cpu: 100m}}}
"
    )]
    #[case::sidecar_last(
        "cpu=200m",
        "
spec:
  initContainers:
  - {name: setup, resources: {requests: {cpu: 200m}}}
  - {name: proxy, restartPolicy: Always, resources: {requests: {cpu: 100m}}}
  containers:
  - {name: app, resources: {requests: {cpu: 100m}}}
"
    )]
    #[case::init_between_sidecars(
        "cpu=400m",
        "
spec:
  initContainers:
  - {name: s1, restartPolicy: Always, resources: {requests: {cpu: 100m}}}
  - {name: setup, resources: {requests: {cpu: 300m}}}
  - {name: s2, restartPolicy: Always, resources: {requests: {cpu: 200m}}}
  containers:
  - {name: app, resources: {requests: {cpu: 50m}}}
"
    )]
    #[case::each_resource_peaks_on_its_own(
        "cpu=1 memory=3Gi",
        "
spec:
  initContainers:
  - {name: setup, resources: {requests: {cpu: 1, memory: 1Gi}}}
  - {name: fetch, restartPolicy: OnFailure, resources: {requests: {memory: 3Gi}}}
  containers:
  - {name: app, resources: {requests: {cpu: 500m, memory: 2Gi}}}
"
    )]
    #[case::init_alone_names_a_resource(
        "cpu=100m nvidia.com/gpu=2",
        "
spec:
  initContainers:
  - {name: warm, resources: {requests: {nvidia.com/gpu: 2}}}
  containers:
  - {name: app, resources: {requests: {cpu: 100m}}}
"
    )]
    fn init_containers_count_by_their_order(#[case] expected: &str, #[case] pod: &str) {
        assert_eq!(cost(pod), expected);
    }

    #[rstest]
    #[case::limits_alone_were_copied_when_stored(
        "cpu=3",
        "
spec:
  containers: [{name: app, resources: {limits: {cpu: 3}, requests: {cpu: 3}}}]
"
    )]
    #[case::default_of_a_limit_range_was_stored(
        "cpu=1",
        "
spec:
  containers: [{name: app, resources: {requests: {cpu: 1}}}]
"
    )]
    #[case::a_limit_is_never_a_request(
        "cpu=500m",
        "
spec:
  containers: [{name: app, resources: {limits: {cpu: 3, memory: 1Gi}, requests: {cpu: 500m}}}]
"
    )]
    #[case::nothing_asked(
        "",
        "
spec:
  containers: [{name: app}]
"
    )]
    #[case::zero_asked_is_kept(
        "cpu=0",
        "
spec:
  containers: [{name: app, resources: {requests: {cpu: 0}}}]
"
    )]
    #[case::no_spec("", "metadata: {name: x}")]
    fn only_stored_requests_count(#[case] expected: &str, #[case] pod: &str) {
        assert_eq!(cost(pod), expected);
    }

    #[rstest]
    #[case::only_memory(
        "cpu=500m memory=4Gi",
        "
spec:
  resources: {requests: {memory: 4Gi}, limits: {memory: 4Gi}}
  containers:
  - {name: app, resources: {requests: {cpu: 500m, memory: 1Gi}}}
  - {name: helper}
"
    )]
    #[case::less_than_the_containers(
        "cpu=1",
        "
spec:
  resources: {requests: {cpu: 1}}
  initContainers:
  - {name: migrate, resources: {requests: {cpu: 800m}}}
  containers:
  - {name: app, resources: {requests: {cpu: 600m}}}
"
    )]
    #[case::request_defaulted_from_the_limit(
        "cpu=2",
        "
spec:
  resources: {limits: {cpu: 2}, requests: {cpu: 2}}
  containers: [{name: app}]
"
    )]
    #[case::with_overhead(
        "cpu=1250m",
        "
spec:
  overhead: {cpu: 250m}
  resources: {requests: {cpu: 1}}
  containers:
  - {name: app, resources: {requests: {cpu: 100m}}}
"
    )]
    #[case::hugepages_too(
        "hugepages-2Mi=64Mi",
        "
spec:
  resources: {requests: {hugepages-2Mi: 64Mi}}
  containers:
  - {name: app, resources: {requests: {hugepages-2Mi: 2Mi}}}
"
    )]
    #[case::no_other_resource(
        "cpu=1 ephemeral-storage=1Gi nvidia.com/gpu=1",
        "
spec:
  resources: {requests: {cpu: 1, nvidia.com/gpu: 8, ephemeral-storage: 9Gi}}
  containers:
  - {name: app, resources: {requests: {nvidia.com/gpu: 1, ephemeral-storage: 1Gi}}}
"
    )]
    #[case::a_limit_alone_replaces_nothing(
        "cpu=100m",
        "
spec:
  resources: {limits: {cpu: 2}}
  containers:
  - {name: app, resources: {requests: {cpu: 100m}}}
"
    )]
    fn requests_of_the_pod_replace_those_of_containers(#[case] expected: &str, #[case] pod: &str) {
        assert_eq!(cost(pod), expected);
    }

    #[rstest]
    #[case::several(
        "cpu=1250m memory=128Mi",
        "
spec:
  overhead: {cpu: 250m, memory: 128Mi}
  containers:
  - {name: app, resources: {requests: {cpu: 1}}}
"
    )]
    #[case::on_top_of_the_init_peak(
        "cpu=2250m",
        "
spec:
  overhead: {cpu: 250m}
  initContainers: [{name: setup, resources: {requests: {cpu: 2}}}]
  containers: [{name: app, resources: {requests: {cpu: 1}}}]
"
    )]
    fn overhead_comes_on_top(#[case] expected: &str, #[case] pod: &str) {
        assert_eq!(cost(pod), expected);
    }

    fn resized(asked: &str, statuses: &str, rest: &str) -> String {
        format!(
            "
spec:
  initContainers:
  - {{name: once, resources: {{requests: {{cpu: 100m}}}}}}
  - {{name: side, restartPolicy: Always, resources: {{requests: {{cpu: 200m}}}}}}
  containers:
  - {{name: app, resources: {{requests: {{{asked}}}}}}}
status:
  {statuses}
  {rest}
"
        )
    }

    const INFEASIBLE: &str =
        "conditions: [{type: PodResizePending, status: 'True', reason: Infeasible}]";
    const DEFERRED: &str =
        "conditions: [{type: PodResizePending, status: 'True', reason: Deferred}]";

    fn app(allocated: &str, actuated: &str) -> String {
        format!(
            "containerStatuses: [{{name: app, image: i, imageID: i, ready: true, restartCount: 0, allocatedResources: {{{allocated}}}, resources: {{requests: {{{actuated}}}}}}}]"
        )
    }

    #[rstest]
    #[case::asked_most("cpu: 3", "cpu: 1", "cpu: 1", DEFERRED, "cpu=3200m")]
    #[case::allocated_most("cpu: 1", "cpu: 3", "cpu: 1", "", "cpu=3200m")]
    #[case::actuated_most("cpu: 1", "cpu: 1", "cpu: 3", "", "cpu=3200m")]
    #[case::infeasible_ignores_what_is_asked(
        "cpu: 3",
        "cpu: 1",
        "cpu: 500m",
        INFEASIBLE,
        "cpu=1200m"
    )]
    #[case::infeasible_and_never_given(
        "cpu: 3, memory: 1Gi",
        "cpu: 1",
        "cpu: 1",
        INFEASIBLE,
        "cpu=1200m"
    )]
    #[case::resource_known_only_to_the_kubelet(
        "cpu: 1",
        "",
        "memory: 1Gi",
        "",
        "cpu=1200m memory=1Gi"
    )]
    fn a_resize_holds_the_most_of_asked_allocated_and_actuated(
        #[case] asked: &str,
        #[case] allocated: &str,
        #[case] actuated: &str,
        #[case] condition: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(cost(&resized(asked, &app(allocated, actuated), condition)), expected);
    }

    #[test]
    fn a_status_without_resources_changes_nothing() {
        let status = "containerStatuses: [{name: app, image: i, imageID: i, ready: true, restartCount: 0, allocatedResources: {cpu: 9}}]";
        assert_eq!(cost(&resized("cpu: 1", status, "")), "cpu=1200m");
    }

    #[test]
    fn only_the_first_condition_of_a_resize_is_read() {
        let conditions = "conditions: [{type: PodResizePending, status: 'True', reason: Deferred}, {type: PodResizePending, status: 'True', reason: Infeasible}]";
        assert_eq!(cost(&resized("cpu: 3", &app("cpu: 1", "cpu: 1"), conditions)), "cpu=3200m");
    }

    #[rstest]
    #[case::sidecar("side", "cpu=6")]
    #[case::one_shot("once", "cpu=1200m")]
    fn of_init_containers_only_sidecars_can_be_resized(#[case] name: &str, #[case] expected: &str) {
        let statuses = format!(
            "initContainerStatuses: [{{name: {name}, image: i, imageID: i, ready: true, restartCount: 0, resources: {{requests: {{cpu: 5}}}}}}]"
        );
        assert_eq!(cost(&resized("cpu: 1", &statuses, "")), expected);
    }

    fn pod_resized(asked: &str, status: &str) -> String {
        format!(
            "
spec:
  resources: {{requests: {{{asked}}}}}
  containers: [{{name: app, resources: {{requests: {{cpu: 100m}}}}}}]
status:
  {status}
"
        )
    }

    #[rstest]
    #[case("cpu: 2", "resources: {requests: {cpu: 3}}", "cpu=3")]
    #[case("cpu: 2", "{resources: {requests: {cpu: 1}}, allocatedResources: {cpu: 4}}", "cpu=4")]
    #[case("cpu: 2", "allocatedResources: {cpu: 4}", "cpu=2")]
    #[case("cpu: 2", "resources: {requests: {memory: 1Gi}}", "cpu=2")]
    fn pod_level_requests_are_resized_the_same_way(
        #[case] asked: &str,
        #[case] status: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(cost(&pod_resized(asked, status)), expected);
    }

    #[test]
    fn an_infeasible_pod_level_resize_leaves_what_was_given_or_nothing() {
        let status = format!("{{resources: {{requests: {{cpu: 1}}}}, {INFEASIBLE}}}");
        assert_eq!(cost(&pod_resized("cpu: 2, memory: 1Gi", &status)), "cpu=1 memory=0");
    }

    #[test]
    fn devices_that_take_node_resources_add_to_containers() {
        let pod = "
spec:
  containers: [{name: app, resources: {requests: {cpu: 1}}}]
status:
  nodeAllocatableResourceClaimStatuses:
  - {resourceClaimName: a, containers: [app], resources: {cpu: 2}}
  - {resourceClaimName: b, containers: [app], resources: {cpu: 1, memory: 1Gi}}
";
        assert_eq!(cost(pod), "cpu=4 memory=1Gi");
    }

    #[rstest]
    #[case("{cpu: 3, ephemeral-storage: 1Gi}", "cpu=3 ephemeral-storage=1Gi")]
    #[case("{memory: 50E}", "memory=50E")]
    #[case("{example.com/tokens: '4611686018427387904'}", "example.com/tokens=4611686018427387904")]
    fn amounts_beyond_int64_stay_positive(#[case] requests: &str, #[case] expected: &str) {
        let pod =
            format!("spec: {{containers: [{{name: app, resources: {{requests: {requests}}}}}]}}");
        assert_eq!(cost(&pod), expected);
    }

    #[test]
    fn an_amount_that_is_meant_for_each_device_counts_once_as_it_is_written() {
        let container =
            "{name: app, resources: {requests: {nvidia.com/gpu: 2, nvidia.com/gpumem: 3000}}}";
        let pod = format!("spec: {{containers: [{container}]}}");
        assert_eq!(cost(&pod), "nvidia.com/gpu=2 nvidia.com/gpumem=3000");
    }

    #[test]
    fn fractions_are_summed_before_they_are_rounded_up() {
        let container = "{name: a, resources: {requests: {cpu: 500u, memory: 600m}}}";
        let pod = format!("spec: {{containers: [{container}, {container}, {container}]}}");
        assert_eq!(cost(&pod), "cpu=2m memory=2");
    }

    #[rstest]
    #[case("4g")]
    #[case("-1")]
    #[case("")]
    #[case("1e99")]
    fn an_amount_without_meaning_is_never_free(#[case] text: &str) {
        let container = format!("{{name: a, resources: {{requests: {{memory: '{text}'}}}}}}");
        let pod = format!("spec: {{containers: [{container}, {container}]}}");
        assert_eq!(cost(&pod), "memory=1000000000E");
    }
}
