//! Routers on listeners, until the process is to end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

/// What open requests get to end in at a stop.
const GRACE: Duration = Duration::from_secs(10);
/// What a new connection gets to send its first request in.
const FIRST_REQUEST: Duration = Duration::from_secs(30);

/// Serves over TLS until cancelled, then lets open requests end. The listener must be
/// non-blocking.
pub async fn tls(
    listener: TcpListener,
    config: ServerConfig,
    router: Router,
    cancel: CancellationToken,
) -> io::Result<()> {
    let handle = Handle::new();
    let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(Arc::new(config)));
    let server = axum_server::from_tcp(listener)?
        .acceptor(acceptor)
        .handle(handle.clone())
        .first_request_timeout(FIRST_REQUEST)
        .serve(router.into_make_service());
    until(cancel, server, handle).await
}

/// Serves plain HTTP until cancelled, as [`tls`] does.
pub async fn plain(
    listener: TcpListener,
    router: Router,
    cancel: CancellationToken,
) -> io::Result<()> {
    let handle = Handle::new();
    let server = axum_server::from_tcp(listener)?
        .handle(handle.clone())
        .first_request_timeout(FIRST_REQUEST)
        .serve(router.into_make_service());
    until(cancel, server, handle).await
}

async fn until(
    cancel: CancellationToken,
    server: impl Future<Output = io::Result<()>>,
    handle: Handle<SocketAddr>,
) -> io::Result<()> {
    tokio::pin!(server);
    tokio::select! {
        ended = &mut server => return ended,
        () = cancel.cancelled() => handle.graceful_shutdown(Some(GRACE)),
    }
    server.await
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use axum::routing::get;

    use super::*;

    #[tokio::test]
    async fn a_server_answers_until_it_is_cancelled() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let cancel = CancellationToken::new();
        let router = Router::new().route("/", get(async || "here"));
        let server = tokio::spawn(plain(listener, router, cancel.clone()));
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        assert!(answer.await.unwrap().ends_with("here"));
        cancel.cancel();
        server.await.unwrap().unwrap();
    }
}
