//! TLS 1.3 with ring; a client certificate is optional, but must come from our authority.
//!
//! A foreign certificate fails the handshake. An expired one of ours does not: the application rejects it with a
//! problem that says so, which a failed handshake could not.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::base::{builder, certified};

/// The listener's TLS configuration.
///
/// # Errors
/// If the key does not match its certificate, or an authority is invalid.
pub fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    client_authority: &CertificateDer<'static>,
) -> Result<ServerConfig, anyhow::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Verifier::new(client_authority, Arc::clone(&provider))?);
    Ok(certified(builder(provider)?.with_client_cert_verifier(verifier), chain, key)?)
}

/// Verifies chain and possession as webpki does, but leaves the validity period to the application.
#[derive(Debug)]
struct Verifier(Arc<dyn ClientCertVerifier>);

impl Verifier {
    fn new(authority: &CertificateDer<'static>, provider: Arc<CryptoProvider>) -> Result<Self, anyhow::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).allow_unauthenticated();
        Ok(Self(inner.build()?))
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.0.verify_client_cert(end_entity, intermediates, now) {
            Err(Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            )) => {
                // Everything else must be valid: verifies as of the certificate's start.
                let began = not_before(end_entity).ok_or(CertificateError::BadEncoding)?;
                self.0.verify_client_cert(end_entity, intermediates, began)
            }
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn not_before(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = u64::try_from(certificate.validity().not_before.timestamp()).ok()?;
    Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
}
