//! Known answers, good and bad: the RFCs of every primitive, and the derivations of the protocol from two oracles that share no code with
//! this crate (`vectors/kat.json`, and `vectors/session.py` for cases missing there).
//!
//! This file is compiled into the crate's unit tests (see `lib.rs`), since most of the tested items are private. Shamir's entries of
//! `kat.json` are checked in `src/crypto/shamir.rs`, next to the polynomial that they need; the words of the masks also in
//! `tests/mask_vectors.rs`, through the public interface.

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit as _, StreamCipher as _, StreamCipherSeek as _};
use ring::aead::{Aad, Nonce};
use tls_codec::{DeserializeBytes as _, Serialize as _};

use crate::crypto::agreement::{self, AgreementKey, BadPublicKey};
use crate::crypto::kdf::{self, hkdf};
use crate::crypto::signature::{IdentityKey, MemorySigner, Signer as _};
use crate::crypto::{aead, shamir::Seed};
use crate::mask::{self, MaskPlan, MaskSeed, Plane, Sign, WORDS_PER_NONCE};
use crate::messages::{self, AdvertiseBody, Body as _, MaskedInputBody, RosterEntry, RoundId};
use crate::modular::{self, Modulus};
use crate::params::SessionConfig;
use crate::participants::IndexSet;
use crate::secret::Secret;
use crate::upload;

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).unwrap();
    bytes
}

fn unhex(text: &str) -> [u8; 32] {
    bytes(text)
}

fn kat() -> serde_json::Value {
    serde_json::from_str(include_str!("vectors/kat.json")).unwrap()
}

fn text<'a>(known: &'a serde_json::Value, name: &str) -> &'a str {
    known[name].as_str().unwrap()
}

fn words(known: &serde_json::Value) -> Vec<u32> {
    known.as_array().unwrap().iter().map(|word| u32::try_from(word.as_u64().unwrap()).unwrap()).collect()
}

fn seed(byte: u8) -> Seed {
    Secret::new([byte; 30])
}

#[test]
fn every_entry_of_the_oracle_is_checked_somewhere() {
    let known = kat();
    let names: Vec<&str> = known.as_object().unwrap().keys().map(String::as_str).collect();
    let here = [
        "b_commit_1",
        "mask_pk_1",
        "mask_pk_2",
        "mask_sk_1",
        "mask_sk_2",
        "pair_key_1_2",
        "pair_mask_plane2_chunk3",
        "pair_mask_words_0_16",
        "pair_mask_words_block5",
        "proto",
        "rfc8439_2.3.2_block",
        "self_key_1",
        "self_mask_words_0_8",
        "shamir",
        "share_enc_key_1_to_2",
        "sid",
        "toy",
        "x25519_shared",
    ];
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, here);
    assert_eq!(text(&known, "proto").as_bytes(), crate::PROTOCOL);
}

/// Participants 1 and 2 of the oracle: mask seeds of 01 and 02, self-mask seed of 03 for `client-1`. The oracle's `sid` is the salt of all
/// keys below; its own inputs are not recorded there, so the session id itself is verified against `session.json`.
#[test]
fn keys_are_those_of_the_oracle() {
    let known = kat();
    let sid = unhex(text(&known, "sid"));
    let (one, two) = (AgreementKey::from_seed(&seed(1)), AgreementKey::from_seed(&seed(2)));
    assert_eq!(kdf::mask_scalar(&seed(1)).expose(), &unhex(text(&known, "mask_sk_1")));
    assert_eq!(kdf::mask_scalar(&seed(2)).expose(), &unhex(text(&known, "mask_sk_2")));
    assert_eq!(one.public(), unhex(text(&known, "mask_pk_1")));
    assert_eq!(two.public(), unhex(text(&known, "mask_pk_2")));
    let shared = one.agree(&two.public()).unwrap();
    assert_eq!(shared.expose(), &unhex(text(&known, "x25519_shared")));
    assert_eq!(two.agree(&one.public()).unwrap().expose(), shared.expose());
    for (a, b) in [(1, 2), (2, 1)] {
        assert_eq!(kdf::pair_mask(&sid, &shared, a, b).expose(), &unhex(text(&known, "pair_key_1_2")));
    }
    assert_eq!(kdf::self_mask(&sid, &seed(3), 1).expose(), &unhex(text(&known, "self_key_1")));
    assert_eq!(kdf::share_key(&sid, &shared, 1, 2).expose(), &unhex(text(&known, "share_enc_key_1_to_2")));
    assert_eq!(kdf::self_mask_commitment(b"client-1", &seed(3)), unhex(text(&known, "b_commit_1")));
}

#[test]
fn a_key_of_another_session_pair_direction_or_seed_is_another_key() {
    let known = kat();
    let sid = unhex(text(&known, "sid"));
    let shared = Secret::new(unhex(text(&known, "x25519_shared")));
    let pair = unhex(text(&known, "pair_key_1_2"));
    let mut other_sid = sid;
    other_sid[31] ^= 1;
    assert_ne!(kdf::pair_mask(&other_sid, &shared, 1, 2).expose(), &pair);
    assert_ne!(kdf::pair_mask(&sid, &shared, 1, 3).expose(), &pair);
    assert_ne!(kdf::share_key(&sid, &shared, 2, 1).expose(), &unhex(text(&known, "share_enc_key_1_to_2")));
    assert_ne!(kdf::self_mask(&sid, &seed(3), 2).expose(), &unhex(text(&known, "self_key_1")));
    assert_ne!(kdf::self_mask_commitment(b"client-2", &seed(3)), unhex(text(&known, "b_commit_1")));
    assert_ne!(kdf::self_mask_commitment(b"client-1", &seed(4)), unhex(text(&known, "b_commit_1")));
}

fn mask_words(seed: MaskSeed, plane: Plane, offset: u64, len: usize) -> Vec<u32> {
    let mut plan = MaskPlan::new(plane, 4 * WORDS_PER_NONCE, Modulus::new(32).unwrap()).unwrap();
    plan.push(seed, Sign::Add);
    let mut words = vec![0; len];
    mask::apply(&plan, offset, &mut words).unwrap();
    words
}

#[test]
fn masks_are_those_of_the_oracle() {
    let known = kat();
    let key = |name| MaskSeed::new(&mut unhex(text(&known, name)));
    let pair = |plane, offset, len| mask_words(key("pair_key_1_2"), plane, offset, len);
    assert_eq!(pair(Plane::Model, 0, 16), words(&known["pair_mask_words_0_16"]));
    assert_eq!(pair(Plane::Model, 80, 16), words(&known["pair_mask_words_block5"]));
    assert_eq!(pair(Plane::HomomorphicKey, 3 * WORDS_PER_NONCE, 8), words(&known["pair_mask_plane2_chunk3"]));
    assert_eq!(mask_words(key("self_key_1"), Plane::Model, 0, 8), words(&known["self_mask_words_0_8"]));
    assert_ne!(pair(Plane::Scalars, 0, 16), words(&known["pair_mask_words_0_16"]));
}

#[test]
fn the_toy_round_masks_and_opens_as_the_oracle_does() {
    let known = kat();
    let (toy, sid) = (&known["toy"], unhex(text(&known, "sid")));
    let (one, two) = (AgreementKey::from_seed(&seed(1)), AgreementKey::from_seed(&seed(2)));
    let shared = one.agree(&two.public()).unwrap();
    let pair = || kdf::pair_mask(&sid, &shared, 1, 2);
    let own = |index| kdf::self_mask(&sid, &seed(if index == 1 { 3 } else { 4 }), index);
    let apply = |vector: &mut [u32], masks: Vec<(MaskSeed, Sign)>| {
        let mut plan = MaskPlan::new(Plane::Model, 8, Modulus::new(32).unwrap()).unwrap();
        masks.into_iter().for_each(|(seed, sign)| plan.push(seed, sign));
        mask::apply(&plan, 0, vector).unwrap();
    };
    let (mut y1, mut y2) = (words(&toy["x1"]), words(&toy["x2"]));
    apply(&mut y1, vec![(own(1), Sign::Add), (pair(), Sign::Add)]);
    apply(&mut y2, vec![(own(2), Sign::Add), (pair(), Sign::Subtract)]);
    assert_eq!(y1, words(&toy["y1"]));
    assert_eq!(y2, words(&toy["y2"]));
    let mut sum = y1;
    modular::add_assign(&mut sum, &y2);
    apply(&mut sum, vec![(own(1), Sign::Subtract), (own(2), Sign::Subtract)]);
    assert_eq!(sum, words(&toy["sum"]));
}

#[derive(serde::Deserialize)]
struct KnownSession {
    config: String,
    t: u16,
    k_m: u16,
    t_m: u16,
    cfg_hash: String,
    entries: Vec<KnownEntry>,
    roster_root: String,
    sid: String,
    signed_advertise: String,
    signed_masked: String,
    signed_u3: String,
    upload_digest: String,
    part_root: String,
}

#[derive(serde::Deserialize)]
struct KnownEntry {
    client_id: String,
    id_pk: String,
    c_pk: String,
    s_pk: String,
    b_commit: String,
    signature: String,
}

fn known_session() -> KnownSession {
    serde_json::from_str(include_str!("vectors/session.json")).unwrap()
}

#[test]
fn the_session_id_is_that_of_the_specification() {
    let known = known_session();
    let encoded = hex::decode(&known.config).unwrap();
    let config = SessionConfig::tls_deserialize_exact_bytes(&encoded).unwrap();
    assert_eq!(config.tls_serialize_detached().unwrap(), encoded);
    let params = config.params(3).unwrap();
    assert_eq!((params.threshold(), params.out_degree(), params.min_out()), (known.t, known.k_m, known.t_m));
    let config_hash = config.digest(&params);
    assert_eq!(hex::encode(config_hash), known.cfg_hash);

    let identities: Vec<IdentityKey> = known.entries.iter().map(|entry| IdentityKey(bytes(&entry.id_pk))).collect();
    let entries: Vec<RosterEntry> = known
        .entries
        .iter()
        .map(|entry| RosterEntry {
            client_id: hex::decode(&entry.client_id).unwrap().into(),
            certificate: b"not part of the root".to_vec().into(),
            c_pk: bytes(&entry.c_pk),
            s_pk: bytes(&entry.s_pk),
            b_commit: bytes(&entry.b_commit),
            signature: bytes(&entry.signature),
        })
        .collect();
    let root = messages::roster_root(&entries, &identities);
    assert_eq!(hex::encode(root), known.roster_root);
    let sid = |round: RoundId| hex::encode(messages::session_id(&round, &[0x4d; 32], &config_hash, &root));
    assert_eq!(sid(RoundId::new(b"task-1", 7, 2)), known.sid);
    for other in [RoundId::new(b"task-2", 7, 2), RoundId::new(b"task-1", 8, 2), RoundId::new(b"task-1", 7, 3)] {
        assert_ne!(sid(other), known.sid);
    }
    assert_ne!(hex::encode(messages::roster_root(&entries[..2], &identities[..2])), known.roster_root);
}

#[test]
fn signed_texts_are_those_of_the_specification() {
    let known = known_session();
    let sid = unhex(&known.sid);
    let advertise = AdvertiseBody {
        round: RoundId::new(b"task-1", 7, 2),
        client_id: b"client-1".to_vec().into(),
        certificate: b"cert".to_vec().into(),
        c_pk: [0x21; 32],
        s_pk: [0x31; 32],
        b_commit: [0x41; 32],
    };
    assert_eq!(hex::encode(advertise.signed_text()), known.signed_advertise);
    let (dealers, survivors) = (IndexSet::of(10, [1, 2, 9, 10]), IndexSet::of(10, [2, 10]));
    let (dealt, out) = (dealers.digest(), IndexSet::of(10, [1, 10]));
    let masked = MaskedInputBody { sid, sender: 2, bytes: 2500, digest: [0x77; 32], dealers: dealt, out };
    assert_eq!(hex::encode(masked.signed_text()), known.signed_masked);
    assert_eq!(hex::encode(messages::consistency_text(&sid, &dealers, &survivors)), known.signed_u3);
    let body: Vec<u8> = (0..upload::CHUNK_BYTES + 5).map(|i| u8::try_from(i % 251).unwrap()).collect();
    assert_eq!(hex::encode(upload::digest(&body)), known.upload_digest);
    assert_eq!(hex::encode(upload::PartTree::of(&body).root()), known.part_root);
}

#[test]
fn rfc_8439_2_3_2() {
    let key: [u8; 32] = std::array::from_fn(|i| u8::try_from(i).unwrap());
    let mut cipher = ChaCha20::new(&key.into(), &bytes::<12>("000000090000004a00000000").into());
    cipher.seek(64u64);
    let mut block = [0; 64];
    cipher.apply_keystream(&mut block);
    assert_eq!(hex::encode(block), text(&kat(), "rfc8439_2.3.2_block"));
}

/// Test vectors 1 and 2 of appendix A.1: blocks 0 and 1 of the zero key and nonce, which are words 0 to 31 of a mask on plane 0.
#[test]
fn rfc_8439_a_1_through_the_mask_definition() {
    let expected = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d7724e03fb8d84a376a43b8f4\
                    1518a11cc387b669b2ee65869f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed29b721769ce64e43d57133b0\
                    74d839d531ed1f28510afb45ace10a1f4b794d6f";
    let words = mask_words(MaskSeed::new(&mut [0; 32]), Plane::Model, 0, 32);
    let stream: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(hex::encode(stream), expected);
}

#[test]
fn rfc_8032_7_1() {
    for (secret, public, message, signature) in [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24\
             655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee\
             b00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d\
             c027beceea1ec40a",
        ),
    ] {
        let signer = MemorySigner::from_seed(&unhex(secret)).unwrap();
        let message = hex::decode(message).unwrap();
        let signature: [u8; 64] = bytes(signature);
        assert_eq!(signer.identity(), IdentityKey(unhex(public)));
        assert_eq!(signer.sign(&message).unwrap(), signature);
        assert!(signer.identity().verifies(&message, &signature));
        assert!(!signer.identity().verifies(&[&message[..], &[0]].concat(), &signature));
        for position in [0, 31, 32, 63] {
            let mut bent = signature;
            bent[position] ^= 1;
            assert!(!signer.identity().verifies(&message, &bent), "byte {position}");
        }
        assert!(
            !signer.identity().verifies(&message, &with_order_added(signature)),
            "s is not reduced (RFC 8032 §5.1.7)"
        );
    }
}

/// The same signature with s + L in place of s: equal modulo the group order, and must be rejected.
fn with_order_added(mut signature: [u8; 64]) -> [u8; 64] {
    let order = unhex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
    let mut carry = 0u16;
    for (byte, order) in signature[32..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        *byte = u8::try_from(sum & 0xff).unwrap();
        carry = sum >> 8;
    }
    signature
}

#[test]
fn rfc_7748_5_2() {
    for (scalar, point, expected) in [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            // The RFC's point has its top bit set, and the RFC ignores that bit; here a key has one encoding.
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a413",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ] {
        let key = AgreementKey::new(&Secret::new(unhex(scalar)));
        assert_eq!(hex::encode(key.agree(&unhex(point)).unwrap().expose()), expected);
    }
    let top_bit = unhex("e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493");
    assert_eq!(agreement::check(&top_bit), Err(BadPublicKey::NotCanonical));
}

#[test]
fn rfc_7748_5_2_iterated() {
    let mut nine = [0; 32];
    nine[0] = 9;
    let (mut k, mut u) = (nine, nine);
    for round in 1..=1000 {
        let mut point = u;
        point[31] &= 0x7f;
        let next = *AgreementKey::new(&Secret::new(k)).agree(&point).unwrap().expose();
        (k, u) = (next, k);
        if round == 1 {
            assert_eq!(hex::encode(k), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
        }
    }
    assert_eq!(hex::encode(k), "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
}

#[test]
fn rfc_7748_6_1() {
    let private = |text| AgreementKey::new(&Secret::new(unhex(text)));
    let alice = private("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
    let bob = private("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
    assert_eq!(hex::encode(alice.public()), "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
    assert_eq!(hex::encode(bob.public()), "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
    let shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
    assert_eq!(hex::encode(alice.agree(&bob.public()).unwrap().expose()), shared);
    assert_eq!(hex::encode(bob.agree(&alice.public()).unwrap().expose()), shared);
}

/// RFC 8439 §2.8.2, through the very cipher this module builds (the RFC's nonce and its longer text).
#[test]
fn rfc_8439_2_8_2() {
    let key: [u8; 32] = std::array::from_fn(|i| 0x80 + u8::try_from(i).unwrap());
    let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
    let aad = hex::decode("50515253c0c1c2c3c4c5c6c7").unwrap();
    let mut text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                     sunscreen would be it."
        .to_vec();
    let key = aead::cipher(&Secret::new(key));
    let nonce = || Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce(), Aad::from(&aad), &mut text).unwrap();
    let expected = "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b\
                    1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc\
                    3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691";
    assert_eq!(hex::encode(&text), expected);
    *text.last_mut().unwrap() ^= 1;
    assert!(key.open_in_place(nonce(), Aad::from(&aad), &mut text).is_err());
}

#[test]
fn rfc_5869_a_1() {
    let ikm = [0x0b; 22];
    let okm: Secret<[u8; 42]> =
        hkdf(&bytes::<13>("000102030405060708090a0b0c"), &ikm, &[&bytes::<10>("f0f1f2f3f4f5f6f7f8f9")]);
    let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
    assert_eq!(hex::encode(okm.expose()), expected);
}

#[test]
fn rfc_5869_a_2_with_its_info_in_two_parts() {
    let ikm: Vec<u8> = (0x00..=0x4f).collect();
    let salt: Vec<u8> = (0x60..=0xaf).collect();
    let info: Vec<u8> = (0xb0..=0xff).collect();
    let okm: Secret<[u8; 82]> = hkdf(&salt, &ikm, &[&info[..17], &info[17..]]);
    let expected = "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09\
                    da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87";
    assert_eq!(hex::encode(okm.expose()), expected);
}

#[test]
fn rfc_5869_a_3_no_salt_is_a_salt_of_zeros() {
    let ikm = [0x0b; 22];
    let okm: Secret<[u8; 42]> = hkdf(&[], &ikm, &[]);
    let expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
    assert_eq!(hex::encode(okm.expose()), expected);
    let zeros: Secret<[u8; 42]> = hkdf(&[0; 32], &ikm, &[]);
    assert_eq!(hex::encode(zeros.expose()), expected);
    let other: Secret<[u8; 42]> = hkdf(&[1; 32], &ikm, &[]);
    assert_ne!(hex::encode(other.expose()), expected);
}
