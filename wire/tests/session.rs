//! Secure aggregation on the wire: the contents of certificates, and the numbers that both sides derive.

use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
    PublicKeyData as _, SanType,
};
use secure_agg::IdentityVerifier as _;
use secure_agg::messages::MAX_CERTIFICATE_BYTES;
use secure_agg::params::SessionConfig;
use wire::certificate::{Authority, Issuers, PARTICIPANT_URN, Unfit, chain_der, holder};
use wire::participant::SessionTerms;
use x509_parser::prelude::{FromDer as _, X509Certificate};

const ALICE: ParticipantId = ParticipantId(uuid::Uuid::from_u128(7));
const NOW: Timestamp = Timestamp(1_800_000_000_000);

struct Ca {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
    pem: String,
}

fn authority(algorithm: &'static rcgen::SignatureAlgorithm) -> Ca {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let certificate = params.self_signed(&key).unwrap();
    Ca { der: certificate.der().to_vec(), pem: certificate.pem(), issuer: Issuer::new(params, key) }
}

fn issued(ca: &Ca, urn: &str, algorithm: &'static rcgen::SignatureAlgorithm) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names = vec![SanType::URI(urn.try_into().unwrap())];
    (params.signed_by(&key, &ca.issuer).unwrap(), key)
}

#[test]
fn a_certificate_binds_a_key_to_an_id_if_the_authority_says_so() {
    for algorithm in [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256] {
        let ca = authority(algorithm);
        let (certificate, key) = issued(&ca, &format!("{PARTICIPANT_URN}{ALICE}"), &PKCS_ED25519);
        let trusting = Authority::new(ca.der.clone(), NOW);
        let found = trusting.verify(ALICE.0.as_bytes(), certificate.der()).unwrap();
        assert_eq!(found.0, key.der_bytes());
        assert_eq!(holder(certificate.der()).unwrap().participant, ALICE);
        let chain = chain_der(&(certificate.pem() + &ca.pem)).unwrap();
        assert_eq!(chain, [certificate.der().to_vec(), ca.der.clone()]);
    }
}

#[test]
fn any_of_several_authorities_is_believed_and_who_is_none_is_not() {
    let (first, second, third) = (authority(&PKCS_ED25519), authority(&PKCS_ED25519), authority(&PKCS_ED25519));
    let urn = format!("{PARTICIPANT_URN}{ALICE}");
    let issuers = Issuers::from_pem(&(first.pem.clone() + &second.pem)).unwrap();
    for (ca, is_believed) in [(&first, true), (&second, true), (&third, false)] {
        let certificate = issued(ca, &urn, &PKCS_ED25519).0;
        assert_eq!(issuers.holder(certificate.der()).is_some(), is_believed);
        assert_eq!(
            Authority::any_of(issuers.clone(), NOW).verify(ALICE.0.as_bytes(), certificate.der()).is_ok(),
            is_believed
        );
    }
    assert_eq!(Issuers::default().holder(issued(&first, &urn, &PKCS_ED25519).0.der()), None);

    // A certificate without signing rights, such as a server's, is not accepted as an issuer.
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "server");
    let server = params.self_signed(&key).unwrap();
    let ca = Ca { der: server.der().to_vec(), pem: server.pem(), issuer: Issuer::new(params, key) };
    let issuers = Issuers::new(vec![ca.der.clone()]);
    assert_eq!(issuers.holder(issued(&ca, &urn, &PKCS_ED25519).0.der()), None);
}

/// An RSA authority, and one request that it signed twice (OpenSSL 3.0: `x509 -req -sha1`, `-sha256`).
#[test]
fn a_signature_over_sha1_is_none() {
    let read = |pem: &str| chain_der(pem).unwrap().remove(0);
    let issuers = Issuers::from_pem(include_str!("sha1/ca.pem")).unwrap();
    assert!(issuers.read(&read(include_str!("sha1/member-sha256.pem"))).is_ok());
    assert_eq!(issuers.read(&read(include_str!("sha1/member-sha1.pem"))), Err(Unfit::Issuer));
}

fn with(ca: &Ca, change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    let urn = format!("{PARTICIPANT_URN}{ALICE}");
    params.subject_alt_names = vec![SanType::URI(urn.as_str().try_into().unwrap())];
    change(&mut params);
    params.signed_by(&key, &ca.issuer).unwrap().der().to_vec()
}

/// A newly certified participant and one whose clock is behind can be in one cohort.
#[test]
fn a_certificate_that_begins_within_an_hour_is_believed() {
    const HOUR_MS: i64 = 3_600_000;
    let ca = authority(&PKCS_ED25519);
    let certificate = with(&ca, |params| params.not_before = rcgen::date_time_ymd(2030, 1, 1));
    let begins_at = holder(&certificate).unwrap().begins_at;
    for (before, is_believed) in [(0, true), (HOUR_MS, true), (HOUR_MS + 1, false)] {
        let at = Authority::new(ca.der.clone(), Timestamp(begins_at.0 - before));
        assert_eq!(at.verify(ALICE.0.as_bytes(), &certificate).is_ok(), is_believed, "{before} ms before");
    }
}

/// A certificate too large for sessions would invalidate every roster that contains its holder.
#[test]
fn a_certificate_is_no_longer_than_sessions_carry() {
    let ca = authority(&PKCS_ED25519);
    let issuers = Issuers::new(vec![ca.der.clone()]);
    let padded = |bytes: usize| {
        with(&ca, |params| {
            let padding = format!("urn:other:{}", "x".repeat(bytes));
            params.subject_alt_names.push(SanType::URI(padding.as_str().try_into().unwrap()));
        })
    };
    let longest = (1500..2048).map(padded).take_while(|padded| padded.len() <= MAX_CERTIFICATE_BYTES).last().unwrap();
    assert!(longest.len() > MAX_CERTIFICATE_BYTES - 4 && issuers.read(&longest).is_ok(), "{}", longest.len());
    let refused = issuers.read(&padded(2048)).unwrap_err().to_string();
    assert!(refused.contains("at most 2048 bytes"), "{refused}");
}

#[test]
fn every_other_certificate_is_refused() {
    let (ca, other) = (authority(&PKCS_ED25519), authority(&PKCS_ED25519));
    let urn = format!("{PARTICIPANT_URN}{ALICE}");
    let (good, _) = issued(&ca, &urn, &PKCS_ED25519);
    let trusting = Authority::new(ca.der.clone(), NOW);
    let bob = ParticipantId(uuid::Uuid::from_u128(8));
    assert!(trusting.verify(bob.0.as_bytes(), good.der()).is_err(), "another's id");
    assert!(trusting.verify(&ALICE.0.as_bytes()[..15], good.der()).is_err(), "no id");
    assert!(
        trusting.verify(ALICE.0.as_bytes(), issued(&other, &urn, &PKCS_ED25519).0.der()).is_err(),
        "same name, other key"
    );
    assert!(
        trusting.verify(ALICE.0.as_bytes(), issued(&ca, &urn, &PKCS_ECDSA_P256_SHA256).0.der()).is_err(),
        "not Ed25519"
    );
    assert!(
        trusting.verify(ALICE.0.as_bytes(), issued(&ca, "urn:x", &PKCS_ED25519).0.der()).is_err(),
        "no participant's"
    );
    assert!(trusting.verify(ALICE.0.as_bytes(), &ca.der).is_err(), "the authority is no participant");
    let after_the_end = Authority::new(ca.der.clone(), Timestamp(i64::MAX));
    assert!(after_the_end.verify(ALICE.0.as_bytes(), good.der()).is_err(), "expired");
    assert!(
        Authority::new(ca.der.clone(), Timestamp(0)).verify(ALICE.0.as_bytes(), good.der()).is_err(),
        "not valid yet"
    );
    let mut longer = good.der().to_vec();
    longer.push(0);
    assert!(trusting.verify(ALICE.0.as_bytes(), &longer).is_err(), "a byte more");
    for length in (0..good.der().len()).step_by(7) {
        assert!(trusting.verify(ALICE.0.as_bytes(), &good.der()[..length]).is_err(), "cut at {length}");
    }
    // The signed part and the signature; the bytes between them are only framing.
    let length = good.der().len();
    let (_, parsed) = X509Certificate::from_der(good.der()).unwrap();
    let signed = 4..4 + parsed.tbs_certificate.as_ref().len();
    for position in signed.chain(length - 64..length) {
        let mut bent = good.der().to_vec();
        bent[position] ^= 1;
        assert!(trusting.verify(ALICE.0.as_bytes(), &bent).is_err(), "bit flipped at {position}");
    }
}

#[test]
fn chains_that_are_none_are_refused() {
    let ca = authority(&PKCS_ED25519);
    assert!(chain_der("").is_err());
    assert!(chain_der("no PEM").is_err());
    assert!(chain_der(&KeyPair::generate().unwrap().serialize_pem()).is_err());
    assert!(chain_der(&ca.pem.repeat(9)).is_err());
    assert!(chain_der(&ca.pem[..ca.pem.len() - 40]).is_err());
}

#[test]
fn terms_are_the_configuration() {
    let terms = SessionTerms {
        suite: 1,
        min_cohort: 4,
        max_cohort: 100,
        max_corrupt: 100_000,
        max_dropout: 300_000,
        min_included: 5,
        words: 10,
        modulus_bits: 20,
        input_bound: 64,
        noise_margin: 7,
        application: Digest([9; 32]),
        batch_size: 0,
    };
    assert_eq!(SessionTerms::from(&SessionConfig::from(&terms)), terms);
}
