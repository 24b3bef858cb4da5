//! What a participant's certificate says, and how any participant checks another's.
//!
//! An authority writes the participant's id into the certificate as a URI. Whose word a participant takes for who holds which
//! key is its app's choice ([`Issuers`]), never the coordinator's. Revocation cannot be seen here: the coordinator keeps
//! revoked participants out of cohorts.

use std::time::Duration;

use federation::id::ParticipantId;
use federation::time::Timestamp;
use secure_agg::messages::MAX_CERTIFICATE_BYTES;
use secure_agg::{IdentityKey, IdentityRefused, IdentityVerifier};
use x509_parser::oid_registry::{OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA, OID_SIG_ED25519};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{AlgorithmIdentifier, FromDer as _, GeneralName, X509Certificate};

/// What the URI in a participant's certificate begins with; the id follows.
pub const PARTICIPANT_URN: &str = "urn:tributary:participant:";

/// How far apart the clocks may be of whoever issues a certificate and of whoever looks at it: it is taken so much before it
/// begins.
pub const SKEW: Duration = Duration::from_secs(3600);

/// Most certificates in a chain, and most bytes of it, that are looked at.
const MAX_CHAIN: usize = 8;
const MAX_CHAIN_BYTES: usize = 64 << 10;

/// A chain of certificates that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate chain cannot be used: {0}")]
pub struct BadChain(&'static str);

/// Why a certificate is not taken as a participant's, and what would be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Not one certificate.
    #[error("it cannot be read as one X.509 certificate")]
    Unreadable,
    /// More bytes than a session of secure aggregation carries.
    #[error(
        "it has {0} bytes, and sessions of secure aggregation carry at most {MAX_CERTIFICATE_BYTES} bytes of each member's"
    )]
    TooLarge(usize),
    /// None of the authorities whose word is taken has signed it.
    #[error("none of the authorities that certify members has signed it itself")]
    Issuer,
    /// An authority's.
    #[error("it is an authority's own, and a participant's must not be (basic constraints)")]
    Authority,
    /// It names none, or several.
    #[error(
        "it must have one URI {PARTICIPANT_URN}ID among its subject alternative names, with a UUID as ID, and has {0}"
    )]
    Names(usize),
    /// Another kind of key.
    #[error("its key must be Ed25519, with which participants sign what they say in secure aggregation")]
    KeyType,
    /// It says what it may be used for, and leaves clients out.
    #[error("its extended key usage must name clientAuth, or be left out")]
    Usage,
}

/// A participant's certificate (DER) as an authority signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Whom it names.
    pub participant: ParticipantId,
    /// Its Ed25519 key.
    pub key: IdentityKey,
    /// From when on it holds.
    pub begins_at: Timestamp,
    /// Until when it holds.
    pub expires_at: Timestamp,
}

impl Holder {
    /// Whether it holds at this moment: not after its end, and from [`SKEW`] before it begins.
    #[must_use]
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.begins_at <= now.plus(SKEW) && now < self.expires_at
    }
}

/// Reads what a certificate says; none if it is not a participant's. Whether to believe it is another question.
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

/// The certificates of a chain in PEM, as DER, leaf first.
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

/// The authorities whose word is taken for who holds which key: the certificates (DER) that sign participants' own, not
/// others above them. Without any, nobody's word is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issuers(Vec<Vec<u8>>);

impl Issuers {
    /// The authorities with these certificates (DER). One that is no authority's certificate signs for nobody.
    #[must_use]
    pub fn new(certificates: Vec<Vec<u8>>) -> Self {
        Self(certificates)
    }

    /// The same, from at most 8 certificates in PEM.
    ///
    /// # Errors
    /// [`BadChain`].
    pub fn from_pem(pem: &str) -> Result<Self, BadChain> {
        chain_der(pem).map(Self)
    }

    /// What a participant's certificate (DER) says, if one of these signed it. Whether it holds yet or still is not looked at.
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

    /// The same, if nobody asks why not.
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

/// Collisions of SHA-1 can be made. Of what the check below can verify, these two use it; TLS handshakes refuse them, too.
fn is_over_sha1(algorithm: &AlgorithmIdentifier<'_>) -> bool {
    [OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA].contains(&algorithm.algorithm)
}

/// Takes the word of authorities for who holds which key, at one moment.
///
/// A client id is the 16 bytes of a [`ParticipantId`], a certificate its DER.
pub struct Authority {
    issuers: Issuers,
    now: Timestamp,
}

impl Authority {
    /// The one authority with this certificate (DER).
    #[must_use]
    pub fn new(issuer: Vec<u8>, now: Timestamp) -> Self {
        Self::any_of(Issuers(vec![issuer]), now)
    }

    /// Any of these.
    #[must_use]
    pub fn any_of(issuers: Issuers, now: Timestamp) -> Self {
        Self { issuers, now }
    }

    fn holder(&self, certificate: &[u8]) -> Option<Holder> {
        self.issuers.holder(certificate).filter(|holder| holder.holds_at(self.now))
    }
}

/// Reads which key a certificate binds, and believes it: for rosters that were accepted while their certificates held.
pub struct Recorded;

impl IdentityVerifier for Recorded {
    fn verify(&self, client_id: &[u8], certificate: &[u8]) -> Result<IdentityKey, IdentityRefused> {
        let holder = holder(certificate).ok_or(IdentityRefused)?;
        if holder.participant.0.as_bytes() == client_id { Ok(holder.key) } else { Err(IdentityRefused) }
    }
}

impl IdentityVerifier for Authority {
    fn verify(&self, client_id: &[u8], certificate: &[u8]) -> Result<IdentityKey, IdentityRefused> {
        let holder = self.holder(certificate).ok_or(IdentityRefused)?;
        if holder.participant.0.as_bytes() == client_id { Ok(holder.key) } else { Err(IdentityRefused) }
    }
}
