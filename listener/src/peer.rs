//! Contents of a verified client certificate; read once per connection.

use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use rustls_pki_types::CertificateDer;
use secure_agg::IdentityKey;
use wire::certificate::{Holder, holder};

use crate::digest::sha256;

/// The holder of a certificate issued by our authority. Its expiry and revocation are unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The participant that it names.
    pub participant: ParticipantId,
    /// SHA-256 of the certificate (DER).
    pub fingerprint: Digest,
    /// The key bound by it.
    pub key: IdentityKey,
    /// The end of the certificate.
    pub expires_at: Timestamp,
}

impl Peer {
    /// Reads a certificate with verified chain and possession; `None` if it is not a participant's.
    #[must_use]
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let Holder { participant, key, expires_at, .. } = holder(certificate)?;
        Some(Self { participant, fingerprint: sha256(certificate), key, expires_at })
    }
}
