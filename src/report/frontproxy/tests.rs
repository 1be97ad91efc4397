//! Real certificates over real TLS.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use axum::Router;
use axum::extract::Extension;
use axum::http::HeaderMap;
use axum::routing::get;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rstest::rstest;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::report::serve;
use crate::report::visibility::Identity;

/// A CA that signs leaves.
struct Ca(CertifiedIssuer<'static, KeyPair>);

/// DER of a certificate and its key.
struct Leaf {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn leaf(&self, name: &str, usage: ExtendedKeyUsagePurpose, year: i32) -> Leaf {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Leaf { certificate: certificate.der().clone(), key }
    }

    fn client(&self, name: &str) -> Leaf {
        self.leaf(name, ExtendedKeyUsagePurpose::ClientAuth, 4000)
    }

    fn settings(&self, allowed_names: &str) -> Settings {
        let list = |text: &str| text.to_owned();
        Settings::read(&BTreeMap::from([
            ("requestheader-client-ca-file".to_owned(), self.0.pem()),
            ("requestheader-allowed-names".to_owned(), list(allowed_names)),
            ("requestheader-username-headers".to_owned(), list(r#"["X-Remote-User"]"#)),
            ("requestheader-uid-headers".to_owned(), list(r#"["X-Remote-Uid"]"#)),
            ("requestheader-group-headers".to_owned(), list(r#"["X-Remote-Group"]"#)),
            ("requestheader-extra-headers-prefix".to_owned(), list(r#"["X-Remote-Extra-"]"#)),
        ]))
        .unwrap()
    }
}

impl Leaf {
    fn chain(&self) -> Vec<Vec<u8>> {
        vec![self.certificate.to_vec()]
    }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for &(name, value) in pairs {
        headers.append(name, value.parse().unwrap());
    }
    headers
}

fn ann() -> HeaderMap {
    headers(&[("x-remote-user", "ann")])
}

fn trusting(settings: &Settings) -> FrontProxy {
    let proxy = FrontProxy::default();
    assert!(proxy.set(settings).unwrap());
    proxy
}

#[test]
fn the_headers_of_the_front_proxy_say_who_asks() {
    let ca = Ca::new("proxy-ca");
    let proxy = trusting(&ca.settings(r#"["front-proxy-client"]"#));
    let sent = headers(&[
        ("x-remote-user", "ann"),
        ("x-remote-user", "eve"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "team"),
        ("x-remote-group", "system:authenticated"),
        ("x-remote-extra-scopes", "read"),
        ("x-remote-extra-acme.io%2fproject", "p"),
        ("impersonate-user", "root"),
    ]);
    let identity = proxy.identify(&ca.client("front-proxy-client").chain(), &sent).unwrap();
    let extra = [("acme.io/project", "p"), ("scopes", "read")]
        .map(|(key, value)| (key.to_owned(), vec![value.to_owned()]));
    assert_eq!(
        identity,
        Identity {
            user: "ann".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["team".to_owned(), "system:authenticated".to_owned()],
            extra: extra.into(),
        }
    );
}

#[test]
fn nobody_else_is_believed() {
    let (ca, other) = (Ca::new("proxy-ca"), Ca::new("cluster-ca"));
    let proxy = trusting(&ca.settings(r#"["front-proxy-client"]"#));
    let past = ca.leaf("front-proxy-client", ExtendedKeyUsagePurpose::ClientAuth, 2001);
    let server = ca.leaf("front-proxy-client", ExtendedKeyUsagePurpose::ServerAuth, 4000);
    let rejected = |leaf: &Leaf, sent: &HeaderMap| proxy.identify(&leaf.chain(), sent).unwrap_err();
    assert!(matches!(proxy.identify(&[], &ann()), Err(Rejected::NoCertificate)));
    assert!(matches!(proxy.identify(&[vec![1, 2]], &ann()), Err(Rejected::Certificate(_))));
    assert!(matches!(
        rejected(&other.client("front-proxy-client"), &ann()),
        Rejected::Certificate(_)
    ));
    assert!(matches!(rejected(&past, &ann()), Rejected::Certificate(_)));
    assert!(matches!(rejected(&server, &ann()), Rejected::Certificate(_)));
    assert!(matches!(rejected(&ca.client("kubelet"), &ann()), Rejected::Name(_)));
    let good = ca.client("front-proxy-client");
    assert!(matches!(rejected(&good, &HeaderMap::new()), Rejected::NoUser));
    assert!(matches!(rejected(&good, &headers(&[("x-remote-user", "")])), Rejected::NoUser));
}

#[test]
fn no_allowed_names_means_any_of_the_ca() {
    let ca = Ca::new("proxy-ca");
    assert!(trusting(&ca.settings("[]")).identify(&ca.client("x").chain(), &ann()).is_ok());
}

#[test]
fn a_new_ca_ends_the_trust_in_the_old_one() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let proxy = trusting(&old.settings("[]"));
    let chain = old.client("x").chain();
    assert!(proxy.identify(&chain, &ann()).is_ok());
    assert!(!proxy.set(&old.settings("[]")).unwrap());
    assert!(proxy.set(&new.settings("[]")).unwrap());
    assert!(proxy.identify(&chain, &ann()).is_err());
}

#[test]
fn unusable_settings_leave_the_old_in_force() {
    let ca = Ca::new("proxy-ca");
    let proxy = trusting(&ca.settings("[]"));
    let broken = Settings { client_ca: "no pem".to_owned(), ..ca.settings("[]") };
    assert!(matches!(proxy.set(&broken), Err(Error::Malformed { .. })));
    assert!(proxy.identify(&ca.client("x").chain(), &ann()).is_ok());
}

#[rstest]
#[case::no_ca(&[("requestheader-username-headers", r#"["X-Remote-User"]"#)])]
#[case::no_user_header(&[("requestheader-client-ca-file", "")])]
#[case::not_json(&[("requestheader-client-ca-file", ""), ("requestheader-username-headers", "X")])]
#[case::no_header_name(&[("requestheader-client-ca-file", ""), ("requestheader-username-headers", r#"["a b"]"#)])]
fn settings_that_name_nobody_are_refused(#[case] data: &[(&str, &str)]) {
    let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    assert!(Settings::read(&data.iter().map(owned).collect()).is_err());
}

/// Serves who asks over TLS until the token is cancelled.
fn serve_whoami(proxy: Arc<FrontProxy>, server: &Leaf, cancel: &CancellationToken) -> SocketAddr {
    let provider = rustls::crypto::ring::default_provider();
    let chain = vec![server.certificate.clone()];
    let pair = rustls::sign::CertifiedKey::from_der(chain, server.key.clone_key(), &provider);
    let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(pair.unwrap()));
    let whoami = async |identity: Option<Extension<Identity>>| {
        identity.map_or_else(|| "nobody".to_owned(), |Extension(identity)| identity.user)
    };
    let router = authenticated(Router::new().route("/", get(whoami)), proxy.clone());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let config = server_config(resolver, proxy).unwrap();
    tokio::spawn(serve::tls(listener, config, router, cancel.clone()));
    address
}

/// What the server answers to a client with this certificate that claims to be ann.
async fn ask(address: SocketAddr, server_ca: &Ca, client: Option<&Leaf>) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(server_ca.0.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(leaf) => {
            let chain = vec![leaf.certificate.clone()];
            builder.with_client_auth_cert(chain, leaf.key.clone_key()).unwrap()
        }
    };
    let ask = move || {
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(address)?);
        let head = "GET / HTTP/1.1\r\nHost: x\r\nX-Remote-User: ann\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.rsplit("\r\n").next().unwrap_or_default().to_owned())
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[tokio::test]
async fn over_tls_only_the_front_proxy_speaks_for_others() {
    let (ca, other) = (Ca::new("proxy-ca"), Ca::new("cluster-ca"));
    let proxy = Arc::new(trusting(&ca.settings(r#"["front-proxy-client"]"#)));
    let server = other.leaf("server", ExtendedKeyUsagePurpose::ServerAuth, 4000);
    let cancel = CancellationToken::new();
    let address = serve_whoami(proxy.clone(), &server, &cancel);

    let good = ca.client("front-proxy-client");
    assert_eq!(ask(address, &other, Some(&good)).await.unwrap(), "ann");
    assert_eq!(ask(address, &other, None).await.unwrap(), "nobody");
    let wrong_name = ca.client("kubelet");
    assert!(ask(address, &other, Some(&wrong_name)).await.is_err());
    let wrong_ca = other.client("front-proxy-client");
    assert!(ask(address, &other, Some(&wrong_ca)).await.is_err());

    let renewed = Ca::new("renewed");
    assert!(proxy.set(&renewed.settings("[]")).unwrap());
    assert!(ask(address, &other, Some(&good)).await.is_err());
    assert_eq!(ask(address, &other, Some(&renewed.client("y"))).await.unwrap(), "ann");
    cancel.cancel();
}

#[tokio::test]
async fn before_the_settings_are_known_nobody_is_let_in() {
    let ca = Ca::new("ca");
    let server = ca.leaf("server", ExtendedKeyUsagePurpose::ServerAuth, 4000);
    let cancel = CancellationToken::new();
    let address = serve_whoami(Arc::default(), &server, &cancel);
    assert!(ask(address, &ca, Some(&ca.client("x"))).await.is_err());
    assert_eq!(ask(address, &ca, None).await.unwrap(), "nobody");
    cancel.cancel();
}

#[tokio::test]
async fn the_settings_are_read_from_the_cluster() {
    let ca = Ca::new("ca");
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_NAME},
        "data": {
            "requestheader-client-ca-file": ca.0.pem(),
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
        },
    });
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let cluster = Router::new().route(path, get(async move || axum::Json(map)));
    let proxy = FrontProxy::default();
    load(&Client::new(cluster, "default"), &proxy).await.unwrap();
    assert!(proxy.identify(&ca.client("any").chain(), &ann()).is_ok());
    let empty = Client::new(Router::new(), "default");
    assert!(matches!(load(&empty, &proxy).await, Err(Error::Read(_))));
    assert!(proxy.is_loaded());
}
