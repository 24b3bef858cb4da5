//! Enrolment: exchanges a one-time token for a certificate, or registers one from an external authority.

use std::collections::BTreeMap;

use federation::id::ParticipantId;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Body of [`crate::route::ENROLL`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnrollRequest {
    pub token: String,
    /// PKCS #10 signing request in PEM, for an Ed25519 key; its subject is ignored. Either this or `certificate_pem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr_pem: Option<String>,
    /// With an external authority: the certificate of this connection's TLS handshake, or of this request's
    /// signature, in PEM; up to seven other
    /// certificates may follow and are ignored (64 KiB in total).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_pem: Option<String>,
    /// Name of the participant, unless the token sets one: 1 to 64 letters, digits, `-`, `_`, `.`; unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For an external authority, at most 16 KiB; forwarded unchanged. See [`crate::signer`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Labels set by the participant; those of the token take precedence.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Answer to enrolment and renewal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnrollReply {
    /// The participant's permanent id.
    pub participant: ParticipantId,
    pub name: String,
    /// Its certificate, then the issuer's, in PEM.
    pub certificate_pem: String,
    pub expires_at: Timestamp,
    pub renew_at: Timestamp,
}

/// Body of [`crate::route::RENEW`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewRequest {
    /// PKCS #10 signing request in PEM, for a new Ed25519 key; the current key is rejected. Either this or
    /// `certificate_pem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr_pem: Option<String>,
    /// With an external authority: the next certificate in PEM, for the same participant and another key. The
    /// connection uses the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_pem: Option<String>,
    /// As [`EnrollRequest::evidence`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}
