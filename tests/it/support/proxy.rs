//! A bad network between the controller and an apiserver, on 127.0.0.1.
//!
//! Two layers. A TCP relay can cut connections in the middle of a byte and hold them without
//! a word (half-open). Behind it an HTTP proxy can answer in the apiserver's place, swallow a
//! request or its answer, or be slow.
//! It lives on a thread of its own, so that a busy test does not slow it.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{ConnectInfo, Request, State},
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use kube::{Client, Config};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::cluster::Cluster;

/// More than the apiserver takes.
const BODY_MAX: usize = 8 << 20;
/// How a watch asks for bookmarks.
const BOOKMARKS: &str = "allowWatchBookmarks=true";

/// What becomes of one PATCH of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answered with this status and text; the apiserver never hears of it. A 429 asks for
    /// one second.
    Answer(u16, &'static str),
    /// The connection is cut; the apiserver never hears of it.
    Cut,
    /// It is done, and the connection is cut instead of an answer.
    LoseAnswer,
    /// It is done, and nothing ever comes back.
    HoldAnswer,
    /// It is passed on after so long.
    Delay(Duration),
    /// It is on its way until [`Proxy::let_through`].
    Keep,
}

/// The proxy; it ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

#[derive(Debug, Default)]
struct Shared {
    plan: Mutex<Plan>,
    /// Connections of the relay, by its port towards the HTTP proxy.
    connections: Mutex<BTreeMap<u16, AbortHandle>>,
    accepted: AtomicUsize,
    hold: watch::Sender<Hold>,
    through: watch::Sender<bool>,
}

/// Connections that carry nothing, though nobody closes them.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    all: bool,
    /// The first so many never carry anything again.
    frozen: usize,
}

impl Hold {
    fn holds(self, number: usize) -> bool {
        self.all || number <= self.frozen
    }
}

#[derive(Debug, Default)]
struct Plan {
    /// For the next PATCHes of pods, one each; then `always`.
    next: VecDeque<Option<Fault>>,
    always: Option<Fault>,
    refuse: bool,
    /// Watches to be told that their version is too old.
    expire: usize,
    bookmarks_off: bool,
    seen: usize,
}

impl Proxy {
    /// In front of a cluster, for those who bring their own token.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let admin = cluster.config().await?;
        let mut config = Config::new(admin.cluster_url);
        config.root_cert = admin.root_cert;
        Self::to(config)
    }

    /// In front of a cluster; whoever asks is its administrator.
    pub async fn for_admin(cluster: &Cluster) -> Result<Self> {
        Self::to(cluster.config().await?)
    }

    fn to(mut config: Config) -> Result<Self> {
        config.default_retry = false;
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (shared, stop) = (Arc::<Shared>::default(), CancellationToken::new());
        let (inside, stopped) = (Arc::clone(&shared), stop.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            let serving = stopped.run_until_cancelled(serve(listener, config, inside));
            if let Some(Err(error)) = runtime.block_on(serving) {
                eprintln!("the fault proxy ended: {error:#}");
            }
        });
        Ok(Self { address, shared, _stop: stop.drop_guard() })
    }

    /// Where it listens, without TLS.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What becomes of the next PATCHes of pods, one each.
    pub fn next_patches(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.plan().next.extend(faults);
    }

    /// What becomes of all others.
    pub fn every_patch(&self, fault: Option<Fault>) {
        self.plan().always = fault;
    }

    /// What was kept on its way goes on to the apiserver, as does all that is to be kept later.
    pub fn let_through(&self) {
        self.shared.through.send_replace(true);
    }

    /// PATCHes of pods that came so far.
    pub fn patches(&self) -> usize {
        self.plan().seen
    }

    /// Cuts every connection, wherever it is.
    pub fn cut(&self) {
        for connection in std::mem::take(&mut *self.connections()).into_values() {
            connection.abort();
        }
    }

    /// New connections are closed at once, or not any more.
    pub fn refuse(&self, refuse: bool) {
        self.plan().refuse = refuse;
    }

    /// No byte passes in either direction and nobody is told, or bytes pass again.
    pub fn hold(&self, held: bool) {
        self.shared.hold.send_modify(|hold| hold.all = held);
    }

    /// What is open now never carries a byte again, as when a router forgets it; new
    /// connections work.
    pub fn freeze(&self) {
        let accepted = self.shared.accepted.load(Ordering::SeqCst);
        self.shared.hold.send_modify(|hold| hold.frozen = accepted);
    }

    /// Tells the next watches that what they know is too old, as after a compaction.
    pub fn expire_watches(&self, count: usize) {
        self.plan().expire = count;
    }

    /// Watches still to be told so.
    pub fn unexpired(&self) -> usize {
        self.plan().expire
    }

    /// From now on watches get no bookmarks.
    pub fn without_bookmarks(&self) {
        self.plan().bookmarks_off = true;
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.shared.plan()
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u16, AbortHandle>> {
        self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self, port: u16) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connections.remove(&port) {
            connection.abort();
        }
    }

    fn fault(&self, request: &Request) -> Option<Fault> {
        if request.method() != Method::PATCH || !is_pod(request.uri().path()) {
            return None;
        }
        let mut plan = self.plan();
        plan.seen += 1;
        plan.next.pop_front().unwrap_or(plan.always)
    }

    /// Whether this is a watch that is to be told that it knows too little.
    fn expires(&self, request: &Request) -> bool {
        let mut plan = self.plan();
        let expires = plan.expire > 0 && is_watch(request.uri());
        plan.expire -= usize::from(expires);
        expires
    }
}

fn is_pod(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    matches!(parts.as_slice(), ["api", "v1", "namespaces", _, "pods", _])
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.contains("watch=true"))
}

async fn serve(listener: std::net::TcpListener, config: Config, shared: Arc<Shared>) -> Result<()> {
    let inner = TcpListener::bind(("127.0.0.1", 0)).await?;
    let target = inner.local_addr()?;
    let state = (Client::try_from(config)?, Arc::clone(&shared));
    let router = Router::new().fallback(handle).with_state(state);
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let relaying = relay(TcpListener::from_std(listener)?, target, shared);
    tokio::select! {
        ended = axum::serve(inner, service) => Ok(ended?),
        ended = relaying => ended,
    }
}

async fn relay(listener: TcpListener, target: SocketAddr, shared: Arc<Shared>) -> Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        if shared.plan().refuse {
            continue;
        }
        let server = TcpStream::connect(target).await?;
        let port = server.local_addr()?.port();
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        let task = tokio::spawn(join(client, server, number, shared.hold.subscribe()));
        let mut connections = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|_, connection| !connection.is_finished());
        connections.insert(port, task.abort_handle());
    }
}

async fn join(client: TcpStream, server: TcpStream, number: usize, hold: watch::Receiver<Hold>) {
    // Whichever side closes, both are closed.
    tokio::select! {
        () = pump(&client, &server, number, hold.clone()) => {}
        () = pump(&server, &client, number, hold) => {}
    }
}

/// Passes bytes on until a side closes; while held, what came stays here.
async fn pump(from: &TcpStream, to: &TcpStream, number: usize, mut hold: watch::Receiver<Hold>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(count @ 1..) = read(from, &mut buffer).await else { return };
        if hold.wait_for(|hold| !hold.holds(number)).await.is_err() {
            return;
        }
        if write(to, buffer.get(..count).unwrap_or_default()).await.is_err() {
            return;
        }
    }
}

async fn read(from: &TcpStream, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        from.readable().await?;
        match from.try_read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

async fn write(to: &TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

type Inside = (Client, Arc<Shared>);

async fn handle(
    State((client, shared)): State<Inside>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    if shared.expires(&request) {
        return refusal(410, "Expired", "too old resource version");
    }
    let fault = shared.fault(&request);
    let lost = match fault {
        Some(Fault::Answer(code, text)) => return refusal(code, "", text),
        Some(Fault::Cut) => {
            shared.cut(peer.port());
            return std::future::pending().await;
        }
        Some(Fault::Delay(wait)) => {
            tokio::time::sleep(wait).await;
            false
        }
        Some(Fault::Keep) => shared.through.subscribe().wait_for(|&go| go).await.is_err(),
        Some(Fault::LoseAnswer | Fault::HoldAnswer) => true,
        None => false,
    };
    let bookmarks_off = shared.plan().bookmarks_off;
    let answer = forward(&client, request, bookmarks_off).await;
    if fault == Some(Fault::LoseAnswer) {
        shared.cut(peer.port());
    }
    if lost {
        return std::future::pending().await;
    }
    answer.unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response())
}

fn refusal(code: u16, reason: &str, message: &str) -> Response {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message});
    let mut response = (status, body.to_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if code == 429 {
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

async fn forward(client: &Client, request: Request, bookmarks_off: bool) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    let bytes = to_bytes(body, BODY_MAX).await?;
    let target = parts.uri.path_and_query().context("no path")?.as_str();
    let bookmarks = if bookmarks_off { "allowWatchBookmarks=false" } else { BOOKMARKS };
    parts.uri = target.replace(BOOKMARKS, bookmarks).parse()?;
    for hop in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH] {
        parts.headers.remove(hop);
    }
    let body = kube::client::Body::from(bytes.to_vec());
    let (mut parts, body) = client.send(http::Request::from_parts(parts, body)).await?.into_parts();
    parts.headers.remove(header::TRANSFER_ENCODING);
    Ok(Response::from_parts(parts, Body::new(body)))
}
