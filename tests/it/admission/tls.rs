//! The server on a socket: handshakes, connections that stay, an orderly end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidegate::admission::server::{Limits, MUTATE_PODS, serve};
use tidegate::certs::{Authority, Names, Resolver};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{pod_review, service};

const HOST: &str = "tidegate-webhook.tidegate-system.svc";

struct Server {
    address: SocketAddr,
    authority: Authority,
    resolver: Arc<Resolver>,
    stop: CancellationToken,
    running: JoinHandle<std::io::Result<()>>,
}

fn names() -> Names {
    Names::of_services("tidegate-system", &["tidegate-webhook"], &[])
}

fn start(limits: Limits) -> Server {
    let authority = Authority::issue(&names(), Timestamp::now()).unwrap();
    let resolver = Arc::new(Resolver::default());
    resolver.set(authority.tls_crt.as_bytes(), authority.tls_key.as_bytes()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let (service, _) = service(&[]);
    let running = tokio::spawn(serve(listener, resolver.clone(), service, limits, stop.clone()));
    Server { address, authority, resolver, stop, running }
}

fn limits() -> Limits {
    Limits { drain: Duration::from_millis(300), ..Limits::default() }
}

/// A client such as an apiserver: one connection, trust in our authority only.
struct Client(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Client {
    fn connect(server: &Server, alpn: &[&[u8]]) -> std::io::Result<Self> {
        let mut roots = RootCertStore::empty();
        let authority = server.authority.ca_crt.as_bytes();
        roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::try_from(HOST).unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(server.address)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut stream = StreamOwned::new(tls, socket);
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Status, headers in lower case, body.
    fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<(u16, String, String)> {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: {length}\r\n\r\n");
        let stream = self.0.get_mut();
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body)?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok((status, head, String::from_utf8(body).unwrap()))
    }

    fn shown_certificate(&self) -> CertificateDer<'static> {
        self.0.get_ref().conn.peer_certificates().unwrap()[0].clone().into_owned()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_serves_many_reviews_and_speaks_http_1_only() {
    let server = start(limits());
    blocking(move || {
        let mut client = Client::connect(&server, &[b"h2", b"http/1.1"]).unwrap();
        assert_eq!(client.0.get_ref().conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        for _ in 0..20 {
            let review = pod_review().to_string();
            let (status, head, body) = client.send("POST", MUTATE_PODS, &review).unwrap();
            assert_eq!(status, 200);
            assert!(!head.contains("connection: close"));
            assert!(body.contains("JSONPatch"));
        }
        assert!(Client::connect(&server, &[b"h2"]).is_err());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_outlives_pauses_shorter_than_idle_and_no_longer_ones() {
    let quick = Duration::from_millis(100);
    let server = start(Limits { handshake: quick, idle: quick * 20, ..limits() });
    blocking(move || {
        let mut client = Client::connect(&server, &[]).unwrap();
        for pause in [Duration::ZERO, quick * 3, quick * 5] {
            std::thread::sleep(pause);
            assert_eq!(client.send("GET", "/livez", "").unwrap().0, 200, "after {pause:?}");
        }
        std::thread::sleep(quick * 30);
        assert!(client.send("GET", "/livez", "").is_err());
        // Who connects and says nothing is dropped soon, before and after the handshake.
        let mut silent = TcpStream::connect(server.address).unwrap();
        silent.set_read_timeout(Some(quick * 50)).unwrap();
        assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
        let mut client = Client::connect(&server, &[]).unwrap();
        assert!(!matches!(client.0.read(&mut [0; 1]), Ok(1..)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leaf_is_shown_to_new_connections_and_old_ones_go_on() {
    let server = start(limits());
    blocking(move || {
        let mut old = Client::connect(&server, &[]).unwrap();
        let renewed = server.authority.with_new_leaf(&names(), Timestamp::now()).unwrap();
        server.resolver.set(renewed.tls_crt.as_bytes(), renewed.tls_key.as_bytes()).unwrap();
        assert_eq!(old.send("GET", "/livez", "").unwrap().0, 200);
        let new = Client::connect(&server, &[]).unwrap();
        assert_ne!(old.shown_certificate(), new.shown_certificate());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_above_the_limit_are_turned_away_before_the_handshake() {
    let server = start(Limits { connections: 2, ..limits() });
    blocking(move || {
        let mut held: Vec<_> = (0..2).map(|_| Client::connect(&server, &[]).unwrap()).collect();
        assert!(Client::connect(&server, &[]).is_err());
        for client in &mut held {
            assert_eq!(client.send("GET", "/livez", "").unwrap().0, 200);
        }
    })
    .await;
}

/// Half-open connections, handshakes that go no further and bodies that never end.
#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_answered_beside_many_who_connect_and_say_nothing() {
    let server = start(limits());
    blocking(move || {
        let silent: Vec<_> =
            (0..200).map(|_| TcpStream::connect(server.address).unwrap()).collect();
        let mut slow: Vec<_> = (0..20).map(|_| Client::connect(&server, &[]).unwrap()).collect();
        for client in &mut slow {
            let head = format!(
                "POST {MUTATE_PODS} HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 9\r\n\r\n{{"
            );
            client.0.get_mut().write_all(head.as_bytes()).unwrap();
        }
        let mut client = Client::connect(&server, &[]).unwrap();
        let review = pod_review().to_string();
        assert_eq!(client.send("POST", MUTATE_PODS, &review).unwrap().0, 200);
        drop((silent, slow));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_connections_are_asked_to_go_before_they_are_closed() {
    let server = start(limits());
    let (stop, address) = (server.stop.clone(), server.address);
    let server = blocking(move || {
        let mut pooled = Client::connect(&server, &[]).unwrap();
        assert_eq!(pooled.send("GET", "/readyz", "").unwrap().0, 200);
        stop.cancel();
        let (status, head) = loop {
            let (status, head, _) = pooled.send("GET", "/readyz", "").unwrap();
            if status != 200 {
                break (status, head);
            }
        };
        assert_eq!(status, 503);
        assert!(head.contains("connection: close"));
        // Others still send reviews until they have noticed.
        let mut late = Client::connect(&server, &[]).unwrap();
        let (status, head, _) = late.send("POST", MUTATE_PODS, &pod_review().to_string()).unwrap();
        assert_eq!(status, 200);
        assert!(head.contains("connection: close"));
        server
    })
    .await;
    server.running.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).is_err());
}
