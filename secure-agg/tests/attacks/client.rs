//! The adversarial client: every row of the specification's list, and further attempts of a dishonest participant.

use crate::support::{
    Dealt, Member, World, advertised, agreed, answered, cohort, config, delivery, masked, open_round, parts, plain_sum,
    resigned, shared, unmasked_sum, wire, with_part,
};
use secure_agg::client::Client;
use secure_agg::codec::{DecodeError, Message as _};
use secure_agg::messages::{
    AdvertiseBody, Complaint, ComplaintBody, Consistency, ShareKeys, Unmasking, consistency_text,
};
use secure_agg::params::SessionConfig;
use secure_agg::rejection::{Abort, MessageRejection, PhaseName, Refusal};
use secure_agg::server::{Admitted, CollectUnmasking, ShareFault};

use crate::attacks::five;
use secure_agg::{BadPublicKey, IndexSet, Signer as _};
use tls_codec::Serialize as _;

/// A session of `n` in the phase that collects shares; 2 of the inputs are lost, so both kinds of seed are opened.
fn at_unmasking(
    n: u16,
    seed: u64,
) -> (World, Vec<Member>, CollectUnmasking, std::collections::BTreeMap<u16, secure_agg::client::MaskedUpload>) {
    let (mut world, mut members) = cohort(n, config(n, 4), seed);
    let (phase, dealt) = shared(&mut world, &mut members);
    let (phase, uploads) = masked(phase, &dealt, &mut members, |index| index > 2);
    let phase = agreed(phase, &mut members);
    (world, members, phase, uploads)
}

/// Spoils every share a participant reveals.
fn spoiled(unmasking: &Unmasking, member: &Member) -> Unmasking {
    let mut body = unmasking.body.clone();
    let mut shares = body.shares.as_slice().to_vec();
    shares.iter_mut().for_each(|share| share[0] ^= 1);
    body.shares = shares.into();
    resigned(body, &member.signer)
}

#[test]
fn bad_shares() {
    // n = 12, t = 7, 10 responders: any single liar is corrected and named, and the sum is exact.
    for liar in [3u16, 7, 12] {
        let (world, mut members, phase, uploads) = at_unmasking(12, 30);
        let answers: Vec<Admitted<Unmasking>> = answered(&phase, &mut members)
            .into_iter()
            .map(|answer| {
                let message = answer.into_message();
                let member = &members[usize::from(message.body.sender) - 1];
                let lies = message.body.sender == liar;
                phase.admit(if lies { spoiled(&message, member) } else { message }).unwrap()
            })
            .collect();
        let unmasked = phase.close(answers).unwrap();
        let sums = unmasked_sum(&world.config, &unmasked, &uploads);
        assert_eq!(sums, plain_sum(&world.config, &members, 3..=12));
        let named: Vec<u16> = unmasked.faults().iter().map(|fault: &ShareFault| fault.holder).collect();
        // Shares beyond the first t are not read.
        assert!(named.iter().all(|holder| *holder == liar) && named.is_empty() == (liar == 12), "{named:?}");
    }
}

#[test]
fn more_bad_shares_than_can_be_corrected() {
    // Two liars among 10 with t = 7 exceed floor(3/2): the session ends without a sum.
    let (_, mut members, phase, _) = at_unmasking(12, 31);
    let answers: Vec<Admitted<Unmasking>> = answered(&phase, &mut members)
        .into_iter()
        .map(|answer| {
            let message = answer.into_message();
            let member = &members[usize::from(message.body.sender) - 1];
            let lies = [4, 5].contains(&message.body.sender);
            Admitted::from_store(if lies { spoiled(&message, member) } else { message })
        })
        .collect();
    assert_eq!(phase.close(answers).err(), Some(Abort::InconsistentShares { dealer: 1 }));
}

#[test]
fn shares_in_no_canonical_form_or_of_the_wrong_number() {
    let (_, mut members, phase, _) = at_unmasking(5, 32);
    let message = answered(&phase, &mut members).remove(0).into_message();
    let signer = &members[usize::from(message.body.sender) - 1].signer;
    let mut body = message.body.clone();
    let mut shares = body.shares.as_slice().to_vec();
    shares[0][..8].copy_from_slice(&((1u64 << 61) - 1).to_le_bytes());
    body.shares = shares.clone().into();
    assert_eq!(phase.admit(resigned(body.clone(), signer)).err(), Some(MessageRejection::ShareEncoding));
    shares.pop();
    body.shares = shares.into();
    let count = MessageRejection::ShareCount { expected: 5, got: 4 };
    assert_eq!(phase.admit(resigned(body, signer)).err(), Some(count));
    let mut unsigned = message;
    unsigned.signature[0] ^= 1;
    assert_eq!(phase.admit(unsigned).err(), Some(MessageRejection::Signature));
}

/// A cohort with a member 1 whose dealt seed differs from its commitment; `survives` decides whether its input is included.
fn with_another_seed(part: usize, survives: bool, seed: u64) -> Option<Abort> {
    let (mut world, mut members) = five(seed);
    let phase = advertised(&mut world, &mut members);
    members[0].snapshot = with_part(&members[0].snapshot, part, &[0x5a; 30]);
    members[0].restore();
    let mut dealt = Dealt::new();
    for member in &mut members {
        let shares = member.share(&mut world, phase.roster()).unwrap();
        dealt.insert(shares.body.sender, shares);
    }
    let phase = phase.close(dealt.values().cloned().map(Admitted::from_store).collect()).unwrap();
    let (phase, _) = masked(phase, &dealt, &mut members, |index| survives || index != 1);
    let phase = agreed(phase, &mut members);
    let answers = answered(&phase, &mut members);
    phase.close(answers).err()
}

#[test]
fn wrong_b_commit() {
    assert_eq!(with_another_seed(2, true, 33), Some(Abort::InconsistentShares { dealer: 1 }));
    assert_eq!(with_another_seed(2, false, 33), None, "the self mask of one that dropped out is never opened");
}

#[test]
fn wrong_s_pk() {
    assert_eq!(with_another_seed(1, false, 34), Some(Abort::InconsistentShares { dealer: 1 }));
}

#[test]
fn short_y() {
    let (mut world, mut members) = five(35);
    let (phase, dealt) = shared(&mut world, &mut members);
    let upload = members[0].upload(&delivery(&phase, &dealt, 1));
    let expected = phase.input_bytes().unwrap();
    assert_eq!(upload.body.len() as u64, expected);
    for got in [0, expected - 1, expected + 1, u64::MAX] {
        let mut body = upload.message.body.clone();
        body.bytes = got;
        let refused = phase.admit(resigned(body, &members[0].signer)).err();
        assert_eq!(refused, Some(MessageRejection::InputBytes { expected, got }));
    }
    // A participant that signs one digest and uploads another body is detected by the digest.
    let mut other = upload.body.clone();
    other[0] ^= 1;
    assert_ne!(secure_agg::upload::digest(&other), upload.message.body.digest);
}

#[test]
fn oversized_and_truncated_messages() {
    let (mut world, mut members) = five(36);
    let (phase, dealt) = shared(&mut world, &mut members);
    let shares = dealt[&1].encode();
    for len in 0..shares.len() {
        assert!(ShareKeys::decode(&shares[..len]).is_err(), "{len} bytes");
    }
    let mut longer = shares.clone();
    longer.push(0);
    assert_eq!(ShareKeys::decode(&longer).err(), Some(DecodeError::Malformed));
    let limit = ShareKeys::MAX_BYTES;
    let huge = DecodeError::TooLong { limit, got: limit + 1 };
    assert_eq!(ShareKeys::decode(&vec![1; limit + 1]).err(), Some(huge));
    assert!(matches!(Unmasking::decode(&shares).err(), Some(DecodeError::Header { .. })));
    // A length prefix that claims 4 GiB causes no allocation.
    let mut promise = shares;
    promise[36..40].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(ShareKeys::decode(&promise).err(), Some(DecodeError::Malformed));
    drop(phase);
}

#[test]
fn nan_or_inf_update_and_weight_above_w_q() {
    // Floats end in the quantizer. A bad float can only cause a word out of bounds, and masking rejects those.
    let (mut world, mut members) = five(37);
    let (phase, dealt) = shared(&mut world, &mut members);
    let bound = u32::try_from(world.config.model.input_bound).unwrap();
    for (position, word) in [(0, bound + 1), (3, (bound + 1).wrapping_neg()), (2, i32::MIN.cast_unsigned())] {
        members[0].restore();
        members[0].model = vec![0; 4];
        members[0].model[position] = word;
        let refused = members[0].mask(&delivery(&phase, &dealt, 1)).err();
        assert_eq!(refused, Some(Refusal::InputBound { position, bound: bound.into() }));
    }
    for (model, scalars) in [(vec![0; 3], vec![0; 2]), (vec![0; 5], vec![0; 2]), (vec![0; 4], vec![0; 1])] {
        members[0].restore();
        (members[0].model, members[0].scalars) = (model, scalars);
        let refused = members[0].mask(&delivery(&phase, &dealt, 1)).err();
        assert!(matches!(refused, Some(Refusal::InputShape { .. })), "{refused:?}");
    }
    members[0].restore();
    (members[0].model, members[0].scalars) = (vec![bound, bound.wrapping_neg(), 0, 1], vec![1000, 0]);
    members[0].upload(&delivery(&phase, &dealt, 1));
}

#[test]
fn equivocating_out_list() {
    let config = SessionConfig { max_dropout: 150_000, min_cohort: 130, ..config(130, 1) };
    let (mut world, mut members) = cohort(130, config, 38);
    let phase = advertised(&mut world, &mut members);
    let shares = members[0].share(&mut world, phase.roster()).unwrap();
    let first = phase.admit(shares.clone()).unwrap();
    // Another list with a valid signature is rejected: the first one is binding.
    let mut other = shares.body.clone();
    let (taken, free) = (other.out.iter().next().unwrap(), (2..=130).find(|i| !other.out.contains(*i)).unwrap());
    other.out.remove(taken);
    other.out.insert(free);
    let other = resigned(other, &members[0].signer);
    assert_eq!(first.repeated_by(&phase.admit(other).unwrap().into_message()), Err(MessageRejection::Conflict));
    assert_eq!(first.repeated_by(&shares), Ok(()));
    // Lists that are too short, too long, or name their drawer are refused.
    let mut lists = [shares.body.out.clone(), shares.body.out.clone(), shares.body.out.clone()];
    lists[0].remove(taken);
    lists[1].insert(free);
    lists[2].remove(taken);
    lists[2].insert(1);
    let expected = MessageRejection::OutList { expected: shares.body.out.len() };
    for out in lists {
        let mut body = shares.body.clone();
        body.out = out;
        assert_eq!(phase.admit(resigned(body, &members[0].signer)).err(), Some(expected));
    }
    let mut fewer = shares.body.clone();
    fewer.sealed = fewer.sealed.as_slice()[1..].to_vec().into();
    let refused = phase.admit(resigned(fewer, &members[0].signer)).err();
    assert_eq!(refused, Some(MessageRejection::SealedCount { expected: 129, got: 128 }));
}

#[test]
fn another_out_list_with_the_input_than_with_the_shares() {
    let (mut world, mut members) = five(47);
    let (phase, dealt) = shared(&mut world, &mut members);
    let input = members[0].upload(&delivery(&phase, &dealt, 1)).message;
    let mut fewer = input.body.clone();
    fewer.out.remove(2);
    let mut others = input.body.clone();
    others.dealers[0] ^= 1;
    for body in [fewer, others] {
        let refused = phase.admit(resigned(body, &members[0].signer)).err();
        assert_eq!(refused, Some(MessageRejection::OtherMasks));
    }
    phase.admit(input).unwrap();
}

#[test]
fn a_signature_on_other_survivors() {
    let (mut world, mut members) = five(48);
    let (phase, dealt) = shared(&mut world, &mut members);
    let (phase, _) = masked(phase, &dealt, &mut members, |index| index != 5);
    let honest = members[0].check(&phase.announcement()).unwrap();
    let text = consistency_text(phase.sid(), &IndexSet::full(5), &IndexSet::full(5));
    let other = Consistency { signature: members[0].signer.sign(&text).unwrap(), ..honest.clone() };
    assert_eq!(phase.admit(other).err(), Some(MessageRejection::Signature));
    let another_s = Consistency { sender: 2, ..honest.clone() };
    assert_eq!(phase.admit(another_s).err(), Some(MessageRejection::Signature));
    phase.admit(honest).unwrap();
}

#[test]
fn bad_ciphertext_from_a_dealer() {
    let (mut world, mut members) = five(39);
    let phase = advertised(&mut world, &mut members);
    let mut dealt = Dealt::new();
    for member in &mut members {
        let shares = member.share(&mut world, phase.roster()).unwrap();
        dealt.insert(shares.body.sender, shares);
    }
    // Dealer 2 spoils the ciphertext for 4, and signs it.
    let mut body = dealt[&2].body.clone();
    let mut ciphertexts = body.sealed.as_slice().to_vec();
    ciphertexts[2][10] ^= 1;
    body.sealed = ciphertexts.into();
    dealt.insert(2, phase.admit(resigned(body, &members[1].signer)).unwrap().into_message());
    let phase = phase.close(dealt.values().cloned().map(Admitted::from_store).collect()).unwrap();
    for holder in [1u16, 3, 5] {
        members[usize::from(holder) - 1].upload(&delivery(&phase, &dealt, holder));
    }
    let complaint = members[3].complain(&delivery(&phase, &dealt, 4), &dealt[&2]).unwrap();
    let judged = phase.judge(&wire(&complaint), &dealt[&2]).unwrap();
    assert_eq!(judged, Abort::Complaint { reporter: 4, accused: 2, blamed: 2 });
    // After a complaint the participant sends nothing else in this session, even after a restart.
    members[3].restore();
    assert!(!members[3].client.as_ref().unwrap().has_sent_input());
    assert_eq!(members[3].client.as_ref().unwrap().resend(), complaint.encode());
    assert!(matches!(members[3].mask(&delivery(&phase, &dealt, 4)), Err(Refusal::OutOfOrder)));
}

#[test]
fn false_complaint() {
    let (mut world, mut members) = five(40);
    let (phase, dealt) = shared(&mut world, &mut members);
    // The true key of 2 → 1, from the liar's own snapshot: the ciphertext opens, so the liar is blamed.
    let key: [u8; 32] = parts(&members[0].snapshot)[3][..32].try_into().unwrap();
    let body = ComplaintBody { sid: *phase.sid(), sender: 1, accused: 2, key };
    let complaint: Complaint = resigned(body.clone(), &members[0].signer);
    let judged = phase.judge(&complaint, &dealt[&2]).unwrap();
    assert_eq!(judged, Abort::Complaint { reporter: 1, accused: 2, blamed: 1 });
    // Rejected: accusing a participant that dealt nothing to the sender, a bad signature, accusing itself.
    assert_eq!(phase.judge(&complaint, &dealt[&3]).err(), Some(MessageRejection::Accused { accused: 2 }));
    let mut unsigned = complaint;
    unsigned.signature[0] ^= 1;
    assert_eq!(phase.judge(&unsigned, &dealt[&2]).err(), Some(MessageRejection::Signature));
    let own = resigned(ComplaintBody { accused: 1, ..body }, &members[0].signer);
    assert!(matches!(phase.judge(&own, &dealt[&1]), Err(MessageRejection::Malformed(_))));
}

#[test]
fn keys_that_are_not_its_own() {
    let (mut world, mut members) = five(41);
    let phase = open_round(&world);
    let advert = members[0].advertise(&mut world);
    let mut unsigned = advert.clone();
    unsigned.signature[0] ^= 1;
    assert_eq!(phase.admit(unsigned, &world.registry).err(), Some(MessageRejection::Signature));
    let mut other = advert.body.clone();
    other.client_id = members[1].id.clone().into();
    let refused = phase.admit(resigned(other, &members[0].signer), &world.registry).err();
    assert_eq!(refused, Some(MessageRejection::Certificate));
    // Two participants with one key end the session before the roster is published.
    let second = members[1].advertise(&mut world);
    let mut copied = members[2].advertise(&mut world).body;
    copied.c_pk = second.body.c_pk;
    let copied = resigned(copied, &members[2].signer);
    let admitted = [advert, second, copied].map(|advert| phase.admit(advert, &world.registry).unwrap());
    assert_eq!(phase.close(admitted.into()).err(), Some(Abort::RepeatedKey { first: 2, second: 3 }));
}

#[test]
fn one_key_for_two_purposes() {
    // Every participant would reject the roster, so such an advertisement must be rejected before the close that would end the session for
    // all.
    let (mut world, mut members) = five(44);
    let phase = open_round(&world);
    let honest = members[0].advertise(&mut world).body;
    let identity = members[0].signer.identity().0;
    let refused = |change: fn(&mut AdvertiseBody, [u8; 32])| {
        let mut body = honest.clone();
        change(&mut body, identity);
        phase.admit(resigned(body, &members[0].signer), &world.registry).err()
    };
    let repeated = Some(MessageRejection::PublicKey(BadPublicKey::Repeated));
    assert_eq!(refused(|body, _| body.c_pk = body.s_pk), repeated);
    // An Ed25519 key need not even be an encoding of an X25519 key.
    assert!(matches!(refused(|body, identity| body.c_pk = identity), Some(MessageRejection::PublicKey(_))));
    assert!(matches!(refused(|body, identity| body.s_pk = identity), Some(MessageRejection::PublicKey(_))));
}

#[test]
fn another_s_signing_key_as_its_own() {
    // Signing keys are known from earlier rosters, so any participant can advertise one as an agreement key. The abort names that
    // participant, wherever it stands in the roster, so the attack cannot exclude the key's owner.
    let (mut world, mut members) = cohort(8, config(8, 1), 46);
    let phase = open_round(&world);
    let adverts: Vec<_> = members.iter_mut().map(|member| member.advertise(&mut world)).collect();
    // Half of all signing keys have the form of an agreement key.
    let victim = (1..7).find(|member| members[*member].signer.identity().0[31] < 0x7f).unwrap();
    let identity = members[victim].signer.identity().0;
    for liar in [0, 7] {
        for part in 0..2 {
            let mut adverts = adverts.clone();
            let body = &mut adverts[liar].body;
            *(if part == 0 { &mut body.c_pk } else { &mut body.s_pk }) = identity;
            adverts[liar] = resigned(adverts[liar].body.clone(), &members[liar].signer);
            let admit = |advert| open_round(&world).admit(advert, &world.registry).unwrap();
            let closed = open_round(&world).close(adverts.into_iter().map(admit).collect()).err();
            let (first, second) = (u16::try_from(victim + 1).unwrap(), u16::try_from(liar + 1).unwrap());
            assert_eq!(closed, Some(Abort::RepeatedKey { first, second }));
        }
    }
    drop(phase);
}

#[test]
fn too_few_or_too_many_come() {
    let (mut world, mut members) = five(42);
    world.config.max_cohort = 4;
    let adverts: Vec<_> = members
        .iter_mut()
        .map(|member| {
            let advert = member.advertise(&mut world);
            open_round(&world).admit(advert, &world.registry).unwrap()
        })
        .collect();
    let close = |count: usize| open_round(&world).close(adverts[..count].to_vec()).map(|_| ());
    assert_eq!(close(2), Err(Abort::TooFew { phase: PhaseName::Advertise, needed: 3, got: 2 }));
    assert_eq!(close(5), Err(Abort::TooMany { limit: 4, got: 5 }));
    assert_eq!(close(4), Ok(()));
}

#[test]
fn a_tampered_snapshot_is_not_a_state() {
    let (mut world, mut members) = five(43);
    let _ = shared(&mut world, &mut members);
    let snapshot = &members[0].snapshot;
    for len in 0..snapshot.len() {
        assert!(Client::restore(&snapshot[..len]).is_err(), "{len} bytes");
    }
    let mut longer = snapshot.clone();
    longer.push(0);
    assert!(Client::restore(&longer).is_err());
    assert!(Client::restore(&[9, 1]).is_err() && Client::restore(&[1, 9]).is_err());
}

/// A snapshot with mismatched parts is rejected at restore, for any bytes, so later steps need no such checks.
#[test]
fn a_snapshot_of_parts_that_contradict_each_other_is_not_a_state() {
    let (mut world, mut members) = five(45);
    let (phase, dealt) = shared(&mut world, &mut members);
    let refused = |snapshot: &[u8], number: usize, part: &[u8]| {
        assert!(Client::restore(snapshot).is_ok());
        assert!(Client::restore(&with_part(snapshot, number, part)).is_err(), "state {}, part {number}", snapshot[1]);
    };
    let bytes = |set: IndexSet| set.tls_serialize_detached().unwrap();
    let (foreign, none, with_me) = (bytes(IndexSet::full(9)), bytes(IndexSet::empty(5)), bytes(IndexSet::full(5)));
    let of_two = dealt[&2].encode();
    for set in [&foreign, &none, &with_me] {
        refused(&members[0].snapshot, 5, set);
    }
    refused(&members[0].snapshot, 6, &of_two);
    let (phase, uploads) = masked(phase, &dealt, &mut members, |_| true);
    refused(&members[0].snapshot, 1, &foreign);
    for set in [&foreign, &none, &with_me] {
        refused(&members[0].snapshot, 2, set);
    }
    refused(&members[0].snapshot, 4, &uploads[&2].message.encode());
    agreed(phase, &mut members);
    refused(&members[0].snapshot, 1, &foreign);
    refused(&members[0].snapshot, 2, &foreign);
    refused(&members[0].snapshot, 2, &none);
    let signed_by_two = parts(&members[1].snapshot)[4].to_vec();
    refused(&members[0].snapshot, 4, &signed_by_two);
}
