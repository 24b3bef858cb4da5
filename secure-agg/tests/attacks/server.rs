//! The adversarial server: every row of the specification's list, and further attempts of a dishonest coordinator.

use crate::attacks::{agreement, announce, five, five_masked, signatures};
use crate::support::{
    Dealt, MODEL_HASH, Member, Sent, advertised, config, delivery, open_round, resigned, sealed, shared,
};
use secure_agg::client::Release;
use secure_agg::codec::Message as _;
use secure_agg::messages::{
    Agreement, AgreementSignature, Consistency, Delivery, MaskedInput, RoundId, consistency_text,
};
use secure_agg::params::SessionConfig;
use secure_agg::rejection::{MessageRejection, Refusal};
use secure_agg::server::{Admitted, Phase};
use secure_agg::{IndexSet, Signer as _};

#[test]
fn victim_in_u3_and_in_u2_without_u3() {
    // To get both seeds of participant 5, the server announces it as a survivor to some and as dropped to others.
    let (_, mut members, phase) = five_masked(1, &[]);
    let (with, without) = (announce(&phase, &[1, 2, 3, 4, 5]), announce(&phase, &[1, 2, 3, 4]));
    let mut signed: Vec<Consistency> = vec![members[0].check(&with).unwrap(), members[1].check(&with).unwrap()];
    signed.extend([members[2].check(&without).unwrap(), members[3].check(&without).unwrap()]);
    let all = agreement(&phase, &signed);
    for member in &mut members[..4] {
        assert!(matches!(member.unmask(&all), Err(Refusal::Signature { .. })));
    }
}

#[test]
fn u3_shrunk_after_signatures() {
    let (_, mut members, phase) = five_masked(2, &[]);
    let all = announce(&phase, &[1, 2, 3, 4, 5]);
    let signed: Vec<Consistency> = members.iter_mut().map(|member| member.check(&all).unwrap()).collect();
    // Signing again is impossible: the state for it is gone, in memory and in the snapshot.
    let fewer = announce(&phase, &[1, 2, 3]);
    members[0].restore();
    assert!(matches!(members[0].check(&fewer), Err(Refusal::OutOfOrder)));
    // The revealed shares open the signed set, independent of the server's intention.
    members[0].restore();
    let unmasking = members[0].unmask(&agreement(&phase, &signed)).unwrap();
    assert_eq!(unmasking.body.shares.len(), 5);
}

#[test]
fn two_u3s() {
    let (_, mut members, phase) = five_masked(3, &[]);
    let (one, other) = (announce(&phase, &[1, 2, 3, 4, 5]), announce(&phase, &[1, 2, 3, 4]));
    let first: Vec<Consistency> = members[..2].iter_mut().map(|member| member.check(&one).unwrap()).collect();
    let second: Vec<Consistency> = members[2..4].iter_mut().map(|member| member.check(&other).unwrap()).collect();
    for (member, signed) in [(0, &first), (2, &second)] {
        let refused = members[member].unmask(&agreement(&phase, signed)).err();
        assert_eq!(refused, Some(Refusal::TooFew { what: "signatures", needed: 3, got: 2 }));
    }
    // No cohort allows t signatures on each of two sets, even if every corrupt participant signs both.
    for n in 3..=200u16 {
        for gamma in [0, 100_000, 200_000, 330_000, 500_000] {
            let config = SessionConfig { max_corrupt: gamma, ..config(200, 1) };
            let corrupt = u16::try_from(u64::from(gamma) * u64::from(n) / 1_000_000).unwrap();
            let t = config.params(n).unwrap().threshold();
            assert!(2 * (t - corrupt) > n - corrupt, "n = {n}, γ = {gamma}");
        }
    }
}

#[test]
fn forged_replayed_and_duplicated_signatures() {
    let (_, mut members, phase) = five_masked(4, &[5]);
    let announcement = phase.announcement();
    let signed: Vec<Consistency> = members[..4].iter_mut().map(|member| member.check(&announcement).unwrap()).collect();
    let good = signatures(&signed);
    let with = |signatures: Vec<AgreementSignature>| Agreement { sid: *phase.sid(), signatures: signatures.into() };

    let mut forged = good[..3].to_vec();
    forged[1].signature[5] ^= 1;
    let mut duplicated = good[..2].to_vec();
    duplicated.push(good[1].clone());
    // Participant 5 signs honestly, but its input is not in the sum.
    let text = consistency_text(phase.sid(), &IndexSet::full(5), phase.survivors());
    let mut outsider = good[..2].to_vec();
    outsider.push(AgreementSignature { signer: 5, signature: members[4].signer.sign(&text).unwrap() });
    // A signature on the same sets in another session.
    let mut replayed = good[..3].to_vec();
    let old = consistency_text(&[9; 32], &IndexSet::full(5), phase.survivors());
    replayed[2].signature = members[2].signer.sign(&old).unwrap();

    for bad in [forged, duplicated, outsider, replayed, good[..2].to_vec()] {
        members[0].restore();
        assert!(members[0].unmask(&with(bad)).is_err());
    }
    let other_session = Agreement { sid: [9; 32], signatures: good.clone().into() };
    members[0].restore();
    assert!(matches!(members[0].unmask(&other_session), Err(Refusal::WrongSession)));
    members[0].restore();
    members[0].unmask(&with(good)).unwrap();
}

#[test]
fn ciphertext_swap() {
    // The ciphertext from 2 for 3 is delivered to 1 as 2's: it does not open, and 1 sends no input.
    let (mut world, mut members) = five(11);
    let (phase, dealt) = shared(&mut world, &mut members);
    let swapped =
        phase.delivery(1, |dealer| if dealer == 2 { sealed(&dealt, 2, 3) } else { sealed(&dealt, dealer, 1) }).unwrap();
    let refused = members[0].complain(&swapped, &dealt[&2]).err();
    assert_eq!(refused, Some(Refusal::Inconsistent { what: "the delivered share" }));
    // Nothing was sent, so an honest delivery can still be answered.
    members[0].restore();
    members[0].upload(&delivery(&phase, &dealt, 1));
}

#[test]
fn complaints_extorted_by_bent_ciphertexts() {
    // A revealed key opens the true ciphertext. If altering the victim's ciphertexts made all holders reveal their keys, the server would
    // hold both seeds of a victim that has sent its input. Holders reveal keys only with the victim's signature.
    let (mut world, mut members) = five(24);
    let (phase, dealt) = shared(&mut world, &mut members);
    let victim = 5;
    members[4].upload(&delivery(&phase, &dealt, victim));
    let mut bent = dealt[&victim].body.clone();
    let mut ciphertexts = bent.sealed.as_slice().to_vec();
    ciphertexts.iter_mut().for_each(|sealed| sealed[0] ^= 1);
    bent.sealed = ciphertexts.into();
    // Possible evidence from the server: the true message, the altered one with the old or the server's own signature, another dealer's.
    let mut kept = dealt[&victim].clone();
    kept.body = bent.clone();
    let own = resigned(bent.clone(), &secure_agg::MemorySigner::from_seed(&[66; 32]).unwrap());
    for holder in 1..=4u16 {
        let dealer = |dealer| {
            if dealer == victim { bent.sealed_for(holder).copied() } else { sealed(&dealt, dealer, holder) }
        };
        let bent_delivery = phase.delivery(holder, dealer).unwrap();
        let member = &mut members[usize::from(holder) - 1];
        let other = &dealt[&(holder % 4 + 1)];
        for (evidence, expected) in [
            (&dealt[&victim], Refusal::Inconsistent { what: "the delivered share" }),
            (&kept, Refusal::Signature { signer: victim }),
            (&own, Refusal::Signature { signer: victim }),
            (other, Refusal::Inconsistent { what: "the sender of the evidence" }),
        ] {
            member.restore();
            assert_eq!(member.complain(&bent_delivery, evidence).err(), Some(expected));
        }
    }
}

#[test]
fn replay_from_an_old_sid() {
    let (mut world, mut members) = five(12);
    let (old_phase, old) = shared(&mut world, &mut members);
    let old_delivery = delivery(&old_phase, &old, 1);
    world.round = RoundId::new(b"task-1", 8, 0);
    let (phase, dealt) = shared(&mut world, &mut members);
    // The old message unchanged, and the old ciphertexts with the new session's id.
    assert!(matches!(members[0].mask(&old_delivery), Err(Refusal::WrongSession)));
    members[0].restore();
    let renamed = Delivery { sid: *phase.sid(), ..old_delivery };
    assert!(matches!(members[0].mask(&renamed), Ok(Sent::Challenge(_))));
    // The server rejects it too.
    let next = members[1].upload(&delivery(&phase, &dealt, 2));
    assert_eq!(old_phase.admit(next.message).err(), Some(MessageRejection::WrongSession));
}

#[test]
fn different_model_to_half_the_clients() {
    let (mut world, mut members) = five(13);
    let phase = advertised(&mut world, &mut members);
    let mut other = phase.roster().clone();
    other.model_hash = [0xbd; 32];
    assert_eq!(
        members[0].share_for(&mut world, &other, &MODEL_HASH).err(),
        Some(Refusal::Different { what: "model" }),
        "the digest is that of the model in hand, not the one the server names"
    );
    members[0].restore();
    let mut dealt = Dealt::new();
    for (number, member) in members.iter_mut().enumerate() {
        let (roster, model) = if number < 2 { (&other, [0xbd; 32]) } else { (phase.roster(), MODEL_HASH) };
        let shares = member.share_for(&mut world, roster, &model).unwrap();
        dealt.insert(shares.body.sender, shares);
    }
    assert_ne!(dealt[&1].body.sid, dealt[&3].body.sid);
    assert_eq!(phase.admit(dealt[&1].clone()).err(), Some(MessageRejection::WrongSession));
    // A server that continues nevertheless: shares do not open across the two halves, so every participant withholds its input.
    let sealed: Vec<_> = [2, 3, 4, 5].iter().map(|dealer| sealed(&dealt, *dealer, 1).unwrap()).collect();
    let (dealers, incoming) = (IndexSet::full(5), IndexSet::of(5, 2..=5));
    let mixed = Delivery { sid: dealt[&1].body.sid, recipient: 1, dealers, incoming, sealed: sealed.into() };
    assert!(matches!(members[0].mask(&mixed), Ok(Sent::Challenge(_))));
}

#[test]
fn second_unmask_after_restart() {
    let (_, mut members, phase) = five_masked(17, &[5]);
    let announcement = phase.announcement();
    let signed: Vec<Consistency> = members[..4].iter_mut().map(|member| member.check(&announcement).unwrap()).collect();
    let first = members[0].unmask(&agreement(&phase, &signed[..3])).unwrap();
    members[0].restore();
    assert!(matches!(members[0].unmask(&agreement(&phase, &signed[1..])), Err(Refusal::OutOfOrder)));
    members[0].restore();
    assert_eq!(members[0].client.as_ref().unwrap().resend(), first.encode(), "the same answer, byte for byte");
    // Unrevealed shares are erased from the snapshot.
    let kept = members[0].snapshot.len();
    assert!(kept < first.encode().len() + 64);
}

#[test]
fn retry_with_u3_without_w() {
    let (mut world, mut members, phase) = five_masked(18, &[]);
    phase.close(Vec::new()).unwrap_err();
    world.round = RoundId::new(b"task-1", 7, 1);
    let mut retry = |member: &mut Member, release| {
        member.restore();
        let setup = member.setup(&world);
        member.client.take().unwrap().retry(setup, release, &member.signer, &mut world.rng)
    };
    // The update was sent: the same one is never sent again, regardless of the second sum's survivors.
    assert!(matches!(retry(&mut members[0], Release::SameUpdate), Err(Refusal::SecondRelease)));
    let step = retry(&mut members[0], Release::FreshNoisePaid).unwrap();
    assert_eq!(step.send.body.round.attempt, 1);

    // A participant that has sent no input may retry, but only with a higher attempt of its own round.
    let (mut world, mut members) = five(19);
    shared(&mut world, &mut members);
    for (attempt, expected) in [(0, Some(Refusal::StaleAttempt { attempt: 0 })), (1, None)] {
        world.round = RoundId::new(b"task-1", 7, attempt);
        members[0].restore();
        let (setup, state) = (members[0].setup(&world), members[0].client.take().unwrap());
        let retried = state.retry(setup, Release::SameUpdate, &members[0].signer, &mut world.rng);
        assert_eq!(retried.err(), expected);
    }
    world.round = RoundId::new(b"task-1", 8, 1);
    members[1].restore();
    let (setup, state) = (members[1].setup(&world), members[1].client.take().unwrap());
    let retried = state.retry(setup, Release::SameUpdate, &members[1].signer, &mut world.rng);
    assert_eq!(retried.err(), Some(Refusal::Different { what: "round" }));
}

#[test]
fn crash_restart_of_the_server_in_each_phase() {
    // Between any two writes: the phase and the admitted messages are restored from bytes, and close as without the crash.
    let (mut world, mut members) = five(20);
    let (phase, dealt) = shared(&mut world, &mut members);
    let bytes = Phase::CollectMasked(phase).encode();
    let restored = || match Phase::restore(&bytes).unwrap() {
        Phase::CollectMasked(phase) => phase,
        other => panic!("{:?}", other.name()),
    };
    let uploads: Vec<Vec<u8>> = (1..=4u16)
        .map(|index| members[usize::from(index) - 1].upload(&delivery(&restored(), &dealt, index)).message.encode())
        .collect();
    let close = || {
        let phase = restored();
        let admitted = uploads.iter().map(|bytes| Admitted::from_store(MaskedInput::decode(bytes).unwrap()));
        Phase::CollectConsistency(phase.close(admitted.collect()).unwrap()).encode()
    };
    assert_eq!(close(), close());
    // A message admitted before the crash is admitted again and recognised.
    let again = MaskedInput::decode(&uploads[0]).unwrap();
    let admitted = restored().admit(again.clone()).unwrap();
    assert_eq!(admitted.repeated_by(&again), Ok(()));
    // A truncated phase does not load.
    for len in 0..bytes.len() {
        assert!(Phase::restore(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn every_phase_comes_back_as_it_was() {
    let (mut world, mut members) = five(25);
    let same = |phase: Phase| {
        let bytes = phase.encode();
        let again = Phase::restore(&bytes).unwrap();
        assert_eq!((again.encode(), again.name()), (bytes, phase.name()));
    };
    same(Phase::CollectKeys(open_round(&world)));
    same(Phase::CollectShares(advertised(&mut world, &mut members)));
    let (phase, dealt) = shared(&mut world, &mut members);
    let deliveries: Vec<Delivery> = (1..=5).map(|index| delivery(&phase, &dealt, index)).collect();
    let Phase::CollectMasked(phase) = Phase::restore(&Phase::CollectMasked(phase).encode()).unwrap() else {
        panic!("another phase")
    };
    assert_eq!(deliveries, (1..=5).map(|index| delivery(&phase, &dealt, index)).collect::<Vec<_>>());
    let (phase, _) = crate::support::masked(phase, &dealt, &mut members, |index| index != 1);
    let announcement = phase.announcement();
    let Phase::CollectConsistency(phase) = Phase::restore(&Phase::CollectConsistency(phase).encode()).unwrap() else {
        panic!("another phase")
    };
    assert_eq!(phase.announcement(), announcement);
    same(Phase::CollectUnmasking(crate::support::agreed(phase, &mut members)));
}

#[test]
fn late_phases() {
    let (mut world, mut members) = five(21);
    let early = advertised(&mut world, &mut members);
    let late_keys = {
        let phase = open_round(&world);
        world.round = RoundId::new(b"task-1", 9, 0);
        let advert = members[0].advertise(&mut world);
        phase.admit(advert, &world.registry).err()
    };
    assert_eq!(late_keys, Some(MessageRejection::WrongRound));
    drop(early);

    let (mut world, mut members) = five(22);
    let phase = advertised(&mut world, &mut members);
    let mut dealt = Dealt::new();
    for member in &mut members[..4] {
        let shares = member.share(&mut world, phase.roster()).unwrap();
        dealt.insert(shares.body.sender, shares);
    }
    let late = members[4].share(&mut world, phase.roster()).unwrap();
    let phase = phase.close(dealt.values().cloned().map(Admitted::from_store).collect()).unwrap();
    assert!(phase.delivery(5, |dealer| sealed(&dealt, dealer, 5)).is_none(), "5 dealt too late");
    let mut stranger = members[0].upload(&delivery(&phase, &dealt, 1)).message;
    stranger.body.sender = 5;
    let stranger = resigned(stranger.body, &members[4].signer);
    assert_eq!(phase.admit(stranger).err(), Some(MessageRejection::NotExpected { sender: 5 }));
    drop(late);

    let (_, mut members, phase) = five_masked(23, &[5]);
    let text = consistency_text(phase.sid(), &IndexSet::full(5), phase.survivors());
    let late = Consistency { sid: *phase.sid(), sender: 5, signature: members[4].signer.sign(&text).unwrap() };
    assert_eq!(phase.admit(late).err(), Some(MessageRejection::NotExpected { sender: 5 }));
    let announcement = phase.announcement();
    let signed: Vec<Consistency> = members[..4].iter_mut().map(|member| member.check(&announcement).unwrap()).collect();
    let next = phase.close(signed[..3].iter().cloned().map(Admitted::from_store).collect()).unwrap();
    let late = members[3].unmask(next.agreement()).unwrap();
    assert_eq!(next.admit(late).err(), Some(MessageRejection::NotExpected { sender: 4 }));
}
