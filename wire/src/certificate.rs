//! Contents of a participant's certificate, and how participants verify each other's.
//!
//! An authority writes the participant's id into the certificate as a URI. The participant's app chooses the trusted
//! authorities ([`Issuers`]), never the coordinator. Revocation is not visible here: the coordinator keeps revoked
//! participants out of cohorts.

use std::time::Duration;

use federation::id::ParticipantId;
use federation::time::Timestamp;
use secure_agg::messages::MAX_CERTIFICATE_BYTES;
use secure_agg::{IdentityKey, IdentityRefused, IdentityVerifier};
use x509_parser::oid_registry::{OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA, OID_SIG_ED25519};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{AlgorithmIdentifier, FromDer as _, GeneralName, X509Certificate};

/// Prefix of the URI in a participant's certificate; the id follows.
pub const PARTICIPANT_URN: &str = "urn:tributary:participant:";

/// Tolerated clock difference between issuer and verifier: a certificate is accepted this long before it begins.
pub const SKEW: Duration = Duration::from_secs(3600);

/// Maximum number of certificates in a chain, and maximum size in bytes.
const MAX_CHAIN: usize = 8;
const MAX_CHAIN_BYTES: usize = 64 << 10;

/// A certificate chain that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate chain cannot be used: {0}")]
pub struct BadChain(&'static str);

/// Reasons a certificate is not accepted as a participant's, and what would be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The bytes are not a single certificate.
    #[error("it cannot be read as one X.509 certificate")]
    Unreadable,
    /// The certificate exceeds the size that a secure aggregation session carries.
    #[error(
        "it has {0} bytes, and sessions of secure aggregation carry at most {MAX_CERTIFICATE_BYTES} bytes of each member's"
    )]
    TooLarge(usize),
    /// None of the trusted authorities has signed it.
    #[error("none of the authorities that certify members has signed it itself")]
    Issuer,
    /// It is an authority's certificate.
    #[error("it is an authority's own, and a participant's must not be (basic constraints)")]
    Authority,
    /// It names no participant, or several.
    #[error(
        "it must have one URI {PARTICIPANT_URN}ID among its subject alternative names, with a UUID as ID, and has {0}"
    )]
    Names(usize),
    /// The key is not Ed25519.
    #[error("its key must be Ed25519, with which participants sign what they say in secure aggregation")]
    KeyType,
    /// Its extended key usage excludes clients.
    #[error("its extended key usage must name clientAuth, or be left out")]
    Usage,
}

/// The contents of a participant's certificate (DER), as signed by an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub participant: ParticipantId,
    pub key: IdentityKey,
    /// Start of validity.
    pub begins_at: Timestamp,
    /// End of validity.
    pub expires_at: Timestamp,
}

impl Holder {
    /// Whether it is valid at `now`: from [`SKEW`] before it begins to its end.
    #[must_use]
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.begins_at <= now.plus(SKEW) && now < self.expires_at
    }
}

/// Reads a certificate without verifying it; `None` for any other certificate.
#[must_use]
pub fn holder(certificate: &[u8]) -> Option<Holder> {
    read(&parse(certificate).ok()?).ok()
}

fn parse(certificate: &[u8]) -> Result<X509Certificate<'_>, Unfit> {
    match X509Certificate::from_der(certificate) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) | Err(_) => Err(Unfit::Unreadable),
    }
}

fn read(certificate: &X509Certificate<'_>) -> Result<Holder, Unfit> {
    if certificate.is_ca() {
        return Err(Unfit::Authority);
    }
    let names = certificate.subject_alternative_name().map_err(|_| Unfit::Unreadable)?;
    let names = names.map_or(&[][..], |names| &names.value.general_names);
    let participants = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(PARTICIPANT_URN)?.parse().ok(),
        _ => None,
    });
    let participants: Vec<ParticipantId> = participants.collect();
    let &[participant] = &participants[..] else { return Err(Unfit::Names(participants.len())) };
    let key = certificate.public_key();
    if key.algorithm.algorithm != OID_SIG_ED25519 {
        return Err(Unfit::KeyType);
    }
    let key = IdentityKey(key.subject_public_key.data.as_ref().try_into().map_err(|_| Unfit::KeyType)?);
    let usage = certificate.extended_key_usage().map_err(|_| Unfit::Unreadable)?;
    if usage.is_some_and(|usage| !usage.value.client_auth) {
        return Err(Unfit::Usage);
    }
    let [begins_at, expires_at] = [certificate.validity().not_before, certificate.validity().not_after]
        .map(|at| Timestamp(at.timestamp().saturating_mul(1000)));
    Ok(Holder { participant, key, begins_at, expires_at })
}

/// Splits a PEM chain into DER certificates, leaf first.
///
/// # Errors
/// [`BadChain`].
pub fn chain_der(pem: &str) -> Result<Vec<Vec<u8>>, BadChain> {
    if pem.len() > MAX_CHAIN_BYTES {
        return Err(BadChain("it is longer than any chain"));
    }
    let mut rest = pem.as_bytes();
    let mut chain = Vec::new();
    while rest.iter().any(|byte| !byte.is_ascii_whitespace()) {
        let (after, block) = parse_x509_pem(rest).map_err(|_| BadChain("it is not PEM"))?;
        if block.label != "CERTIFICATE" || chain.len() == MAX_CHAIN {
            return Err(BadChain("it holds something else than a few certificates"));
        }
        chain.push(block.contents);
        rest = after;
    }
    if chain.is_empty() { Err(BadChain("it is empty")) } else { Ok(chain) }
}

/// The trusted authorities: the certificates (DER) that directly sign participants' certificates, not their parents.
/// Without any, no certificate is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issuers(Vec<Vec<u8>>);

impl Issuers {
    /// From certificates (DER). One that is not an authority's certificate accepts nothing.
    #[must_use]
    pub fn new(certificates: Vec<Vec<u8>>) -> Self {
        Self(certificates)
    }

    /// From at most 8 certificates in PEM.
    ///
    /// # Errors
    /// [`BadChain`].
    pub fn from_pem(pem: &str) -> Result<Self, BadChain> {
        chain_der(pem).map(Self)
    }

    /// Reads a participant's certificate (DER) if one of these authorities signed it. Does not check its validity
    /// period.
    ///
    /// # Errors
    /// [`Unfit`].
    pub fn read(&self, certificate: &[u8]) -> Result<Holder, Unfit> {
        let parsed = parse(certificate)?;
        if certificate.len() > MAX_CERTIFICATE_BYTES {
            return Err(Unfit::TooLarge(certificate.len()));
        }
        if !self.0.iter().any(|issuer| has_signed(issuer, &parsed)) {
            return Err(Unfit::Issuer);
        }
        read(&parsed)
    }

    /// As [`Self::read`], without the reason.
    #[must_use]
    pub fn holder(&self, certificate: &[u8]) -> Option<Holder> {
        self.read(certificate).ok()
    }
}

fn has_signed(issuer: &[u8], certificate: &X509Certificate<'_>) -> bool {
    let Ok((_, issuer)) = X509Certificate::from_der(issuer) else { return false };
    issuer.is_ca()
        && certificate.issuer() == issuer.subject()
        && certificate.signature_algorithm == certificate.signature
        && !is_over_sha1(&certificate.signature_algorithm)
        && certificate.signature_value.unused_bits == 0
        && certificate.verify_signature(Some(issuer.public_key())).is_ok()
}

/// SHA-1 collisions are practical. Of the algorithms that the check below accepts, these two use it; TLS handshakes
/// reject them too.
fn is_over_sha1(algorithm: &AlgorithmIdentifier<'_>) -> bool {
    [OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA].contains(&algorithm.algorithm)
}

/// Verifies certificates against trusted authorities at a given time.
///
/// A client id is the 16 bytes of a [`ParticipantId`], a certificate its DER.
pub struct Authority {
    issuers: Issuers,
    now: Timestamp,
}

impl Authority {
    /// Trusts one authority, given its certificate (DER).
    #[must_use]
    pub fn new(issuer: Vec<u8>, now: Timestamp) -> Self {
        Self::any_of(Issuers(vec![issuer]), now)
    }

    #[must_use]
    pub fn any_of(issuers: Issuers, now: Timestamp) -> Self {
        Self { issuers, now }
    }

    fn holder(&self, certificate: &[u8]) -> Option<Holder> {
        self.issuers.holder(certificate).filter(|holder| holder.holds_at(self.now))
    }
}

impl IdentityVerifier for Authority {
    fn verify(&self, client_id: &[u8], certificate: &[u8]) -> Result<IdentityKey, IdentityRefused> {
        let holder = self.holder(certificate).ok_or(IdentityRefused)?;
        if holder.participant.0.as_bytes() == client_id { Ok(holder.key) } else { Err(IdentityRefused) }
    }
}
