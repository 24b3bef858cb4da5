//! What a coordinator asks of an authority elsewhere that certifies its participants (`[identity.signer]`): an HTTPS hook that the
//! organisation runs.
//!
//! The coordinator POSTs [`SignRequest`] and takes [`SignReply`] with status 200. Status 403 says that this participant is
//! not to be certified; any other that it should be asked again later. The certificate must be for the request's key, carry
//! [`crate::certificate::PARTICIPANT_URN`] and the id as a URI, and end within the lifetime.
//!
//! A signer that signs whatever a coordinator sends lets that coordinator invent participants. `evidence` is what it can decide
//! by: the participant's app makes it over the very signing request, and the coordinator passes it on as it is.

use federation::id::ParticipantId;
use serde::{Deserialize, Serialize};

/// Most bytes of evidence.
pub const EVIDENCE_MAX_BYTES: usize = 16 << 10;

/// Asks for a participant's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignRequest {
    /// Whom the certificate is to name.
    pub participant: ParticipantId,
    /// PKCS #10 signing request in PEM, for an Ed25519 key that its sender has; its subject says nothing.
    pub csr_pem: String,
    /// Longest that the certificate may be good for, in seconds from now.
    pub lifetime_s: u64,
    /// What the participant's app made for the signer, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// The certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignReply {
    /// The participant's certificate in PEM; up to seven other certificates may follow, and say nothing.
    pub certificate_pem: String,
}
