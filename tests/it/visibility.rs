//! The aggregated API behind a real apiserver, seen through real kubectl and our own
//! command line. What it shows is made up; who may see it is decided by RBAC.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidegate::certs::{Authority, Names, Resolver};
use tidegate::engine::ClusterId;
use tidegate::engine::event::{Address, GroupName, ObjectRef, Origin};
use tidegate::report::health::{self, Health};
use tidegate::report::visibility::access::Ask;
use tidegate::report::visibility::{Apiserver, Authorizer as _, Identity, Visibility, router};
use tidegate::report::{frontproxy, serve};
use tidegate::view::{
    self, Amounts, Counts, GroupRow, GroupState, PodRow, Published, QueueRow, View, Wait, Why,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::cluster::{Cluster, Options};
use crate::support::{helper, wait};

const SERVICE: &str = "tidegate-controller";
const SYSTEM: &str = "tidegate-system";

/// The served API, and the tools that look at it.
struct Bench {
    cluster: Cluster,
    published: Published,
    kubectl: std::path::PathBuf,
    _stop: DropGuard,
}

impl Bench {
    async fn start() -> Result<Self> {
        let cluster = Cluster::start(&Options { nodes: 0, ..Options::default() })?;
        let client = cluster.client().await?;
        let names = Names::of_services(SYSTEM, &[SERVICE], &[]);
        let authority = Authority::issue(&names, jiff::Timestamp::now())?;
        let (published, stop) = (view::published(), CancellationToken::new());
        let port = serve_api(&client, published.clone(), &authority, stop.clone()).await?;
        register(&client, port, &authority).await?;
        let kubectl = helper("kubectl")?;
        Ok(Self { cluster, published, kubectl, _stop: stop.drop_guard() })
    }

    /// Runs kubectl as this user; an empty name is the administrator.
    async fn kubectl(&self, user: &str, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.cluster.kubeconfig());
        command.args(["--cache-dir".as_ref(), self.cluster.dir().join("kubectl").as_os_str()]);
        if !user.is_empty() {
            command.args(["--as", user]);
        }
        command.args(args);
        run(command).await
    }

    /// What kubectl prints when it succeeds.
    async fn reads(&self, user: &str, args: &[&str]) -> Result<String> {
        let output = self.kubectl(user, args).await?;
        ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What kubectl complains of when it fails.
    async fn refused(&self, user: &str, args: &[&str]) -> Result<String> {
        let output = self.kubectl(user, args).await?;
        ensure!(!output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
        Ok(String::from_utf8(output.stderr)?)
    }

    /// Runs our own command line as the administrator.
    async fn tidegate(&self, args: &[&str]) -> Result<(Option<i32>, String)> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(args).arg("--kubeconfig").arg(self.cluster.kubeconfig());
        let output = run(command).await?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8(text)?))
    }
}

/// The runtime goes on serving meanwhile.
async fn run(mut command: Command) -> Result<Output> {
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

async fn serve_api(
    client: &Client,
    published: Published,
    authority: &Authority,
    stop: CancellationToken,
) -> Result<u16> {
    let resolver = Arc::new(Resolver::default());
    resolver.set(authority.tls_crt.as_bytes(), authority.tls_key.as_bytes())?;
    let proxy = Arc::new(frontproxy::FrontProxy::default());
    frontproxy::load(client, &proxy).await?;
    let ready = health::synced(published.clone());
    let health = Health { live: Arc::new(|| Ok(())), ready };
    let app = Visibility::new(published, Arc::new(Apiserver::new(client.clone())));
    let router = frontproxy::authenticated(router(app, &health), proxy.clone());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let config = frontproxy::server_config(resolver, proxy)?;
    tokio::spawn(serve::tls(listener, config, router, stop));
    Ok(port)
}

/// The objects that make the apiserver send requests on to us.
async fn register(client: &Client, port: u16, authority: &Authority) -> Result<()> {
    for name in [SYSTEM, "ml", "web"] {
        let labels = json!({"tidegate.dev/managed": "true"});
        make::<Namespace>(client, None, json!({"metadata": {"name": name, "labels": labels}}))
            .await?;
    }
    let service = json!({
        "metadata": {"name": SERVICE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    make::<Service>(client, Some(SYSTEM), service).await?;
    let mut registration: APIService = serde_json::from_value(json!({
        "metadata": {"name": "v1alpha1.visibility.tidegate.dev"},
        "spec": {
            "group": "visibility.tidegate.dev",
            "version": "v1alpha1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": SERVICE, "namespace": SYSTEM, "port": port},
        },
    }))?;
    if let Some(spec) = &mut registration.spec {
        spec.ca_bundle = Some(k8s_openapi::ByteString(authority.ca_crt.clone().into_bytes()));
    }
    make::<APIService>(client, None, serde_json::to_value(registration)?).await?;
    let services = Api::<APIService>::all(client.clone());
    wait::until("the API is available", wait::START, async || {
        let service = services.get("v1alpha1.visibility.tidegate.dev").await?;
        let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.iter().any(|one| one.type_ == "Available" && one.status == "True"))
    })
    .await
}

async fn make<K>(client: &Client, namespace: Option<&str>, object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let (object, kind): (K, _) = (serde_json::from_value(object)?, K::kind(&()));
    let path = K::url_path(&(), namespace);
    let request = kube::core::Request::new(path)
        .create(&PostParams::default(), serde_json::to_vec(&object)?)
        .context("request")?;
    client.request::<K>(request).await.with_context(|| format!("making a {kind}"))?;
    Ok(())
}

/// Lets a user read the groups of a namespace.
async fn admit(client: &Client, user: &str, namespace: &str) -> Result<()> {
    let role = json!({
        "metadata": {"name": "groups"},
        "rules": [{
            "apiGroups": ["visibility.tidegate.dev"],
            "resources": ["groups", "groups/explanation"],
            "verbs": ["get", "list"],
        }],
    });
    make::<ClusterRole>(client, None, role).await?;
    let binding = json!({
        "metadata": {"name": "groups"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "groups"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    make::<RoleBinding>(client, Some(namespace), binding).await
}

fn amounts(cpu: &str) -> Amounts {
    Amounts::from([("cpu".into(), cpu.to_owned())])
}

fn group(namespace: &str, name: &str) -> GroupRow {
    let now = jiff::Timestamp::now().as_millisecond();
    GroupRow {
        name: format!("job-{name}-1f2e").into(),
        who: Arc::new(who(namespace, name)),
        queue: Some("a".into()),
        state: GroupState::Waiting,
        wait: Some(Wait {
            why: Arc::new(Why {
                code: "QueueLimit",
                message: "limit of queue \"a\": needs 2 cpu, 7 of 8 in use, 1 missing".to_owned(),
                remedy: None,
                needs_action: false,
                settled: true,
            }),
            groups_ahead: 1,
            pods_ahead: 3,
        }),
        held: None,
        spared: None,
        min_count: 0,
        priority: 0,
        asks: Arc::new(amounts("2")),
        charged: Arc::default(),
        since: now - 20 * 3_600_000,
        begun: now - 20 * 3_600_000,
        pods: vec![PodRow {
            name: format!("{name}-0").into(),
            state: "Waiting",
            created: now,
            hindrance: None,
        }],
        counts: Counts { waiting: 1, ..Counts::default() },
    }
}

fn who(namespace: &str, name: &str) -> GroupName {
    GroupName {
        namespace: namespace.into(),
        joined: None,
        root: ObjectRef {
            address: Address {
                cluster: ClusterId(0),
                namespace: namespace.into(),
                name: name.into(),
                uid: "0b7f2a3c-1f2e-4c9d-9d3e-5a6b7c8d9e0f".into(),
            },
            api_version: "batch/v1".into(),
            kind: "Job".into(),
        },
        origin: Arc::new(Origin {
            chains: Vec::new(),
            evidence: vec!["queue a: label on the namespace".into()],
            ..Origin::default()
        }),
    }
}

fn some_work() -> View {
    let queue = QueueRow { name: "a".into(), exists: true, weight: 1, ..QueueRow::default() };
    let groups = [("ml", "x"), ("ml", "y"), ("web", "z")].map(|(namespace, name)| {
        let row = group(namespace, name);
        ((namespace.into(), row.name.clone()), Arc::new(row))
    });
    View {
        synced: true,
        queues: [(queue.name.clone(), queue)].into(),
        groups: groups.into(),
        capacity: amounts("16"),
        ..View::default()
    }
}

#[tokio::test]
async fn kubectl_reads_groups_as_its_user_may() -> Result<()> {
    let bench = Bench::start().await?;

    let early = bench.refused("", &["get", "groups", "-A"]).await?;
    ensure!(early.contains("still reading the cluster"), "{early}");
    let (code, early) = bench.tidegate(&["pending", "-A"]).await?;
    ensure!(code == Some(1) && early.contains("still reading the cluster"), "{code:?} {early}");

    bench.published.store(Arc::new(some_work()));
    tables(&bench).await?;
    documents(&bench).await?;
    rights(&bench).await?;
    command_line(&bench).await
}

async fn tables(bench: &Bench) -> Result<()> {
    insta::assert_snapshot!(bench.reads("", &["get", "groups", "-n", "ml"]).await?, @"
    NAME         QUEUE   STATE     PODS   REASON       AGE
    job-x-1f2e   a       Waiting   0/1    QueueLimit   20h
    job-y-1f2e   a       Waiting   0/1    QueueLimit   20h
    ");
    insta::assert_snapshot!(bench.reads("", &["get", "tg", "-A", "-o", "wide"]).await?, @"
    NAMESPACE   NAME         QUEUE   STATE     PODS   REASON       AGE   PRIORITY   ASKS    AHEAD   ROOT    WARNING
    ml          job-x-1f2e   a       Waiting   0/1    QueueLimit   20h   0          cpu=2   1       Job/x   <none>
    ml          job-y-1f2e   a       Waiting   0/1    QueueLimit   20h   0          cpu=2   1       Job/y   <none>
    web         job-z-1f2e   a       Waiting   0/1    QueueLimit   20h   0          cpu=2   1       Job/z   <none>
    ");
    let one = ["get", "groups", "-A", "--field-selector", "object=pod/z-0", "--no-headers"];
    insta::assert_snapshot!(bench.reads("", &one).await?, @"web   job-z-1f2e   a     Waiting   0/1   QueueLimit   20h");
    let category = bench.reads("", &["get", "tidegate", "-n", "web", "-o", "name"]).await?;
    insta::assert_snapshot!(category, @"group.visibility.tidegate.dev/job-z-1f2e");
    let paged = bench.reads("", &["get", "groups", "-A", "--chunk-size=1", "-o", "name"]).await?;
    ensure!(paged.lines().count() == 3, "{paged}");
    let queue = ["get", "group", "job-x-1f2e", "-n", "ml", "-o", "jsonpath={.wait.reason}"];
    ensure!(bench.reads("", &queue).await? == "QueueLimit");
    Ok(())
}

async fn documents(bench: &Bench) -> Result<()> {
    let explained = wait::for_some("the schema is aggregated", wait::START, async || {
        let output = bench.kubectl("", &["explain", "groups.wait"]).await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Some(String::from_utf8(output.stdout)?))
    });
    let explained = explained.await?;
    ensure!(explained.contains("Groups of the same queue that go first."), "{explained}");
    let missing = bench.refused("", &["get", "groups", "none", "-n", "ml"]).await?;
    insta::assert_snapshot!(missing, @r#"Error from server (NotFound): groups.visibility.tidegate.dev "none" not found"#);
    let labels = bench.refused("", &["get", "groups", "-A", "-l", "a=b"]).await?;
    insta::assert_snapshot!(labels, @r#"Error from server (BadRequest): Unable to find "visibility.tidegate.dev/v1alpha1, Resource=groups" that match label selector "a=b", field selector "": groups have no labels to select by: use a field selector such as queue=NAME or object=KIND/NAME"#);
    let deletion = bench.refused("", &["delete", "group", "job-x-1f2e", "-n", "ml"]).await?;
    insta::assert_snapshot!(deletion, @"Error from server (MethodNotAllowed): groups can only be read: the verbs are get and list");
    // Nothing of this API may keep a namespace from being deleted.
    bench.reads("", &["delete", "namespace", "web", "--timeout=60s"]).await?;
    Ok(())
}

async fn rights(bench: &Bench) -> Result<()> {
    let client = bench.cluster.client().await?;
    let nothing = bench.refused("ann", &["get", "groups", "-n", "ml"]).await?;
    insta::assert_snapshot!(nothing, @r#"Error from server (Forbidden): groups.visibility.tidegate.dev is forbidden: User "ann" cannot list resource "groups" in API group "visibility.tidegate.dev" in the namespace "ml""#);
    admit(&client, "ann", "ml").await?;
    let allowed = wait::for_some("ann may read ml", wait::SOON, async || {
        Ok(Some(bench.reads("ann", &["get", "groups", "-n", "ml", "-o", "name"]).await?))
    });
    ensure!(allowed.await?.lines().count() == 2);
    let base = "/apis/visibility.tidegate.dev/v1alpha1/namespaces";
    let own = format!("{base}/ml/groups/job-x-1f2e/explanation");
    ensure!(bench.reads("ann", &["get", "--raw", &own]).await?.contains("queuePath"));
    let others = format!("{base}/web/groups/job-z-1f2e/explanation");
    for args in
        [&["get", "groups", "-A"][..], &["get", "groups", "-n", "web"], &["get", "--raw", &others]]
    {
        let refusal = bench.refused("ann", args).await?;
        ensure!(refusal.contains("forbidden"), "{refusal}");
    }
    our_own_question(client).await
}

/// The apiserver has judged a request before we see it; our own question is asked here.
async fn our_own_question(client: Client) -> Result<()> {
    let authorizer = Apiserver::new(client);
    let ann = Identity { user: "ann".to_owned(), ..Identity::default() };
    for (ask, allowed) in [
        (Ask::list(Some("ml")), true),
        (Ask::explanation("ml", "job-x-1f2e"), true),
        (Ask::list(Some("web")), false),
        (Ask::list(None), false),
    ] {
        ensure!(authorizer.allows(&ann, &ask).await? == allowed, "{ask}");
    }
    Ok(())
}

async fn command_line(bench: &Bench) -> Result<()> {
    let (code, why) = bench.tidegate(&["why", "job/x", "-n", "ml"]).await?;
    ensure!(code == Some(0), "{why}");
    insta::assert_snapshot!(why, @r#"
    Job/x in namespace ml: Waiting
      waits for 20h: QueueLimit
      limit of queue "a": needs 2 cpu, 7 of 8 in use, 1 missing

    Queue      a
    Pods       1 waiting, 0 let go without a node, 0 running, 0 ended; each starts on its own
    Asks       cpu 2
    Charged    <none>
    Priority   0
    Capacity   cpu 16

    QUEUE   WEIGHT   SHARE   USAGE    LIMIT    GUARANTEED
    a       1        0.0%    <none>   <none>   <none>

    Ahead of it in its queue: groups 1, pods 3.

    Evidence:
      queue a: label on the namespace
    "#);
    let (code, pending) = bench.tidegate(&["pending", "-A", "-o", "name"]).await?;
    ensure!(code == Some(0) && pending.lines().count() == 3, "{pending}");
    let (code, missing) = bench.tidegate(&["why", "cj/none", "-n", "ml"]).await?;
    ensure!(code == Some(3), "{missing}");
    insta::assert_snapshot!(missing, @r#"error: there is no cj/none in namespace "ml""#);
    let (code, closed) = bench.tidegate(&["why", "job/x", "-n", "kube-public"]).await?;
    ensure!(code == Some(3), "{closed}");
    insta::assert_snapshot!(closed, @r#"error: Tidegate never looks at namespace "kube-public": it is the system's"#);
    let (code, queues) = bench.tidegate(&["queues"]).await?;
    ensure!(code == Some(1) && queues.contains("Tidegate is not installed"), "{queues}");
    Ok(())
}
