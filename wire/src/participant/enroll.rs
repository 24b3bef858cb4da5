//! Enrolment: a one-time token buys a certificate, or admits one that the device has from elsewhere.

use std::collections::BTreeMap;

use federation::id::ParticipantId;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Body of [`crate::route::ENROLL`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnrollRequest {
    /// The one-time token.
    pub token: String,
    /// PKCS #10 signing request in PEM, for an Ed25519 key; its subject is ignored. Either this or `certificate_pem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr_pem: Option<String>,
    /// Where participants' certificates are issued elsewhere: the one that the TLS handshake of this very connection showed, in
    /// PEM; up to seven other certificates may follow, and say nothing (64 KiB in all).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_pem: Option<String>,
    /// What to call the participant, unless the token says: 1 to 64 letters, digits, `-`, `_`, `.`; unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For an authority elsewhere that certifies participants, at most 16 KiB; passed on as it is. See [`crate::signer`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Labels the participant gives itself; those of the token win.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Answer to enrolment and renewal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnrollReply {
    /// Who the participant is from now on.
    pub participant: ParticipantId,
    /// What it is called.
    pub name: String,
    /// Its certificate, then the issuing one, in PEM.
    pub certificate_pem: String,
    /// When the certificate ends; renew before.
    pub expires_at: Timestamp,
    /// When to renew.
    pub renew_at: Timestamp,
}

/// Body of [`crate::route::RENEW`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewRequest {
    /// PKCS #10 signing request in PEM, for a new Ed25519 key; the present one's is refused. Either this or `certificate_pem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csr_pem: Option<String>,
    /// Where participants' certificates are issued elsewhere: the next one in PEM, which names the same participant and is for
    /// another key. The connection shows the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_pem: Option<String>,
    /// As [`EnrollRequest::evidence`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}
