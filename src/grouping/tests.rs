use std::collections::BTreeMap;
use std::sync::Arc;

use insta::assert_snapshot;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use rstest::rstest;
use serde_json::json;

use super::*;

/// An object of a test. Its uid is `uid of Kind/name`.
#[derive(Clone)]
struct Object {
    is: String,
    meta: ObjectMeta,
    lookup: Lookup,
    namespaced: bool,
    starts_runs: bool,
}

fn object(is: &str) -> Object {
    Object {
        is: is.to_owned(),
        meta: ObjectMeta::default(),
        lookup: Lookup::Found(Owner::default()),
        namespaced: true,
        starts_runs: false,
    }
}

fn uid_of(is: &str) -> String {
    format!("uid of {is}")
}

fn reference(is: &str, controller: Option<bool>) -> OwnerReference {
    let (kind, name) = is.split_once('/').unwrap();
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid_of(is),
        controller,
        ..OwnerReference::default()
    }
}

impl Object {
    fn refers(mut self, reference: OwnerReference) -> Self {
        self.meta.owner_references.get_or_insert_default().push(reference);
        self
    }

    fn by(self, controller: &str) -> Self {
        self.refers(reference(controller, Some(true)))
    }

    fn names(self, owner: &str) -> Self {
        self.refers(reference(owner, None))
    }

    fn queue(mut self, queue: &str) -> Self {
        let labels = self.meta.labels.get_or_insert_default();
        labels.insert("tidegate.dev/queue".to_owned(), queue.to_owned());
        self
    }

    fn annotated(mut self, key: &str, value: &str) -> Self {
        let annotations = self.meta.annotations.get_or_insert_default();
        annotations.insert(format!("tidegate.dev/{key}"), value.to_owned());
        self
    }

    fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn starter(mut self) -> Self {
        self.starts_runs = true;
        self
    }

    fn answers(mut self, lookup: Lookup) -> Self {
        self.lookup = lookup;
        self
    }

    fn key(&self, namespace: &str) -> ObjectKey {
        Above::from(&[reference(&self.is, None)][..]).key_in(namespace)
    }
}

impl Above {
    fn key_in(&self, namespace: &str) -> ObjectKey {
        match self {
            Self::Only(reference) | Self::Controller(reference) => {
                reference.key(&Arc::from(namespace))
            }
            _ => unreachable!(),
        }
    }
}

struct World(BTreeMap<String, Object>);

impl Owners for World {
    fn look_up(&self, owner: &ObjectKey) -> Lookup {
        let Some(object) = self.0.get(&owner.to_string()) else { return Lookup::Missing };
        match &object.lookup {
            Lookup::Found(_) if *owner.uid != *uid_of(&object.is) => Lookup::WrongUid,
            Lookup::Found(_) => Lookup::Found(Owner {
                metadata: Metadata::from(&object.meta),
                namespaced: object.namespaced,
                starts_runs: object.starts_runs,
            }),
            other => other.clone(),
        }
    }
}

/// Objects of one namespace `ns` whose own label names the queue `house`.
fn world<const N: usize>(objects: [Object; N]) -> World {
    World(objects.into_iter().map(|object| (object.is.clone(), object)).collect())
}

fn resolve_in(world: &World, pod: &Object, namespace: &str) -> Resolution {
    let house = Arc::from("house");
    let metadata = Metadata::from(&pod.meta);
    let key = pod.key(namespace);
    resolve(&Member { key: &key, metadata: &metadata, namespace_queue: Some(&house) }, world)
}

impl World {
    fn place(&self, pod: &Object) -> Placement {
        match resolve_in(self, pod, "ns") {
            Resolution::Placed(placement) => placement,
            Resolution::Needs(placement) => panic!("needs {:?}", placement.findings.asked),
        }
    }
}

fn show(placement: &Placement) -> String {
    let group = match &*placement.group {
        GroupKey::Run { namespace, root } => format!("{namespace} run {root}"),
        GroupKey::Named { namespace, name } => format!("{namespace} named {name}"),
    };
    let queue = placement.findings.queue.as_ref().map_or("-", |queue| &queue.name);
    let chain = placement.findings.chain.join(" > ");
    let head = format!("{group}; queue {queue}; {:?}; {chain}", placement.findings.gang);
    std::iter::once(head)
        .chain(placement.findings.evidence.iter().map(|sentence| format!("- {sentence}")))
        .chain(placement.findings.warnings.iter().map(|sentence| format!("! {sentence}")))
        .collect::<Vec<_>>()
        .join("\n")
}

fn root(placement: &Placement) -> String {
    placement.root.to_string()
}

#[test]
fn a_pod_without_owner_is_its_own_root_and_may_name_its_queue() {
    let pod = object("Pod/p").queue("a");
    assert_snapshot!(show(&world([]).place(&pod)), @r"
    ns run uid of Pod/p; queue a; Units; 
    - queue a: label tidegate.dev/queue on Pod/p
    ");
}

#[test]
fn without_any_label_there_is_no_queue() {
    let pod = object("Pod/p").by("Job/j");
    let (key, metadata) = (pod.key("ns"), Metadata::from(&pod.meta));
    let member = Member { key: &key, metadata: &metadata, namespace_queue: None };
    let placement = resolve(&member, &world([object("Job/j")]));
    assert_snapshot!(show(placement.placement()), @r"
    ns run uid of Job/j; queue -; Units; Job/j
    - no queue: neither Job/j nor namespace ns has label tidegate.dev/queue
    ");
}

#[rstest]
#[case::job(&["Pod/p", "Job/j"])]
#[case::deployment(&["Pod/p", "ReplicaSet/r", "Deployment/d"])]
#[case::stateful_set(&["Pod/p", "StatefulSet/s"])]
#[case::daemon_set(&["Pod/p", "DaemonSet/s"])]
#[case::job_set(&["Pod/p", "Job/j", "JobSet/js"])]
#[case::train_job(&["Pod/p", "Job/j", "JobSet/js", "TrainJob/t"])]
#[case::ray_cluster(&["Pod/p", "RayCluster/c"])]
#[case::ray_job(&["Pod/p", "RayCluster/c", "RayJob/r"])]
#[case::dask(&["Pod/p", "ReplicaSet/r", "Deployment/d", "DaskWorkerGroup/w", "DaskCluster/c"])]
#[case::dask_job(&["Pod/p", "ReplicaSet/r", "Deployment/d", "DaskWorkerGroup/w", "DaskCluster/c", "DaskJob/j"])]
#[case::made_up(&["Pod/p", "Gadget/g", "Contraption/c"])]
fn a_chain_of_controllers_is_one_run_paid_by_the_queue_on_its_top(#[case] chain: &[&str]) {
    let objects = chain.iter().enumerate().map(|(at, is)| {
        let made = match chain.get(at + 1) {
            Some(owner) => object(is).by(owner).queue("copied"),
            None => object(is).queue("a"),
        };
        (is.to_string(), made)
    });
    let world = World(objects.collect());
    let placement = world.place(&world.0[chain[0]]);
    let top = chain.last().unwrap();
    assert_eq!(root(&placement), *top);
    assert_eq!(
        *placement.group,
        GroupKey::Run { namespace: "ns".into(), root: uid_of(top).into() }
    );
    let queue = QueueChoice { name: "a".into(), found: FoundAt::Root };
    assert_eq!(placement.findings.queue, Some(queue));
    let owners: Vec<_> = chain[1..].iter().rev().map(|is| Arc::from(*is)).collect();
    assert_eq!(placement.findings.chain, owners);
    assert_eq!(placement.findings.gang, Gang::Units);
}

#[test]
fn copies_of_the_queue_label_choose_nothing_and_are_said() {
    let world = world([object("Job/j").by("JobSet/s").queue("b"), object("JobSet/s")]);
    assert_snapshot!(show(&world.place(&object("Pod/p").by("Job/j").queue("c"))), @r"
    ns run uid of JobSet/s; queue house; Units; JobSet/s > Job/j
    - queue house: label tidegate.dev/queue on namespace ns
    - label tidegate.dev/queue=c on its pods chooses nothing: only an object without owner names the queue
    - label tidegate.dev/queue=b on Job/j chooses nothing: only an object without owner names the queue
    ");
}

#[test]
fn a_pod_from_a_backup_says_so() {
    let mut pod = object("Pod/db-0").by("StatefulSet/db");
    let labels = pod.meta.labels.get_or_insert_default();
    labels.insert("velero.io/restore-name".to_owned(), "nightly".to_owned());
    assert_snapshot!(show(&world([]).place(&pod)), @r"
    ns run uid of Pod/db-0; queue house; Units; 
    - queue house: label tidegate.dev/queue on namespace ns
    - Pod/db-0 is owned by StatefulSet/db, which does not exist
    - restored from a backup (label velero.io/restore-name=nightly on Pod/db-0): the restore may give up on pods that stay gated for long
    ");
}

#[test]
fn launcher_and_workers_of_an_mpi_job_are_one_group_at_different_depths() {
    let world = world([object("Job/launcher").by("MPIJob/pi"), object("MPIJob/pi")]);
    let launcher = world.place(&object("Pod/launcher-x").by("Job/launcher"));
    let worker = world.place(&object("Pod/worker-0").by("MPIJob/pi"));
    assert_eq!(launcher.group, worker.group);
    assert_eq!(launcher.findings.queue, worker.findings.queue);
}

#[test]
fn the_submitter_of_a_ray_job_is_in_the_group_of_its_cluster() {
    let world = world([
        object("Job/submit").by("RayJob/r"),
        object("RayCluster/c").by("RayJob/r"),
        object("RayJob/r"),
    ]);
    let submitter = world.place(&object("Pod/submit-x").by("Job/submit"));
    let head = world.place(&object("Pod/head").by("RayCluster/c"));
    assert_eq!(submitter.group, head.group);
}

#[test]
fn spark_executors_follow_their_driver_pod_although_they_name_the_application_too() {
    let world = world([
        object("Pod/driver").by("SparkApplication/pi"),
        object("SparkApplication/pi").queue("a"),
    ]);
    let executor = object("Pod/exec-1").names("SparkApplication/pi").by("Pod/driver");
    assert_snapshot!(show(&world.place(&executor)), @r"
    ns run uid of SparkApplication/pi; queue a; Units; SparkApplication/pi > Pod/driver
    - queue a: label tidegate.dev/queue on SparkApplication/pi
    ");
}

#[test]
fn a_dask_worker_moves_to_its_cluster_when_that_adopts_the_worker_group() {
    let pod = object("Pod/w").by("ReplicaSet/r");
    let objects = |group| {
        world([
            object("ReplicaSet/r").by("Deployment/d"),
            object("Deployment/d").by("DaskWorkerGroup/g"),
            group,
            object("DaskCluster/c"),
        ])
    };
    let before = objects(object("DaskWorkerGroup/g")).place(&pod);
    let after = objects(object("DaskWorkerGroup/g").by("DaskCluster/c")).place(&pod);
    assert_eq!((root(&before), root(&after)), ("DaskWorkerGroup/g".into(), "DaskCluster/c".into()));
    assert_eq!(after.findings.asked.len(), 4);
}

#[test]
fn each_run_of_a_schedule_is_a_group_and_the_schedule_names_the_queue() {
    let world = world([
        object("Job/report-1").by("CronJob/report"),
        object("CronJob/report").starter().queue("nightly"),
    ]);
    assert_snapshot!(show(&world.place(&object("Pod/p").by("Job/report-1"))), @r"
    ns run uid of Job/report-1; queue nightly; Units; CronJob/report > Job/report-1
    - queue nightly: label tidegate.dev/queue on CronJob/report
    - CronJob/report starts runs by its schedule: Job/report-1 is a run of its own
    ");
}

#[test]
fn a_run_started_by_hand_is_paid_like_a_scheduled_one_but_stands_alone() {
    let world = world([
        object("Job/by-hand").names("CronJob/report"),
        object("Job/scheduled").by("CronJob/report"),
        object("CronJob/report").starter().queue("nightly"),
    ]);
    let by_hand = world.place(&object("Pod/p").by("Job/by-hand"));
    let scheduled = world.place(&object("Pod/q").by("Job/scheduled"));
    assert_eq!(by_hand.findings.queue, scheduled.findings.queue);
    assert_ne!(by_hand.group, scheduled.group);
}

#[test]
fn an_owner_that_does_not_control_names_the_queue_only() {
    let world = world([object("Job/j").names("Pipeline/p"), object("Pipeline/p").queue("a")]);
    assert_snapshot!(show(&world.place(&object("Pod/p").by("Job/j"))), @r"
    ns run uid of Job/j; queue a; Units; Pipeline/p > Job/j
    - queue a: label tidegate.dev/queue on Pipeline/p
    - Job/j names Pipeline/p as owner but not as controller: good for the queue, not for the group
    ");
}

#[test]
fn a_run_that_is_several_levels_deep_under_a_schedule_stays_one() {
    let world = world([
        object("RayCluster/c").by("RayJob/r"),
        object("RayJob/r").by("RayCronJob/rc"),
        object("RayCronJob/rc").starter(),
    ]);
    let placement = world.place(&object("Pod/p").by("RayCluster/c"));
    assert_eq!(root(&placement), "RayJob/r");
}

#[test]
fn trees_without_common_owner_join_by_annotation_on_pod_or_ancestor() {
    let world = world([object("Deployment/workers").annotated("group", "sim")]);
    let worker = world.place(&object("Pod/w").by("Deployment/workers"));
    let head = world.place(&object("Pod/head").annotated("group", "sim"));
    assert_eq!(*worker.group, GroupKey::Named { namespace: "ns".into(), name: "sim".into() });
    assert_eq!(worker.group, head.group);
    assert_eq!(root(&worker), "Deployment/workers");
}

#[test]
fn the_annotation_nearest_to_the_pod_wins() {
    let world = world([
        object("Job/j").by("JobSet/s").annotated("group", "near").annotated("min-count", "2"),
        object("JobSet/s").annotated("group", "far").annotated("min-count", "9"),
    ]);
    assert_snapshot!(show(&world.place(&object("Pod/p").by("Job/j"))), @r#"
    ns named near; queue house; AtLeast(2); JobSet/s > Job/j
    - queue house: label tidegate.dev/queue on namespace ns
    - annotation tidegate.dev/group="near" on Job/j
    - annotation tidegate.dev/min-count="2" on Job/j
    "#);
}

#[rstest]
#[case::absent(None, None, Gang::Units)]
#[case::auto(Some("auto"), None, Gang::Units)]
#[case::none(Some("none"), None, Gang::Units)]
#[case::all(Some("all"), None, Gang::All)]
#[case::count(None, Some("4"), Gang::AtLeast(4))]
#[case::number_is_better_than_all(Some("all"), Some("4"), Gang::AtLeast(4))]
#[case::none_beats_a_number(Some("none"), Some("4"), Gang::Units)]
#[case::zero(None, Some("0"), Gang::Units)]
#[case::negative(None, Some("-3"), Gang::Units)]
#[case::fraction(None, Some("2.5"), Gang::Units)]
#[case::huge(None, Some("99999999999"), Gang::Units)]
#[case::words(Some("ALL"), None, Gang::Units)]
fn gang_rules(#[case] gang: Option<&str>, #[case] min_count: Option<&str>, #[case] is: Gang) {
    let mut pod = object("Pod/p");
    for (key, value) in [("gang", gang), ("min-count", min_count)] {
        if let Some(value) = value {
            pod = pod.annotated(key, value);
        }
    }
    assert_eq!(world([]).place(&pod).findings.gang, is);
}

#[test]
fn a_malformed_mark_is_said_and_the_next_one_above_counts() {
    let world = world([object("Job/j").annotated("min-count", "3")]);
    let pod = object("Pod/p").by("Job/j").annotated("min-count", "many\n").annotated("gang", "yes");
    assert_snapshot!(show(&world.place(&pod)), @r#"
    ns run uid of Job/j; queue house; AtLeast(3); Job/j
    - queue house: label tidegate.dev/queue on namespace ns
    - annotation tidegate.dev/min-count="3" on Job/j
    ! annotation tidegate.dev/gang="yes" on its pods is not one of auto, all, none: ignored
    ! annotation tidegate.dev/min-count="many\n" on its pods is not a whole number above 0: ignored
    "#);
}

#[test]
fn a_group_name_too_long_to_be_one_is_ignored() {
    let pod = |letters| object("Pod/p").annotated("group", &"ä".repeat(letters));
    let group = |letters| world([]).place(&pod(letters)).group;
    assert!(matches!(*group(126), GroupKey::Named { .. }));
    assert!(matches!(*group(127), GroupKey::Run { .. }));
    assert!(matches!(*group(100_000), GroupKey::Run { .. }));
    let warnings = world([]).place(&pod(127)).findings.warnings.clone();
    assert!(warnings[0].contains("\"... on Pod/p is longer than 253"), "{warnings:?}");
}

#[test]
fn a_cluster_scoped_owner_never_merges_namespaces() {
    let world = world([object("Fleet/f").cluster_scoped()]);
    let pod = object("Pod/p").by("Fleet/f");
    let [one, two] = ["one", "two"].map(|namespace| resolve_in(&world, &pod, namespace));
    assert_ne!(one.placement().group, two.placement().group);
    assert_eq!(&*one.placement().root.namespace, "");
}

/// Or else a pod would take the default queue of any namespace that it names as owner.
#[test]
fn the_label_of_a_cluster_scoped_owner_chooses_nothing() {
    let world = world([object("Namespace/theirs").cluster_scoped().queue("theirs")]);
    let placement = world.place(&object("Pod/p").names("Namespace/theirs"));
    assert_eq!(placement.findings.queue.as_ref().map(|queue| &*queue.name), Some("house"));
    assert!(placement.findings.evidence.iter().any(|line| line.contains("chooses nothing")));
}

#[test]
fn an_owner_that_is_not_known_yet_is_asked_for() {
    let world = world([
        object("Job/j").by("JobSet/s").queue("b"),
        object("JobSet/s").answers(Lookup::Pending),
    ]);
    let so_far = resolve_in(&world, &object("Pod/p").by("Job/j"), "ns");
    let owner = so_far.needed().unwrap();
    assert_eq!(owner.to_string(), "JobSet/s");
    assert_eq!(&*owner.namespace, "ns");
    assert_snapshot!(show(so_far.placement()), @r"
    ns run uid of JobSet/s; queue -; Units; JobSet/s > Job/j
    - JobSet/s is being looked up
    ");
}

#[test]
fn an_owner_that_may_not_be_read_is_still_the_root_and_the_missing_rule_is_said() {
    let rule = r#"{apiGroups: ["x.io"], resources: ["gadgets"], verbs: ["get"]}"#;
    let world = world([
        object("Job/j").by("Gadget/g").queue("b"),
        object("Gadget/g").answers(Lookup::Forbidden(rule.into())),
    ]);
    assert_snapshot!(show(&world.place(&object("Pod/p").by("Job/j"))), @r#"
    ns run uid of Gadget/g; queue house; Units; Gadget/g > Job/j
    - queue house: label tidegate.dev/queue on namespace ns
    - label tidegate.dev/queue=b on Job/j chooses nothing: only an object without owner names the queue
    - Gadget/g may not be read, so what is above it is not known; missing rule: {apiGroups: ["x.io"], resources: ["gadgets"], verbs: ["get"]}; add it in a ClusterRole with label rbac.tidegate.dev/aggregate-to-owners: "true"
    "#);
}

#[rstest]
#[case::gone(object("Pod/p").by("Job/gone"))]
#[case::forged_uid(object("Pod/p").refers(OwnerReference {
    uid: "forged".into(),
    ..reference("Job/j", Some(true))
}))]
fn an_owner_that_is_not_there_leaves_the_pod_alone_and_its_label_unheard(#[case] pod: Object) {
    let world = world([object("Job/j").queue("a")]);
    let placement = world.place(&pod.queue("mine"));
    assert_eq!(root(&placement), "Pod/p");
    assert_eq!(&*placement.findings.queue.as_ref().unwrap().name, "house");
    assert_eq!(placement.findings.evidence.len(), 3, "{:?}", placement.findings.evidence);
}

#[test]
fn what_is_wrong_with_an_owner_is_said() {
    let world = world([
        object("Job/a").by("Job/b"),
        object("Job/b").by("Job/a"),
        object("Job/c")
            .refers(OwnerReference { uid: "u".into(), ..reference("Job/a", Some(true)) }),
        object("Job/d").names("Job/a").names("Job/b"),
        object("Job/e").answers(Lookup::UnknownKind),
    ]);
    let say =
        |owner| world.place(&object("Pod/p").by(owner)).findings.evidence.last().cloned().unwrap();
    let all = ["Job/a", "Job/c", "Job/d", "Job/e", "Job/f"].map(|owner| say(owner).to_string());
    assert_snapshot!(all.join("\n"), @r"
    the owners of Job/b go round in a circle at Job/a
    Job/c is owned by Job/a with uid u, but the object of that name has another uid
    Job/d has 2 owners and none of them is its controller
    Job/e is of a kind that this cluster does not serve (v1), so what is above it is not known
    Pod/p is owned by Job/f, which does not exist
    ");
}

#[test]
fn the_walk_ends_after_ten_owners() {
    let objects = (0..20).map(|level| {
        let is = format!("Level/{level}");
        (is.clone(), object(&is).by(&format!("Level/{}", level + 1)))
    });
    let placement = World(objects.collect()).place(&object("Pod/p").by("Level/0"));
    assert_eq!(root(&placement), "Level/9");
    assert_eq!(placement.findings.asked.len(), 10);
    assert!(placement.findings.evidence.iter().any(|sentence| sentence.contains("only 10")));
}

#[test]
fn five_levels_up_is_nothing_special() {
    let objects = (0..5).map(|level| {
        let is = format!("Level/{level}");
        let made = if level < 4 {
            object(&is).by(&format!("Level/{}", level + 1))
        } else {
            object(&is).queue("top")
        };
        (is, made)
    });
    let placement = World(objects.collect()).place(&object("Pod/p").by("Level/0"));
    assert_eq!(&*placement.findings.queue.as_ref().unwrap().name, "top");
}

#[test]
fn tasks_of_a_scheduler_that_owns_nothing_stay_units_of_one() {
    let [a, b] = ["Pod/a", "Pod/b"].map(|is| world([]).place(&object(is)));
    assert_ne!(a.group, b.group);
}

#[rstest]
#[case::cron_job(json!({"schedule": "0 3 * * *", "jobTemplate": {}}), true)]
#[case::cron_workflow(json!({"schedules": ["@daily", "0 3 * * 1"], "workflowSpec": {}}), true)]
#[case::made_up(json!({"cronSpec": "* * * * */5"}), true)]
#[case::job(json!({"template": {"spec": {"schedule": "no"}}}), false)]
#[case::not_a_time_table(json!({"schedule": {"policy": "fast"}, "schedules": [1]}), false)]
#[case::empty(json!({"schedule": "", "schedules": []}), false)]
#[case::deployment(json!({"replicas": 3, "template": {}}), false)]
fn things_that_start_runs_have_a_time_table(#[case] spec: serde_json::Value, #[case] is: bool) {
    assert_eq!(starts_runs(spec.as_object().unwrap()), is);
}
