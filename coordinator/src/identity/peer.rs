//! What a verified client certificate says; read once per connection.

use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::authority::PARTICIPANT_URN;

/// The holder of a certificate that our authority issued. Whether it has expired or was revoked is not yet decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who.
    pub participant: ParticipantId,
    /// SHA-256 of the certificate (DER).
    pub fingerprint: Digest,
    /// The end of the certificate.
    pub expires_at: Timestamp,
}

impl Peer {
    /// Reads a certificate whose chain and possession were verified; none if it is not a participant's.
    #[must_use]
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let fingerprint = crate::digest(certificate);
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let names = certificate.subject_alternative_name().ok()??;
        let participant = names.value.general_names.iter().find_map(|name| match name {
            GeneralName::URI(uri) => uri.strip_prefix(PARTICIPANT_URN)?.parse().ok(),
            _ => None,
        })?;
        let expires_at = Timestamp(certificate.validity().not_after.timestamp().saturating_mul(1000));
        Some(Self { participant, fingerprint, expires_at })
    }
}
