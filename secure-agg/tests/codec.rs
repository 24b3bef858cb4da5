//! Encodings of every message of a session: the form is frozen in `vectors/messages.json`, every other form is rejected, and decoders do
//! not panic on any bytes.

use std::collections::BTreeMap;

use crate::support::{advertised, agreed, answered, certificate_of, cohort, config, delivery, masked, resigned, rng};
use proptest::prelude::*;
use secure_agg::IndexSet;
use secure_agg::batch::batch_id;
use secure_agg::batch::draw::{Drawing, Drawn, Offer, OfferBody, Pool, PoolEntry, Reveal, offer};
use secure_agg::client::Client;
use secure_agg::codec::{DecodeError, Message};
use secure_agg::messages::{
    Advertise, AdvertiseBody, Agreement, AgreementSignature, Complaint, ComplaintBody, Consistency, Delivery,
    MaskedInput, MaskedInputBody, Roster, RosterEntry, RoundId, ShareKeys, ShareKeysBody, Signed, SurvivorInput,
    Survivors, Unmasking, UnmaskingBody,
};
use secure_agg::server::Phase;

/// Decodes bytes and encodes the result again.
type Reencode = fn(&[u8]) -> Result<Vec<u8>, DecodeError>;

fn reencode<M: Message>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    M::decode(bytes).map(|message| message.encode())
}

const DECODERS: [(&str, Reencode); 14] = [
    ("advertise", reencode::<Advertise>),
    ("roster", reencode::<Roster>),
    ("share_keys", reencode::<ShareKeys>),
    ("delivery", reencode::<Delivery>),
    ("complaint", reencode::<Complaint>),
    ("masked_input", reencode::<MaskedInput>),
    ("survivors", reencode::<Survivors>),
    ("consistency", reencode::<Consistency>),
    ("agreement", reencode::<Agreement>),
    ("unmasking", reencode::<Unmasking>),
    ("offer", reencode::<Offer>),
    ("pool", reencode::<Pool>),
    ("reveal", reencode::<Reveal>),
    ("drawn", reencode::<Drawn>),
];

const DRAW: [u8; 16] = [0xd7; 16];

/// One of each message of a draw that divides six participants into batches of three.
fn draw() -> [(&'static str, Vec<u8>); 4] {
    let (world, members) = cohort(6, config(6, 4), 71);
    let mut rng = rng(72);
    let offered = members
        .iter()
        .map(|member| offer(DRAW, 3, &member.id, &certificate_of(&member.id), &member.signer, &mut rng).unwrap());
    let offered: Vec<_> = offered.collect();
    let offer = offered[0].message().encode();
    let pool = Pool::fix(DRAW, 3, offered.iter().map(|state| state.message().clone()).collect());
    let revealed: Vec<_> = offered.into_iter().map(|state| state.reveal(&pool, 6, &world.registry).unwrap()).collect();
    let nonces: Vec<_> = revealed.iter().map(|state| state.message().nonce).collect();
    let drawn = Drawn { draw: DRAW, nonces: nonces.into() };
    let reveal = revealed[0].message().encode();
    [("offer", offer), ("pool", pool.encode()), ("reveal", reveal), ("drawn", drawn.encode())]
}

/// One of each message, from a session of three under a fixed seed.
fn session() -> BTreeMap<&'static str, Vec<u8>> {
    let (mut world, mut members) = cohort(3, config(3, 5), 70);
    let mut messages = BTreeMap::new();
    let phase = advertised(&mut world, &mut members);
    messages.insert("advertise", members[0].client.as_ref().map(Client::resend).unwrap());
    messages.insert("roster", phase.roster().encode());
    let mut dealt = crate::support::Dealt::new();
    let mut admitted = Vec::new();
    for member in &mut members {
        let shares = member.share(&mut world, phase.roster()).unwrap();
        dealt.insert(shares.body.sender, shares.clone());
        admitted.push(phase.admit(shares).unwrap());
    }
    messages.insert("share_keys", dealt[&2].encode());
    let phase = phase.close(admitted).unwrap();
    messages.insert("delivery", delivery(&phase, &dealt, 1).encode());
    let complaint = ComplaintBody { sid: *phase.sid(), sender: 3, accused: 1, key: [0x5e; 32] };
    messages.insert("complaint", resigned(complaint, &members[2].signer).encode());
    let (phase, uploads) = masked(phase, &dealt, &mut members, |index| index != 3);
    messages.insert("masked_input", uploads[&1].message.encode());
    messages.insert("survivors", phase.announcement().encode());
    let phase = agreed(phase, &mut members);
    messages.insert("consistency", members[0].client.as_ref().map(Client::resend).unwrap());
    messages.insert("agreement", phase.agreement().encode());
    let answer = answered(&phase, &mut members).remove(0).into_message();
    messages.insert("unmasking", answer.encode());
    messages.extend(draw());
    messages
}

#[test]
fn messages_are_as_they_were_when_the_version_was_frozen() {
    let frozen: BTreeMap<String, String> = serde_json::from_str(include_str!("vectors/messages.json")).unwrap();
    let now: BTreeMap<String, String> =
        session().into_iter().map(|(name, bytes)| (name.to_owned(), hex::encode(bytes))).collect();
    assert_eq!(now.len(), DECODERS.len());
    assert!(now == frozen, "the whole file would be {}", serde_json::to_string_pretty(&now).unwrap());
}

#[test]
fn each_message_has_one_form_and_one_decoder() {
    let messages = session();
    for (name, bytes) in &messages {
        for (decoder, reencode) in DECODERS {
            let decoded = reencode(bytes);
            if decoder == *name {
                assert_eq!(decoded.as_ref(), Ok(bytes));
            } else {
                assert!(matches!(decoded, Err(DecodeError::Header { .. } | DecodeError::TooLong { .. })), "{name}");
            }
        }
    }
}

#[test]
fn a_message_that_is_cut_short_prolonged_or_of_another_version_is_none() {
    let messages = session();
    for (name, reencode) in DECODERS {
        let bytes = &messages[name];
        for len in 0..bytes.len() {
            assert!(reencode(&bytes[..len]).is_err(), "{name}, {len} bytes");
        }
        assert!(reencode(&[&bytes[..], &[0]].concat()).is_err(), "{name}");
        let mut other = bytes.clone();
        other[0] = 2;
        assert!(matches!(reencode(&other), Err(DecodeError::Header { .. })), "{name}");
    }
}

#[test]
fn a_changed_byte_is_refused_or_is_the_one_form_of_another_message() {
    let messages = session();
    for (name, reencode) in DECODERS {
        let bytes = &messages[name];
        for position in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bent = bytes.clone();
                bent[position] ^= change;
                if let Ok(again) = reencode(&bent) {
                    assert_eq!(again, bent, "{name}, byte {position}");
                }
            }
        }
    }
}

/// An advertisement with a batch, and the same one without.
fn advertisements() -> [Vec<u8>; 2] {
    let (mut world, mut members) = cohort(3, config(3, 5), 70);
    let batch = batch_id(members.iter().map(|member| member.id.as_slice()));
    [Some(batch), None].map(|batch| {
        members[0].batch = batch;
        members[0].advertise(&mut world).encode()
    })
}

#[test]
fn advertisement_with_a_batch_has_one_form() {
    let [stated, alone] = advertisements();
    assert_eq!(stated.len(), alone.len() + 32);
    assert_eq!(reencode::<Advertise>(&stated).as_ref(), Ok(&stated));
    for len in 0..stated.len() {
        assert!(reencode::<Advertise>(&stated[..len]).is_err(), "{len} bytes");
    }
    // Header, task id, round and attempt precede the length of the client id.
    let at = 2 + 1 + 6 + 8 + 4;
    let own = usize::from(alone[at]);
    assert_eq!((stated[at], &stated[at + 1..=at + own]), (alone[at] | 0x80, &alone[at + 1..=at + own]));
    // Another length byte is rejected, or gives another message in its only encoding.
    for length in (0..=u8::MAX).filter(|length| *length != stated[at]) {
        let mut bent = stated.clone();
        bent[at] = length;
        if let Ok(again) = reencode::<Advertise>(&bent) {
            assert_eq!(again, bent, "length {length}");
        }
    }
    for length in [0x80_u8, 0xff] {
        let id = vec![b'c'; usize::from(length & 0x7f)];
        let bent = [&stated[..at], &[length], &id, &stated[at + 1 + own..]].concat();
        assert_eq!(reencode::<Advertise>(&bent), Err(DecodeError::Bounds { field: "client_id" }));
    }
}

#[test]
fn messages_of_a_draw_have_bounds() {
    let body = OfferBody {
        draw: DRAW,
        size: 3,
        client_id: vec![b'c'; 64].into(),
        certificate: vec![0xce; 2048].into(),
        commitment: [1; 32],
    };
    let offer = |change: &dyn Fn(&mut OfferBody)| {
        let mut body = body.clone();
        change(&mut body);
        reencode::<Offer>(&Signed { body, signature: [9; 64] }.encode()).err()
    };
    let out_of = |field| Some(DecodeError::Bounds { field });
    assert_eq!(offer(&|_| ()), None);
    assert_eq!(offer(&|body| body.size = secure_agg::MAX_COHORT), None);
    assert_eq!(offer(&|body| body.size = 2), out_of("size"));
    assert_eq!(offer(&|body| body.size = secure_agg::MAX_COHORT + 1), out_of("size"));
    let short = |body: &mut OfferBody, id: usize| {
        body.client_id = vec![b'c'; id].into();
        body.certificate = Vec::new().into();
    };
    assert_eq!(offer(&|body| short(body, 0)), out_of("client_id"));
    assert_eq!(offer(&|body| short(body, 65)), out_of("client_id"));
    let long_certificate = |body: &mut OfferBody| {
        short(body, 1);
        body.certificate = vec![0xce; 2049].into();
    };
    assert_eq!(offer(&long_certificate), out_of("certificate"));

    let OfferBody { client_id, certificate, commitment, .. } = body;
    let entry = PoolEntry { client_id, certificate, commitment, signature: [9; 64] };
    let pool = |size, entry: &PoolEntry, offers: usize| {
        reencode::<Pool>(&Pool { draw: DRAW, size, offers: vec![entry.clone(); offers].into() }.encode()).err()
    };
    let all = usize::from(secure_agg::MAX_COHORT);
    assert_eq!(pool(3, &entry, all), None);
    assert_eq!(pool(2, &entry, 6), out_of("size"));
    let long_id = PoolEntry { client_id: vec![b'c'; 65].into(), ..entry.clone() };
    assert_eq!(pool(3, &long_id, 6), out_of("client_id"));
    let long_certificate = PoolEntry { certificate: vec![0xce; 2049].into(), ..entry.clone() };
    assert_eq!(pool(3, &long_certificate, 6), out_of("certificate"));
    let small = PoolEntry { client_id: vec![b'c'].into(), certificate: Vec::new().into(), ..entry };
    assert_eq!(pool(3, &small, all + 1), out_of("offers"));

    let drawn = |nonces: usize| reencode::<Drawn>(&Drawn { draw: DRAW, nonces: vec![[5; 32]; nonces].into() }.encode());
    assert!(drawn(all).is_ok() && drawn(all + 1).is_err());
    // A length that is not a multiple of a nonce's.
    let mut odd = Drawn { draw: DRAW, nonces: vec![[5; 32]; 2].into() }.encode();
    odd[21] = 63;
    assert_eq!(reencode::<Drawn>(&odd[..2 + 16 + 4 + 63]), Err(DecodeError::Malformed));
}

/// The bounds admit the largest possible session.
#[test]
fn the_largest_messages_are_within_their_bounds() {
    fn fits<M: Message + PartialEq + std::fmt::Debug>(message: &M) {
        assert_eq!(M::decode(&message.encode()).as_ref(), Ok(message));
    }
    let (n, sid) = (secure_agg::MAX_COHORT, [7; 32]);
    let all = IndexSet::full(n);
    let round = RoundId::new(&[b't'; 64], u64::MAX, u32::MAX);
    let body = AdvertiseBody {
        round: round.clone(),
        client_id: vec![b'c'; 64].into(),
        certificate: vec![0xce; 2048].into(),
        c_pk: [1; 32],
        s_pk: [2; 32],
        b_commit: [3; 32],
    };
    let advertise = Signed { body, signature: [9; 64] };
    fits(&advertise);
    let entries = vec![RosterEntry::of(&advertise); n.into()].into();
    let (threshold, out_degree, min_out) = (600, 94, 39);
    fits(&Roster { round, model_hash: sid, config: config(n, 1), threshold, out_degree, min_out, entries });
    let sealed = vec![[5; 80]; usize::from(n) - 1];
    let shares = ShareKeysBody { sid, sender: n, sealed: sealed.clone().into(), out: all.clone() };
    fits(&Signed { body: shares, signature: [9; 64] });
    let (dealers, incoming) = (all.clone(), all.clone());
    fits(&Delivery { sid, recipient: n, dealers, incoming, sealed: sealed.into() });
    let input = SurvivorInput { digest: sid, out: all.clone(), signature: [9; 64] };
    fits(&Survivors { sid, survivors: all.clone(), inputs: vec![input; n.into()].into() });
    let masked = MaskedInputBody { sid, sender: n, bytes: u64::MAX, digest: sid, dealers: sid, out: all };
    fits(&Signed { body: masked, signature: [9; 64] });
    let signatures = (1..=n).map(|signer| AgreementSignature { signer, signature: [9; 64] }).collect::<Vec<_>>().into();
    fits(&Agreement { sid, signatures });
    let answers = UnmaskingBody { sid, sender: n, shares: vec![[6; 32]; n.into()].into() };
    fits(&Signed { body: answers, signature: [9; 64] });
    // One more element of any kind is rejected.
    let body = UnmaskingBody { sid, sender: n, shares: vec![[6; 32]; usize::from(n) + 1].into() };
    let too_many = Signed { body, signature: [9; 64] };
    assert!(Unmasking::decode(&too_many.encode()).is_err());
    let mut long_id = advertise;
    long_id.body.client_id = vec![b'c'; 65].into();
    long_id.body.certificate = Vec::new().into();
    assert_eq!(Advertise::decode(&long_id.encode()).err(), Some(DecodeError::Bounds { field: "client_id" }));
    assert!(IndexSet::full(n + 1).len() == n + 1 && Survivors::decode(&oversized_set(sid)).is_err());
}

fn oversized_set(sid: [u8; 32]) -> Vec<u8> {
    Survivors { sid, survivors: IndexSet::full(secure_agg::MAX_COHORT + 1), inputs: Vec::new().into() }.encode()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_decoder_panic(kind in 0u8..17, mut bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let [version, second, ..] = bytes.as_mut_slice() {
            (*version, *second) = (1, kind);
        }
        for (_, reencode) in DECODERS {
            if let Ok(again) = reencode(&bytes) {
                prop_assert_eq!(&again, &bytes);
            }
        }
        let _ = Phase::restore(&bytes);
        let _ = Client::restore(&bytes);
        let _ = Drawing::restore(&bytes);
    }
}
