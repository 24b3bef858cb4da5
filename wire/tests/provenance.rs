//! Provenance records: every change of the signed text is detected.

use federation::id::{Digest, ParticipantId, TaskId};
use federation::time::Timestamp;
use ring::digest::{SHA256, digest};
use ring::signature::Ed25519KeyPair;
use uuid::Uuid;
use wire::audit::Hex;
use wire::provenance::{
    BadProvenance, BaseVersion, FORMAT, MAX_BELOW, MAX_RECORD_BYTES, MadeIn, Origin, Provenance, SignedProvenance,
    SpentSoFar, key_of, roster_digest, survivors_digest,
};

fn pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn record() -> Provenance {
    Provenance {
        format: FORMAT,
        coordinator: key_of(&pair(7)),
        task: TaskId(Uuid::from_u128(9)),
        task_sha256: Digest([1; 32]),
        version: 3,
        sha256: Digest([2; 32]),
        bytes: 1234,
        origin: Origin::Trained,
        base: Some(BaseVersion { version: 2, sha256: Digest([3; 32]) }),
        round: Some(MadeIn { round: 4, attempt: 1 }),
        roster: Some(roster_digest(&[vec![ParticipantId(Uuid::from_u128(1))]])),
        survivors: None,
        updates: Some(5),
        below: Vec::new(),
        privacy: Some(SpentSoFar { epsilon: 0.1 + 0.2, delta: 1e-5 }),
        published_at: Timestamp(1_750_000_000_000),
        signed_at: Timestamp(1_750_000_000_000),
        program: "tributary 0.1.0".to_owned(),
    }
}

#[test]
fn a_known_record_has_a_known_text_and_signature() {
    let signed = record().sign(&pair(7));
    assert_eq!(
        signed.record,
        concat!(
            r#"{"format":1,"coordinator":"ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c","#,
            r#""task":"00000000-0000-0000-0000-000000000009","#,
            r#""task_sha256":"0101010101010101010101010101010101010101010101010101010101010101","#,
            r#""version":3,"sha256":"0202020202020202020202020202020202020202020202020202020202020202","bytes":1234,"#,
            r#""origin":"trained","base":{"version":2,"#,
            r#""sha256":"0303030303030303030303030303030303030303030303030303030303030303"},"#,
            r#""round":{"round":4,"attempt":1},"#,
            r#""roster":"ROSTER","updates":5,"privacy":{"epsilon":0.30000000000000004,"delta":0.00001},"#,
            r#""published_at":1750000000000,"signed_at":1750000000000,"program":"tributary 0.1.0"}"#
        )
        .replace("ROSTER", &record().roster.unwrap().to_string())
    );
    // The documented bytes, assembled here by hand.
    let bytes = [b"tributary provenance 1\0", signed.record.as_bytes()].concat();
    assert_eq!(signed.signature.0, pair(7).sign(&bytes).as_ref());
    // Made by another implementation of Ed25519.
    let known = concat!(
        "66a226871ef7bd97229bd7c83532d04c53a87001bcc75675de753bd68dca2a95",
        "ce67e3a3013a5def32a1f8eef28a1ce1d8baa847a4d8aa6caf99c4612fea1c0a"
    );
    assert_eq!(signed.signature.to_string(), known);
    assert_eq!(signed.open().unwrap(), record());
}

#[test]
fn a_record_of_which_a_bit_is_changed_proves_nothing() {
    let signed = record().sign(&pair(7));
    for at in 0..signed.record.len() {
        let mut bytes = signed.record.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        assert!(SignedProvenance { record: changed, ..signed.clone() }.open().is_err(), "byte {at}");
    }
    for at in 0..64 {
        let mut changed = signed.clone();
        changed.signature.0[at] ^= 1;
        assert_eq!(changed.open(), Err(BadProvenance::Signature(key_of(&pair(7)))), "byte {at} of the signature");
    }
    // A record signed by another key, or a signature for another use, is rejected too.
    assert!(matches!(record().sign(&pair(8)).open(), Err(BadProvenance::Signature(_))));
    let mut other = signed.clone();
    other.signature = Hex(pair(7).sign(signed.record.as_bytes()).as_ref().try_into().unwrap());
    assert!(matches!(other.open(), Err(BadProvenance::Signature(_))));
}

#[test]
fn what_a_later_program_adds_is_signed_and_passed_over_and_another_format_is_refused() {
    let signed = |text: String| {
        let bytes = [b"tributary provenance 1\0", text.as_bytes()].concat();
        let signature = Hex(pair(7).sign(&bytes).as_ref().try_into().unwrap());
        SignedProvenance { record: text, signature }
    };
    let text = record().sign(&pair(7)).record;
    assert_eq!(signed(text.replacen('{', r#"{"later":[1],"#, 1)).open().unwrap(), record());
    assert_eq!(signed(text.replacen("\"format\":1", "\"format\":2", 1)).open(), Err(BadProvenance::Format(2)));
    assert_eq!(signed(r#"{"format":2}"#.to_owned()).open(), Err(BadProvenance::Format(2)), "whatever else it has");
    assert!(matches!(signed(r#"{"format":1}"#.to_owned()).open(), Err(BadProvenance::Unreadable(_))));
    assert!(matches!(signed(" ".repeat(MAX_RECORD_BYTES) + &text).open(), Err(BadProvenance::Unreadable(_))));
}

#[test]
fn a_roster_has_one_digest_in_any_order_and_groups_have_theirs() {
    let ids = |numbers: &[u128]| numbers.iter().map(|n| ParticipantId(Uuid::from_u128(*n))).collect::<Vec<_>>();
    let mut bytes = b"tributary roster 1\0\0\0\0\x02".to_vec();
    for n in [1_u128, 2] {
        bytes.extend(n.to_be_bytes());
    }
    let cohort = roster_digest(&[ids(&[2, 1])]);
    assert_eq!(cohort.0, digest(&SHA256, &bytes).as_ref());
    assert_eq!(roster_digest(&[ids(&[1, 2])]), cohort);
    let other = roster_digest(&[ids(&[3])]);
    let groups = [b"tributary rosters 1\0\0\0\0\x02".as_slice(), &cohort.0, &other.0].concat();
    assert_eq!(roster_digest(&[ids(&[1, 2]), ids(&[3])]).0, digest(&SHA256, &groups).as_ref());
}

#[test]
fn survivors_have_a_digest_of_their_own_and_are_signed_where_they_are_told() {
    let ids = |numbers: &[u128]| numbers.iter().map(|n| ParticipantId(Uuid::from_u128(*n))).collect::<Vec<_>>();
    let mut bytes = b"tributary survivors 1\0\0\0\0\x02".to_vec();
    for n in [1_u128, 2] {
        bytes.extend(n.to_be_bytes());
    }
    let survivors = survivors_digest(&[ids(&[2, 1])]);
    assert_eq!(survivors.0, digest(&SHA256, &bytes).as_ref());
    assert_ne!(survivors, roster_digest(&[ids(&[1, 2])]), "who was drawn is not who is in the sum");
    let nobody = survivors_digest(&[Vec::new()]);
    assert_eq!(nobody.0, digest(&SHA256, b"tributary survivors 1\0\0\0\0\0").as_ref());
    let groups = [b"tributary survivors of groups 1\0\0\0\0\x02".as_slice(), &survivors.0, &nobody.0].concat();
    assert_eq!(survivors_digest(&[ids(&[1, 2]), Vec::new()]).0, digest(&SHA256, &groups).as_ref());

    let told = Provenance { survivors: Some(survivors), ..record() };
    let signed = told.sign(&pair(7));
    assert!(signed.record.contains(&format!(r#""survivors":"{survivors}","updates":5"#)), "{}", signed.record);
    assert_eq!(signed.open().unwrap(), told);
    let mut changed = signed;
    changed.record = changed.record.replace("survivors", "survivorz");
    assert_eq!(changed.open(), Err(BadProvenance::Signature(key_of(&pair(7)))));
}

#[test]
fn records_below_are_signed_and_a_full_list_is_accepted() {
    let below = vec![record().sign(&pair(8)).sha256(), Digest([9; 32])];
    let signed = Provenance { below: below.clone(), ..record() }.sign(&pair(7));
    assert!(signed.record.contains(&format!(r#""updates":5,"below":["{}","{}"],"#, below[0], below[1])));
    assert_eq!(signed.open().unwrap().below, below);
    assert_eq!(signed.sha256().0, digest(&SHA256, signed.record.as_bytes()).as_ref());
    let full = vec![Digest([255; 32]); MAX_BELOW as usize];
    let full = Provenance { below: full, survivors: record().roster, ..record() };
    assert_eq!(full.sign(&pair(7)).open().unwrap(), full);
}
