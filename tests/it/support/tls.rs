//! Connections to the webhook as an apiserver makes them.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tidegate::manifests::names::WEBHOOK_SERVICE;

use super::tidegate::NAMESPACE;

/// The leaf of a new connection of somebody who trusts this bundle.
pub async fn shown(bundle: &str, port: u16) -> Result<CertificateDer<'static>> {
    let bundle = bundle.to_owned();
    let look = move || {
        let stream = connect(&bundle, port)?;
        let chain = stream.conn.peer_certificates().context("no certificate")?;
        Ok(chain.first().context("an empty chain")?.clone().into_owned())
    };
    tokio::task::spawn_blocking(look).await?
}

/// Whether the webhook at this port calls itself ready.
pub async fn ready(bundle: &str, port: u16) -> Result<bool> {
    let bundle = bundle.to_owned();
    let look = move || {
        let mut stream = connect(&bundle, port)?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: webhook\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    tokio::task::spawn_blocking(look).await?
}

fn connect(bundle: &str, port: u16) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(format!("{WEBHOOK_SERVICE}.{NAMESPACE}.svc"))?;
    let mut tls = ClientConnection::new(Arc::new(config), name)?;
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    tls.complete_io(&mut socket)?;
    Ok(StreamOwned::new(tls, socket))
}
