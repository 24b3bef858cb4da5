//! What a verified client certificate says; read once per connection.

use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use rustls_pki_types::CertificateDer;
use secure_agg::IdentityKey;
use wire::certificate::{Holder, holder};

/// The holder of a certificate that our authority issued. Whether it has expired or was revoked is not yet decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub participant: ParticipantId,
    /// SHA-256 of the certificate (DER).
    pub fingerprint: Digest,
    /// The key that it binds.
    pub key: IdentityKey,
    /// The end of the certificate.
    pub expires_at: Timestamp,
}

impl Peer {
    /// Reads a certificate whose chain and possession were verified; none if it is not a participant's.
    #[must_use]
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let Holder { participant, key, expires_at, .. } = holder(certificate)?;
        Some(Self { participant, fingerprint: crate::digest(certificate), key, expires_at })
    }
}
