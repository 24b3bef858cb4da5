//! Secure aggregation on the wire: what certificates say, and the numbers both sides derive.

#![expect(clippy::unwrap_used, reason = "a test's own certificates can be made")]

use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::time::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
    PublicKeyData as _, SanType,
};
use secure_agg::IdentityVerifier as _;
use secure_agg::messages::MAX_CERTIFICATE_BYTES;
use secure_agg::params::SessionConfig;
use task_spec::{Analytics, Compression};
use task_spec::{ModelSpec, Personalization, Solver, Staleness, TrainingPlan};
use wire::certificate::{Authority, Issuers, PARTICIPANT_URN, Unfit, chain_der, holder};
use wire::participant::{
    CodecTerms, Encoding, GroupTerms, SessionTerms, application_digest, rotation_seed, round_digest, training_digest,
};
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

    // A certificate that may not sign, such as a server's, signs for nobody.
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

/// Whoever has just been certified and whoever's clock is behind are in one cohort.
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

/// A member whose certificate no session can carry would make every roster that it is in fail.
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
    // What is signed, and the signature; the wrapping in between says nothing.
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

fn top_k(k: u64, seed: u64) -> Option<CodecTerms> {
    Some(CodecTerms { codec: Compression::TopK { k, error_feedback: true }, seed })
}

fn encoding() -> Encoding {
    Encoding {
        modulus_bits: 32,
        clip_range: 1.0,
        clip_norm: None,
        max_weight: 1000,
        max_cohort: 1024,
        compression: None,
        analytics: None,
        personalization: None,
        staleness: None,
        groups: None,
        solver: None,
    }
}

fn stale(a: f64, p: f64, max: u32) -> Encoding {
    Encoding { staleness: Some(Staleness { a, p, max }), ..encoding() }
}

fn analysis(text: &str) -> Option<Analytics> {
    serde_json::from_str(text).unwrap()
}

fn personal(method: Personalization) -> Encoding {
    Encoding { personalization: Some(method), ..encoding() }
}

fn solved(solver: Solver) -> Encoding {
    Encoding { solver: Some(solver), ..encoding() }
}

#[test]
fn the_digest_covers_everything_that_gives_words_a_meaning() {
    let metrics = ["loss".to_owned(), "accuracy".to_owned()];
    let base = application_digest(&encoding(), &metrics, None);
    assert_eq!(
        base.to_string(),
        "52a873c599e7c29d026c0291ab13045c37495c67054db7daaf2b84d03e7b87d4",
        "a known answer: an SDK of another release must find the same"
    );
    let others = [
        application_digest(&Encoding { modulus_bits: 31, ..encoding() }, &metrics, None),
        application_digest(&Encoding { clip_range: 2.0, ..encoding() }, &metrics, None),
        application_digest(&Encoding { clip_norm: Some(0.0), ..encoding() }, &metrics, None),
        application_digest(&Encoding { max_weight: 1, ..encoding() }, &metrics, None),
        application_digest(&Encoding { max_cohort: 1, ..encoding() }, &metrics, None),
        application_digest(&Encoding { analytics: analysis(r#"{"kind":"trees"}"#), ..encoding() }, &metrics, None),
        application_digest(&Encoding { analytics: analysis(r#"{"kind":"forest"}"#), ..encoding() }, &metrics, None),
        application_digest(&Encoding { compression: top_k(7, 1), ..encoding() }, &metrics, None),
        application_digest(&Encoding { compression: top_k(7, 2), ..encoding() }, &metrics, None),
        application_digest(&Encoding { compression: top_k(8, 1), ..encoding() }, &metrics, None),
        application_digest(&solved(Solver::FedNova { steps: Some(7) }), &metrics, None),
        application_digest(&solved(Solver::FedNova { steps: Some(8) }), &metrics, None),
        application_digest(&solved(Solver::Scaffold { population: 7, steps: Some(7) }), &metrics, None),
        application_digest(&solved(Solver::Scaffold { population: 8, steps: Some(7) }), &metrics, None),
        application_digest(&personal(Personalization::FedPer {}), &metrics, None),
        application_digest(&personal(Personalization::Ditto { lambda: 0.5, epochs: None }), &metrics, None),
        application_digest(&personal(Personalization::Ditto { lambda: 0.5, epochs: Some(1) }), &metrics, None),
        application_digest(&stale(1.0, 0.5, 10), &metrics, None),
        application_digest(&stale(1.0, 0.5, 11), &metrics, None),
        application_digest(&stale(0.5, 1.0, 10), &metrics, None),
        application_digest(&Encoding { groups: Some(GroupTerms { size: 5 }), ..encoding() }, &metrics, None),
        application_digest(&Encoding { groups: Some(GroupTerms { size: 6 }), ..encoding() }, &metrics, None),
        application_digest(&encoding(), &metrics[..1], None),
        application_digest(&encoding(), &["lossaccuracy".to_owned(), String::new()], None),
        application_digest(&encoding(), &["accuracy".to_owned(), "loss".to_owned()], None),
    ];
    for (number, other) in others.iter().enumerate() {
        assert_ne!(*other, base, "{number}");
        assert!(!others[..number].contains(other), "{number}");
    }
}

/// Each field of a plan, and a value that is not its default.
const CHANGES: [(&str, &str); 17] = [
    ("epochs", "2"),
    ("steps", "7"),
    ("batch_size", "7"),
    ("learning_rate", "0.30000000000000004"),
    ("momentum", "0.5"),
    ("weight_decay", "0.5"),
    ("proximal_mu", "0.5"),
    ("fairness", r#"{"q":1.0,"loss_cap":2.0}"#),
    ("solver", r#"{"name":"fed_nova"}"#),
    ("adaptive_mu", r#"{"metric":"loss"}"#),
    ("accumulate", "2"),
    ("gradient_clip", "0.5"),
    ("schedule", r#"{"kind":"step","every":2,"factor":0.5}"#),
    ("warmup", r#"{"length":2}"#),
    ("budget", r#"{"steps":3}"#),
    ("budget", r#"{"steps":4}"#),
    ("precision", r#""bf16""#),
];

fn plan(field: &str, value: &str) -> TrainingPlan {
    serde_json::from_str(&format!("{{\"{field}\":{value}}}")).unwrap_or_else(|error| panic!("{field}: {error}"))
}

/// Another model in one respect each.
fn models() -> Vec<ModelSpec> {
    let text = |change: fn(&mut serde_json::Value)| {
        let tensors = serde_json::json!([{ "name": "a", "shape": [2] }, { "name": "b", "shape": [2] }]);
        let mut model = serde_json::json!({ "tensors": tensors });
        change(&mut model);
        serde_json::from_value(model).unwrap()
    };
    vec![
        text(|_| ()),
        text(|model| model["personal"] = serde_json::json!(["b"])),
        text(|model| model["seed"] = serde_json::json!(8)),
        text(|model| model["architecture"] = serde_json::json!({ "kind": "linear" })),
        text(|model| model["tensors"].as_array_mut().unwrap().reverse()),
        text(|model| model["tensors"][1]["shape"] = serde_json::json!([1, 2])),
        text(|model| model["tensors"][1]["init"] = serde_json::json!({ "uniform": { "bound": 0.5 } })),
    ]
}

#[test]
fn the_digest_of_a_round_covers_its_version_its_model_and_how_it_trains() {
    let (application, plain, models) = (Digest([7; 32]), TrainingPlan::default(), models());
    let training = |plan: &TrainingPlan| training_digest(&application, "digits", &models[0], plan);
    let base = round_digest(&training(&plain), 3, &[]);
    assert_eq!(
        base.to_string(),
        "13e7889b37c3293bd9d7088e41185a3983d26839de28c1312479c9880e152531",
        "a known answer, of another implementation as well"
    );
    assert_ne!(round_digest(&training(&plain), 4, &[]), base);
    let mut seen = vec![training(&plain), training_digest(&Digest([8; 32]), "digits", &models[0], &plain)];
    seen.push(training_digest(&application, "digit", &models[0], &plain));
    seen.extend(models[1..].iter().map(|model| training_digest(&application, "digits", model, &plain)));
    for (field, value) in CHANGES {
        let plan = plan(field, value);
        seen.push(training(&plan));
        let read_back: TrainingPlan = serde_json::from_slice(&serde_json::to_vec(&plan).unwrap()).unwrap();
        assert_eq!(training(&read_back), training(&plan), "{field}");
    }
    for (number, digest) in seen.iter().enumerate() {
        assert!(!seen[..number].contains(digest), "{number}");
    }
    // Nobody adds a field that participants do not agree on.
    let fields = serde_json::to_value(plan("solver", r#"{"name":"fed_nova"}"#)).unwrap();
    assert!(fields.as_object().unwrap().keys().all(|key| CHANGES.iter().any(|(field, _)| field == key)));
}

#[test]
fn the_digest_of_a_round_covers_every_version_that_updates_may_start_from() {
    let (training, [a, b]) = (Digest([7; 32]), [1, 2].map(|byte| Digest([byte; 32])));
    let digest = |earlier: &[Digest]| round_digest(&training, 3, earlier).to_string();
    // hashlib.sha256(b"tributary/round/1" + b"\7" * 32 + struct.pack(">I", 3) + b"earlier" + struct.pack(">I", 2)
    //                + b"\1" * 32 + b"\2" * 32).hexdigest(), and without "earlier" and what follows.
    assert_eq!(digest(&[a, b]), "baa05e0e7659580af74af242e79703241f5f15607f4b9d16386a2a63ef1895e3", "a known answer");
    assert_eq!(digest(&[]), "c390ab60b60862ef261bd64b7d0b726976631bd7d329ded1f05f0dc44b86a96a", "a known answer");
    let others = [digest(&[a]), digest(&[b]), digest(&[b, a]), digest(&[a, a]), digest(&[a, b, a])];
    for (number, other) in others.iter().enumerate() {
        assert!(![digest(&[a, b]), digest(&[])].contains(other), "{number}");
        assert!(!others[..number].contains(other), "{number}");
    }
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
    };
    assert_eq!(SessionTerms::from(&SessionConfig::from(&terms)), terms);
}

#[test]
fn every_attempt_draws_anew_and_a_repeated_task_the_same() {
    let task = TaskId(uuid::Uuid::from_u128(1));
    let seed = |seed, round, attempt| top_k(7, seed).unwrap().round_seed(Attempt { task, round, attempt });
    assert_eq!(seed(1, 2, 3), seed(1, 2, 3));
    for other in [seed(2, 2, 3), seed(1, 3, 3), seed(1, 2, 4)] {
        assert_ne!(other, seed(1, 2, 3));
    }
}

#[test]
fn public_seeds_of_an_attempt_are_what_they_are_documented_to_be() {
    let task = TaskId("00112233-4455-6677-8899-aabbccddeeff".parse().unwrap());
    let attempt = Attempt { task, round: 258, attempt: 3 };
    let rotation = rotation_seed(attempt);
    assert_eq!(rotation.to_string(), "8b05ab02db054d497538df3ed86aa01dac76f44960973e1eb929183dbfbd1986");
    let codec = top_k(7, 1).unwrap().round_seed(attempt);
    assert_eq!(codec.to_string(), "dc49cb2159291e8a450d533a4da0825d008b54844f970f8bb92e1bf920676017");
}
