//! What every listener's TLS has in common: version 1.3, with ring, for HTTP/2 and HTTP/1.1.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::WantsServerCert;
use rustls::{ConfigBuilder, Error, ServerConfig, WantsVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Begins a configuration of TLS 1.3.
pub(super) fn builder(provider: Arc<CryptoProvider>) -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])
}

/// Completes a configuration that presents this certificate.
pub(super) fn certified(
    builder: ConfigBuilder<ServerConfig, WantsServerCert>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Error> {
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
