//! The coordinator's certificate authority: one Ed25519 key for the server's and the participants' certificates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PublicKeyData as _, SanType, SerialNumber,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _};
use time::OffsetDateTime;
use wire::certificate::{PARTICIPANT_URN, SKEW};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::process::files::Draft;
use crate::random::Random;

const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const SERVER_LIFETIME: Duration = Duration::from_secs(397 * 24 * 3600);
/// Maximum size of a signing request; for Ed25519 it has some 300 bytes.
const CSR_MAX_BYTES: usize = 8192;

/// Reasons why the authority is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Only one of its two files exists.
    #[error("{present} is there, but {missing} is not: restore it, or remove both to begin with a new authority")]
    Half { present: PathBuf, missing: PathBuf },
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// Coordinators sharing a bucket instead of a folder do not create it: each would create another.
    #[error(
        "there is no key of the authority {0}: where identity.seal_url is set, every coordinator is given the same files; take those \
         that a coordinator without it made, or another authority's (identity.members_ca_certificate_file)"
    )]
    Missing(PathBuf),
    /// A file has invalid contents.
    #[error("{path} does not hold a usable {what}: {source}")]
    Unreadable { path: PathBuf, what: &'static str, source: rcgen::Error },
    /// A certificate and a key that do not belong together.
    #[error("{} does not hold the key of the certificate in {}; restore the two together", .key.display(), .certificate.display())]
    Mismatch { certificate: PathBuf, key: PathBuf },
    /// The file is not an authority's certificate.
    #[error(
        "{path} is no certificate of an authority (basic constraints): name the one that signs participants' own certificates"
    )]
    NoAuthority { path: PathBuf },
    /// Several certificates instead of one.
    #[error(
        "{path} holds {count} certificates, and must hold exactly one: that of the authority that signs participants' own"
    )]
    Several { path: PathBuf, count: usize },
    /// The setup of the external signer failed.
    #[error("cannot set up the signer of identity.signer: {0}")]
    Signer(String),
    /// Signing failed.
    #[error("cannot make a certificate: {0}")]
    Sign(#[from] rcgen::Error),
}

/// Reasons for rejecting a signing request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CsrError {
    /// Not PEM, not PKCS #10, or too large.
    #[error("csr_pem is not a PKCS #10 signing request in PEM of at most {CSR_MAX_BYTES} bytes")]
    Malformed,
    /// Its signature does not match its key.
    #[error("the signing request's signature does not prove possession of its key")]
    NoPossession,
    /// The key is not Ed25519.
    #[error("the signing request is for another kind of key than Ed25519")]
    KeyType,
}

/// The authority. It signs with its key and keeps the key private.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    certificate_der: CertificateDer<'static>,
}

#[derive(Clone, Debug)]
pub(crate) struct Issued {
    /// Its certificate, then the authority's, in PEM.
    pub(crate) chain_pem: String,
    /// SHA-256 of the certificate (DER).
    pub(crate) fingerprint: Digest,
    /// When it ends.
    pub(crate) expires_at: Timestamp,
    /// Time to request the next one: after two thirds of the lifetime.
    pub(crate) renew_at: Timestamp,
}

/// Signature algorithm of the authority and the server: browsers, used for the dashboard, do not support Ed25519 certificates.
const FOR_BROWSERS: &rcgen::SignatureAlgorithm = &PKCS_ECDSA_P256_SHA256;

/// A certificate chain and its key, for the listener.
pub(crate) struct ServerKey {
    /// Leaf first.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// Private key of the leaf certificate.
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Authority {
    /// A new authority in memory. All its signatures have one length, so that repeated simulations send the same number of bytes; browsers
    /// never see them.
    ///
    /// # Errors
    /// [`AuthorityError::Sign`].
    pub(crate) fn in_memory(random: &Random, now: Timestamp) -> Result<Self, AuthorityError> {
        Self::generate(&PKCS_ED25519, random, now)
    }

    fn generate(
        algorithm: &'static rcgen::SignatureAlgorithm,
        random: &Random,
        now: Timestamp,
    ) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(algorithm)?;
        let mut params = params(random, now, CA_LIFETIME, "Tributary coordinator CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            certificate_der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority in two files; creates it if both are missing. Only its owner can read the key's file.
    ///
    /// # Errors
    /// [`AuthorityError`]; existing files are never overwritten.
    pub(crate) fn open(
        certificate_file: &Path,
        key_file: &Path,
        random: &Random,
        now: Timestamp,
    ) -> Result<Self, AuthorityError> {
        match (certificate_file.exists(), key_file.exists()) {
            (true, true) => {
                store::private::tighten(key_file).map_err(|source| io(key_file, source))?;
                Self::read(certificate_file, key_file)
            }
            (false, false) => {
                let authority = Self::generate(FOR_BROWSERS, random, now)?;
                let draft = |path: &Path, text: &str, mode| {
                    Draft::write(path, text.as_bytes(), mode).map_err(|source| io(path, source))
                };
                // Both drafts are on disk before either is renamed. Renaming the key creates the pair: afterwards, only the certificate's
                // name may be missing.
                let certificate = draft(certificate_file, &authority.certificate_pem, 0o644)?;
                let key = draft(key_file, &authority.issuer.key().serialize_pem(), 0o600)?;
                key.keep().map_err(|source| io(key_file, source))?;
                certificate.keep().map_err(|source| io(certificate_file, source))?;
                Ok(authority)
            }
            (true, false) => {
                Err(AuthorityError::Half { present: certificate_file.to_owned(), missing: key_file.to_owned() })
            }
            (false, true) => match Draft::left(certificate_file) {
                // A first start died between the two renames.
                Some(draft) => {
                    let authority = Self::read(draft.path(), key_file)?;
                    draft.keep().map_err(|source| io(certificate_file, source))?;
                    Ok(authority)
                }
                None => {
                    Err(AuthorityError::Half { present: key_file.to_owned(), missing: certificate_file.to_owned() })
                }
            },
        }
    }

    fn read(certificate_file: &Path, key_file: &Path) -> Result<Self, AuthorityError> {
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|source| io(path, source));
        let unreadable = |path: &Path, what, source| AuthorityError::Unreadable { path: path.to_owned(), what, source };
        let key = KeyPair::from_pem(&read(key_file)?).map_err(|source| unreadable(key_file, "private key", source))?;
        let certificate_pem = read(certificate_file)?;
        let certificate_der = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|_| unreadable(certificate_file, "certificate", rcgen::Error::CouldNotParseCertificate))?;
        if !is_certified(&certificate_der, &key) {
            return Err(AuthorityError::Mismatch {
                certificate: certificate_file.to_owned(),
                key: key_file.to_owned(),
            });
        }
        let issuer = Issuer::from_ca_cert_der(&certificate_der, key)
            .map_err(|source| unreadable(certificate_file, "certificate", source))?;
        Ok(Self { issuer, certificate_pem, certificate_der })
    }

    /// The authority's certificate in PEM, trusted by peers.
    #[must_use]
    pub(crate) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The same in DER.
    #[must_use]
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate_der
    }

    /// A new key and certificate for the listener, for these DNS names and addresses.
    ///
    /// # Errors
    /// [`AuthorityError::Sign`], for example for an invalid DNS name.
    pub(crate) fn server_key(
        &self,
        names: &[String],
        random: &Random,
        now: Timestamp,
    ) -> Result<ServerKey, AuthorityError> {
        let key = KeyPair::generate_for(FOR_BROWSERS)?;
        let mut params = params(random, now, SERVER_LIFETIME, "Tributary coordinator");
        for name in names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into()?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(ServerKey {
            chain: vec![certificate.der().clone(), self.certificate_der.clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        })
    }

    /// Checks a signing request: Ed25519, signed by its own key. Its other fields are ignored.
    ///
    /// # Errors
    /// [`CsrError`].
    pub(crate) fn check_request(csr_pem: &str) -> Result<CertificateSigningRequestParams, CsrError> {
        if csr_pem.len() > CSR_MAX_BYTES {
            return Err(CsrError::Malformed);
        }
        let request = CertificateSigningRequestParams::from_pem(csr_pem).map_err(|error| match error {
            rcgen::Error::InvalidCertificationRequestSignature => CsrError::NoPossession,
            rcgen::Error::UnsupportedSignatureAlgorithm => CsrError::KeyType,
            _ => CsrError::Malformed,
        })?;
        // The signature's algorithm could claim Ed25519 with another type of key; its length reveals that.
        if *request.public_key.algorithm() != PKCS_ED25519 || request.public_key.der_bytes().len() != 32 {
            return Err(CsrError::KeyType);
        }
        Ok(request)
    }

    /// Certifies the key of a checked request for `participant`.
    ///
    /// # Errors
    /// [`AuthorityError::Sign`].
    pub(crate) fn issue(
        &self,
        mut request: CertificateSigningRequestParams,
        participant: ParticipantId,
        lifetime: Duration,
        random: &Random,
        now: Timestamp,
    ) -> Result<Issued, AuthorityError> {
        let mut params = params(random, now, lifetime, &participant.to_string());
        let urn = format!("{PARTICIPANT_URN}{participant}");
        params.subject_alt_names = vec![SanType::URI(urn.as_str().try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        request.params = params;
        let certificate = request.signed_by(&self.issuer)?;
        // X.509 has no fractions of a second.
        let expires_at = Timestamp(now.plus(lifetime).0.div_euclid(1000) * 1000);
        Ok(Issued {
            chain_pem: certificate.pem() + &self.certificate_pem,
            fingerprint: crate::digest(certificate.der()),
            expires_at,
            renew_at: now.plus(lifetime * 2 / 3).min(expires_at),
        })
    }
}

fn io(path: &Path, source: std::io::Error) -> AuthorityError {
    AuthorityError::Io { path: path.to_owned(), source }
}

fn params(random: &Random, now: Timestamp, lifetime: Duration, common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    // Positive and at most 20 bytes, RFC 5280 §4.1.2.2.
    let mut serial: [u8; 16] = random.bytes();
    serial[0] = (serial[0] & 0x7f) | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    // For peers with a slow clock.
    params.not_before = date(Timestamp(now.0.saturating_sub(SKEW.as_secs().cast_signed() * 1000)));
    params.not_after = date(now.plus(lifetime));
    params
}

/// A time outside the calendar becomes the epoch, so that such a certificate is never valid.
fn date(at: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(at.0.div_euclid(1000)).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Whether a certificate belongs to this key.
fn is_certified(certificate: &CertificateDer<'_>, key: &KeyPair) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, certificate)| *certificate.public_key().subject_public_key.data == *key.public_key_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use listener::Peer;

    const NOW: Timestamp = Timestamp(1_750_000_000_500);

    fn authority() -> Authority {
        Authority::in_memory(&Random::from_seed(1), NOW).unwrap()
    }

    fn csr(algorithm: &'static rcgen::SignatureAlgorithm) -> String {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "somebody else");
        params.serialize_request(&key).unwrap().pem().unwrap()
    }

    #[test]
    fn a_certificate_says_what_we_say_and_not_what_was_asked_for() {
        let participant = ParticipantId(uuid::Uuid::from_u128(7));
        let request = Authority::check_request(&csr(&PKCS_ED25519)).unwrap();
        let key = request.public_key.der_bytes().try_into().unwrap();
        let lifetime = Duration::from_secs(900);
        let issued = authority().issue(request, participant, lifetime, &Random::from_seed(2), NOW).unwrap();
        let certificate = CertificateDer::from_pem_slice(issued.chain_pem.as_bytes()).unwrap();
        let peer = Peer::from_certificate(&certificate).unwrap();
        let (fingerprint, expires_at) = (issued.fingerprint, issued.expires_at);
        assert_eq!(peer, Peer { participant, fingerprint, key: secure_agg::IdentityKey(key), expires_at });
        assert_eq!(issued.expires_at, Timestamp(1_750_000_900_000));
        assert_eq!(issued.renew_at, Timestamp(1_750_000_600_500));
        let (_, parsed) =
            <x509_parser::certificate::X509Certificate<'_> as x509_parser::prelude::FromDer<'_, _>>::from_der(
                &certificate,
            )
            .unwrap();
        assert_eq!(parsed.subject().to_string(), format!("CN={participant}"));
        let names = format!("{:?}", parsed.subject_alternative_name().unwrap().unwrap().value);
        assert!(!names.contains("evil.example"));
        assert!(!parsed.is_ca());
    }

    #[test]
    fn key_of_another_authority_is_refused_with_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for (name, seed) in [("a", 1), ("b", 2)] {
            let (certificate, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
            Authority::open(&certificate, &key, &Random::from_seed(seed), NOW).unwrap();
        }
        let said =
            Authority::open(&file("a.pem"), &file("b.key"), &Random::from_seed(3), NOW).err().unwrap().to_string();
        assert!(said.contains("b.key does not hold the key of the certificate in") && said.contains("a.pem"), "{said}");
    }

    #[test]
    fn browsers_can_verify_the_server() {
        use x509_parser::oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ECDSA_WITH_SHA256};
        let (names, folder) = (["localhost".to_owned()], tempfile::tempdir().unwrap());
        let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca-key.pem"));
        let authority = Authority::open(&certificate, &key, &Random::from_seed(1), NOW).unwrap();
        let server = authority.server_key(&names, &Random::from_seed(2), NOW).unwrap();
        for certificate in &server.chain {
            let (_, parsed) =
                <x509_parser::certificate::X509Certificate<'_> as x509_parser::prelude::FromDer<'_, _>>::from_der(
                    certificate,
                )
                .unwrap();
            assert_eq!(parsed.signature_algorithm.algorithm, OID_SIG_ECDSA_WITH_SHA256);
            assert_eq!(parsed.public_key().algorithm.algorithm, OID_KEY_TYPE_EC_PUBLIC_KEY);
        }
    }

    #[test]
    fn other_keys_and_broken_requests_are_refused() {
        assert_eq!(Authority::check_request(&csr(&rcgen::PKCS_ECDSA_P256_SHA256)).err(), Some(CsrError::KeyType));
        assert_eq!(Authority::check_request("no pem").err(), Some(CsrError::Malformed));
        assert_eq!(Authority::check_request(&"x".repeat(CSR_MAX_BYTES + 1)).err(), Some(CsrError::Malformed));
    }

    #[test]
    fn a_request_signed_by_another_key_is_refused() {
        let good = csr(&PKCS_ED25519);
        let mut der = rustls_pki_types::CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap().to_vec();
        *der.last_mut().unwrap() ^= 1;
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &der)
        );
        assert_eq!(Authority::check_request(&pem).err(), Some(CsrError::NoPossession));
    }

    #[test]
    fn the_authority_is_made_once_and_its_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("a/ca.pem"), folder.path().join("a/ca-key.pem"));
        let open = || Authority::open(&certificate, &key, &Random::from_seed(1), NOW);
        let first = open().unwrap();
        assert_eq!(open().unwrap().certificate_pem(), first.certificate_pem());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::remove_file(&key).unwrap();
        assert!(matches!(open(), Err(AuthorityError::Half { missing, .. }) if missing == key));
    }

    #[test]
    fn a_first_start_that_died_between_the_two_names_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca-key.pem"));
        let draft = folder.path().join("ca.pem.draft");
        let open = || Authority::open(&certificate, &key, &Random::from_seed(1), NOW);
        // Drafts without a name are no authority.
        std::fs::write(&draft, "half").unwrap();
        std::fs::write(folder.path().join("ca-key.pem.draft"), "half").unwrap();
        let first = open().unwrap();
        std::fs::rename(&certificate, &draft).unwrap();
        assert_eq!(open().unwrap().certificate_pem(), first.certificate_pem());
        assert!(certificate.exists() && !draft.exists());
        std::fs::remove_file(&certificate).unwrap();
        assert!(matches!(open(), Err(AuthorityError::Half { missing, .. }) if missing == certificate));
    }
}
