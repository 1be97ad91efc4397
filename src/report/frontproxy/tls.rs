//! The TLS server that the apiserver connects to.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum_server::tls::TlsInfo;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ResolvesServerCert;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error as TlsError, ServerConfig, SignatureScheme,
};
use tracing::debug;

use super::trust::{FrontProxy, Rejected};

/// TLS that presents the resolver's certificate and asks for the front proxy's.
/// Clients without one are let in, for health; clients with a wrong one are not.
pub fn server_config(
    resolver: Arc<dyn ResolvesServerCert>,
    proxy: Arc<FrontProxy>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Verifier { proxy, provider: provider.clone() });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Puts an identity on each request that the front proxy vouches for, and nothing on
/// any other.
pub fn authenticated(router: Router, proxy: Arc<FrontProxy>) -> Router {
    router.layer(middleware::from_fn_with_state(proxy, identify))
}

async fn identify(
    State(proxy): State<Arc<FrontProxy>>,
    mut request: Request,
    next: Next,
) -> Response {
    let info = request.extensions().get::<Arc<TlsInfo>>().cloned().unwrap_or_default();
    match proxy.identify(&info.peer_certificates, request.headers()) {
        Ok(identity) => drop(request.extensions_mut().insert(identity)),
        // Probes come without a certificate, every few seconds.
        Err(Rejected::NoCertificate) => {}
        Err(error) => debug!(%error, "frontproxy.rejected"),
    }
    next.run(request).await
}

/// Asks the newest trust at each handshake.
struct Verifier {
    proxy: Arc<FrontProxy>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// No hints: they would have to outlive a change of the CA.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        match self.proxy.verify(leaf, rest, now) {
            Ok(()) => Ok(ClientCertVerified::assertion()),
            Err(Rejected::Certificate(error)) => Err(error),
            Err(other) => Err(TlsError::General(other.to_string())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
