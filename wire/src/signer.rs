//! The contract with an external authority that certifies a coordinator's participants (`[identity.signer]`): an HTTPS hook that the
//! organisation runs.
//!
//! The coordinator POSTs a [`SignRequest`] and expects a [`SignReply`] with status 200. Status 403 is a permanent refusal of this
//! participant; after any other status the coordinator retries later. The certificate must be for the request's key, carry
//! [`crate::certificate::PARTICIPANT_URN`] and the id as a URI, and expire within the lifetime.
//!
//! A signer that signs every request lets the coordinator invent participants. `evidence` is the basis for a decision: the participant's
//! app creates it for this signing request, and the coordinator forwards it unchanged.

use federation::id::ParticipantId;
use serde::{Deserialize, Serialize};

/// Maximum size of the evidence, in bytes.
pub const EVIDENCE_MAX_BYTES: usize = 16 << 10;

/// Requests a participant's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignRequest {
    /// The participant that the certificate must name.
    pub participant: ParticipantId,
    /// PKCS #10 signing request in PEM, for an Ed25519 key that its sender holds; its subject is ignored.
    pub csr_pem: String,
    /// Maximum validity of the certificate, in seconds from now.
    pub lifetime_s: u64,
    /// Evidence from the participant's app, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignReply {
    /// The participant's certificate in PEM; up to seven other certificates may follow and are ignored.
    pub certificate_pem: String,
}
