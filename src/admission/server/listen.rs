//! From a socket to the router: TLS, connection limits, shutdown in order.

use std::future::{Ready, ready};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum_server::Handle;
use axum_server::accept::Accept;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::ResolvesServerCert;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::Service;

/// How much and how long one client may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; more are closed at once.
    pub connections: usize,
    /// A TLS handshake, and then the header of the first request.
    pub handshake: Duration,
    /// Time between two requests on a connection. An apiserver keeps its end for
    /// 90 seconds and must be the one who hangs up.
    pub idle: Duration,
    /// After being told to stop: how long connections are handed over.
    pub drain: Duration,
    /// After the drain: how long open requests may take.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(150),
            drain: Duration::from_secs(15),
            grace: Duration::from_secs(8),
        }
    }
}

/// Serves until `stop`, then drains and returns. Certificates are asked of
/// `resolver` at each handshake, so a renewed one needs no restart.
pub async fn serve(
    listener: TcpListener,
    resolver: Arc<dyn ResolvesServerCert>,
    service: Service,
    limits: Limits,
    stop: CancellationToken,
) -> io::Result<()> {
    let handle = Handle::new();
    let capped = Capped { handle: handle.clone(), most: limits.connections };
    let tls = RustlsConfig::from_config(Arc::new(tls_config(resolver)?));
    let acceptor = RustlsAcceptor::new(tls).handshake_timeout(limits.handshake).acceptor(capped);
    let mut server = axum_server::from_tcp(listener)?
        .acceptor(acceptor)
        .handle(handle.clone())
        .http1_only()
        .first_request_timeout(limits.handshake)
        .accept_error_handler(|peer, error| debug!(?peer, %error, "connection failed"));
    // hyper has one timer for the wait between requests and for their headers.
    server.http_builder().http1().header_read_timeout(limits.idle);
    let serving = server.serve(service.router().into_make_service());
    let (outcome, ()) = tokio::join!(serving, drain(handle, service, limits, stop));
    outcome
}

async fn drain(
    handle: Handle<SocketAddr>,
    service: Service,
    limits: Limits,
    stop: CancellationToken,
) {
    stop.cancelled().await;
    info!(connections = handle.connection_count(), "webhook draining");
    service.drain();
    tokio::time::sleep(limits.drain).await;
    handle.graceful_shutdown(Some(limits.grace));
}

fn tls_config(resolver: Arc<dyn ResolvesServerCert>) -> io::Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Turns connections away before the handshake when there are too many.
#[derive(Clone)]
struct Capped {
    handle: Handle<SocketAddr>,
    most: usize,
}

impl<S> Accept<TcpStream, S> for Capped {
    type Stream = TcpStream;
    type Service = S;
    type Future = Ready<io::Result<(TcpStream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // The count includes this connection.
        if self.handle.connection_count() > self.most {
            return ready(Err(io::Error::other("too many connections")));
        }
        ready(stream.set_nodelay(true).map(|()| (stream, service)))
    }
}
