//! The adversarial server: every row of the specification's list, and what else a dishonest coordinator could try.

use crate::support::{
    Dealt, FLOORS, MODEL_HASH, Member, Sent, World, advertised, cohort, config, delivery, open_round, resigned, rng,
    sealed, shared,
};
use secure_agg::client::Release;
use secure_agg::codec::Message as _;
use secure_agg::messages::{
    Advertise, Agreement, AgreementSignature, Consistency, Delivery, MaskedInput, Roster, RoundId, SurvivorInput,
    Survivors, consistency_text,
};
use secure_agg::params::{InvalidConfig, Policy, SessionConfig, VectorShape};
use secure_agg::rejection::{Abort, MessageRejection, Refusal};
use secure_agg::server::{Admitted, Phase};
use secure_agg::{BadPublicKey, IndexSet, Signer as _};

use crate::{agreement, announce, five, five_masked, signatures, told};

#[test]
fn victim_in_u3_and_in_u2_without_u3() {
    // To get both seeds of participant 5 the server calls it a survivor to some and dropped to others.
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
    // Signing again is impossible: the state that could is gone, in memory and in the snapshot.
    let fewer = announce(&phase, &[1, 2, 3]);
    members[0].restore();
    assert!(matches!(members[0].check(&fewer), Err(Refusal::OutOfOrder)));
    // What they reveal opens the signed set, whatever set the server has in mind.
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
    // In no cohort can two sets both be signed by t, though every corrupt participant signs both.
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

/// Shows every member-0 variant of a roster and returns what it says.
fn shown(change: impl Fn(&mut Vec<secure_agg::messages::RosterEntry>, &World)) -> Option<Refusal> {
    let (mut world, mut members) = five(5);
    let phase = advertised(&mut world, &mut members);
    let mut roster = phase.roster().clone();
    let mut entries = roster.entries.as_slice().to_vec();
    change(&mut entries, &world);
    // Parameters follow the number of entries, so that only the change itself can be the reason.
    let params = world.config.params(u16::try_from(entries.len()).unwrap().min(5)).unwrap();
    (roster.threshold, roster.out_degree, roster.min_out) = (params.threshold(), params.out_degree(), params.min_out());
    roster.entries = entries.into();
    let refused = members[0].share(&mut world, &roster).err();
    assert_eq!(members[0].client.is_none(), refused.is_some(), "a refusal leaves no state behind");
    refused
}

#[test]
fn roster_without_me() {
    assert_eq!(shown(|entries, _| drop(entries.remove(0))), Some(Refusal::OwnEntry));
}

#[test]
fn roster_with_me_twice() {
    let refused = shown(|entries, _| {
        entries[1] = entries[0].clone();
    });
    assert_eq!(refused, Some(Refusal::RosterOrder { entry: 2 }));
}

#[test]
fn roster_out_of_order() {
    assert_eq!(shown(|entries, _| entries.swap(2, 3)), Some(Refusal::RosterOrder { entry: 4 }));
}

#[test]
fn roster_with_substituted_keys() {
    // Mine: word for word or not at all. Another's: its signature no longer holds.
    let refused = shown(|entries, _| entries[0].c_pk[0] ^= 1);
    assert_eq!(refused, Some(Refusal::OwnEntry));
    let refused = shown(|entries, _| entries[0].signature[0] ^= 1);
    assert_eq!(refused, Some(Refusal::OwnEntry));
    for change in [
        (|entry| entry.c_pk[0] ^= 1) as fn(&mut secure_agg::messages::RosterEntry),
        |entry| entry.s_pk[0] ^= 1,
        |entry| entry.b_commit[0] ^= 1,
        |entry| entry.signature[0] ^= 1,
    ] {
        assert_eq!(shown(|entries, _| change(&mut entries[3])), Some(Refusal::Signature { signer: 4 }));
    }
}

#[test]
fn roster_with_one_key_for_two() {
    let refused = shown(|entries, _| entries[3].s_pk = entries[1].s_pk);
    assert_eq!(refused, Some(Refusal::RepeatedKey { entry: 4 }));
}

#[test]
fn roster_with_a_wrong_certificate() {
    let refused = shown(|entries, _| entries[2].certificate = b"cert:somebody else".to_vec().into());
    assert_eq!(refused, Some(Refusal::Certificate { entry: 3 }));
}

#[test]
fn keys_of_another_attempt_in_the_roster() {
    let (mut world, mut members) = five(6);
    let old: Vec<Advertise> = members.iter_mut().map(|member| member.advertise(&mut world)).collect();
    world.round = RoundId::new(b"task-1", 7, 1);
    let phase = advertised(&mut world, &mut members);
    let mut roster = phase.roster().clone();
    let mut entries = roster.entries.as_slice().to_vec();
    entries[4] = secure_agg::messages::RosterEntry::of(&old[4]);
    roster.entries = entries.into();
    assert_eq!(members[0].share(&mut world, &roster).err(), Some(Refusal::Signature { signer: 5 }));
}

#[test]
fn weaker_t_k_m_t_m() {
    for name in ["t", "k_m", "t_m"] {
        let (mut world, mut members) = five(7);
        let phase = advertised(&mut world, &mut members);
        let mut roster = phase.roster().clone();
        match name {
            "t" => roster.threshold -= 1,
            "k_m" => roster.out_degree -= 1,
            _ => roster.min_out -= 1,
        }
        let refused = members[0].share(&mut world, &roster).err().unwrap();
        assert!(matches!(refused, Refusal::Parameter { name: named, .. } if named == name), "{refused}");
    }
}

#[test]
fn weaker_n_min_gamma_n_dp_and_b() {
    // After the participant accepted the task, no other configuration is taken.
    let changes: [fn(&mut SessionConfig); 6] = [
        |config| config.min_cohort = 4,
        |config| config.max_corrupt = 0,
        |config| config.min_included = 1,
        |config| config.model.modulus_bits = 31,
        |config| config.model.input_bound -= 1,
        |config| config.application[0] ^= 1,
    ];
    for change in changes {
        let (mut world, mut members) = five(8);
        let phase = advertised(&mut world, &mut members);
        let mut roster = phase.roster().clone();
        change(&mut roster.config);
        let refused = members[0].share(&mut world, &roster).err();
        assert_eq!(refused, Some(Refusal::Different { what: "configuration" }));
    }
    // Before, a task below its own floors is not entered, nor one whose sum could wrap.
    let (world, members) = five(8);
    for (policy, limit, offered, floor) in [
        (Policy { min_cohort: 4, ..FLOORS }, "min_cohort", 3, 4),
        (Policy { min_tolerated_corrupt: 100_001, ..FLOORS }, "max_corrupt", 100_000, 100_001),
        // A tenth of three is nobody.
        (Policy { min_tolerated_colluders: 1, ..FLOORS }, "tolerated_colluders", 0, 1),
        (Policy { min_included: 1, ..FLOORS }, "min_included", 0, 1),
    ] {
        assert_eq!(policy.accept(&world.config), Err(Refusal::BelowPolicy { limit, offered, floor }));
        let setup = secure_agg::client::Setup { policy, ..members[0].setup(&world) };
        assert!(secure_agg::client::advertise_keys(setup, &members[0].signer, &mut rng(1)).is_err(), "{limit}");
    }
    let narrow = SessionConfig { model: VectorShape { modulus_bits: 16, ..world.config.model }, ..world.config };
    assert!(matches!(FLOORS.accept(&narrow), Err(Refusal::Config(InvalidConfig::Headroom { .. }))));
}

#[test]
fn tiny_n() {
    let refused = shown(|entries, _| entries.truncate(3));
    assert_eq!(refused, None, "three is the minimum of this task");
    let (mut world, mut members) = cohort(5, SessionConfig { min_cohort: 4, ..config(5, 1) }, 9);
    let phase = advertised(&mut world, &mut members);
    let mut roster = phase.roster().clone();
    roster.entries = roster.entries.as_slice()[..3].to_vec().into();
    let refused = members[0].share(&mut world, &roster).err();
    assert_eq!(refused, Some(Refusal::TooFew { what: "participants", needed: 4, got: 3 }));
    // And a task that would allow two is no task.
    let pair = SessionConfig { min_cohort: 2, ..config(5, 1) };
    assert!(matches!(FLOORS.accept(&pair), Err(Refusal::Config(InvalidConfig::Cohort { .. }))));
}

#[test]
fn all_zero_x25519_point() {
    for field in ["c_pk", "s_pk"] {
        let (mut world, mut members) = five(10);
        let phase = open_round(&world);
        let mut adverts: Vec<Advertise> = members.iter_mut().map(|member| member.advertise(&mut world)).collect();
        let body = &mut adverts[4].body;
        *(if field == "c_pk" { &mut body.c_pk } else { &mut body.s_pk }) = [0; 32];
        adverts[4] = resigned(adverts[4].body.clone(), &members[4].signer);
        // The server refuses it from a client …
        let refused = phase.admit(adverts[4].clone(), &world.registry).err();
        assert_eq!(refused, Some(MessageRejection::PublicKey(BadPublicKey::SmallOrder)));
        // … and a client from a server that let it pass.
        let entries = adverts.iter().map(secure_agg::messages::RosterEntry::of).collect::<Vec<_>>();
        let params = world.config.params(5).unwrap();
        let roster = Roster {
            round: world.round.clone(),
            model_hash: MODEL_HASH,
            config: world.config.clone(),
            threshold: params.threshold(),
            out_degree: params.out_degree(),
            min_out: params.min_out(),
            entries: entries.into(),
        };
        let refused = members[0].share(&mut world, &roster).err();
        let reason = BadPublicKey::SmallOrder;
        assert_eq!(refused, Some(Refusal::PublicKey { entry: 5, reason }), "{field}");
    }
}

#[test]
fn ciphertext_swap() {
    // What 2 dealt to 3 is handed to 1 as 2's: it does not open, and 1 sends no input.
    let (mut world, mut members) = five(11);
    let (phase, dealt) = shared(&mut world, &mut members);
    let swapped =
        phase.delivery(1, |dealer| if dealer == 2 { sealed(&dealt, 2, 3) } else { sealed(&dealt, dealer, 1) }).unwrap();
    let refused = members[0].complain(&swapped, &dealt[&2]).err();
    assert_eq!(refused, Some(Refusal::Inconsistent { what: "the delivered share" }));
    // Nothing was said, so an honest delivery can still be answered.
    members[0].restore();
    members[0].upload(&delivery(&phase, &dealt, 1));
}

#[test]
fn complaints_extorted_by_bent_ciphertexts() {
    // A revealed key opens the true ciphertext. If bending what the victim dealt made everybody reveal theirs, the server
    // would hold both seeds of a victim that has sent its input. Nobody reveals one without the victim's signature.
    let (mut world, mut members) = five(24);
    let (phase, dealt) = shared(&mut world, &mut members);
    let victim = 5;
    members[4].upload(&delivery(&phase, &dealt, victim));
    let mut bent = dealt[&victim].body.clone();
    let mut ciphertexts = bent.sealed.as_slice().to_vec();
    ciphertexts.iter_mut().for_each(|sealed| sealed[0] ^= 1);
    bent.sealed = ciphertexts.into();
    // Evidence the server could show: the true message, the bent one with the old signature or its own, another dealer's.
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
    // The old message as it was, and the old ciphertexts under the new session's name.
    assert!(matches!(members[0].mask(&old_delivery), Err(Refusal::WrongSession)));
    members[0].restore();
    let renamed = Delivery { sid: *phase.sid(), ..old_delivery };
    assert!(matches!(members[0].mask(&renamed), Ok(Sent::Challenge(_))));
    // And towards the server.
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
    // A server that goes on all the same: no share opens across the two halves, so nobody sends an input.
    let sealed: Vec<_> = [2, 3, 4, 5].iter().map(|dealer| sealed(&dealt, *dealer, 1).unwrap()).collect();
    let (dealers, incoming) = (IndexSet::full(5), IndexSet::of(5, 2..=5));
    let mixed = Delivery { sid: dealt[&1].body.sid, recipient: 1, dealers, incoming, sealed: sealed.into() };
    assert!(matches!(members[0].mask(&mixed), Ok(Sent::Challenge(_))));
}

#[test]
fn drop_the_victims_mask_neighbours() {
    let config = SessionConfig { max_dropout: 150_000, min_cohort: 130, ..config(130, 1) };
    let params = config.params(130).unwrap();
    let (mut world, mut members) = cohort(130, config, 14);
    let (phase, dealt) = shared(&mut world, &mut members);
    let out = dealt[&1].body.out.clone();
    assert_eq!(out.len(), params.out_degree());

    // All but t_m - 1 of the neighbours that participant 1 drew "never dealt"; far more than t dealers are left.
    let gone = usize::from(out.len() - params.min_out() + 1);
    let dropped = IndexSet::of(130, out.iter().take(gone));
    let left = IndexSet::full(130).difference(&dropped);
    assert!(left.len() > params.threshold());
    let honest = delivery(&phase, &dealt, 1);
    let others = left.iter().filter(|dealer| *dealer != 1);
    let claimed = Delivery {
        dealers: left.clone(),
        incoming: honest.incoming.intersection(&left),
        sealed: others.map(|dealer| sealed(&dealt, dealer, 1).unwrap()).collect::<Vec<_>>().into(),
        ..honest.clone()
    };
    let too_few = |refused: Option<Refusal>| {
        matches!(refused, Some(Refusal::TooFew { needed, got, .. })
        if (needed, got) == (params.min_out(), params.min_out() - 1))
    };
    assert!(too_few(members[0].mask(&claimed).err()));

    // The same claim one phase later, after the input was sent.
    members[0].restore();
    members[0].upload(&honest);
    assert!(too_few(members[0].check(&told(*phase.sid(), left)).err()));
}

#[test]
fn too_few_dealers_or_survivors() {
    let (mut world, mut members) = five(15);
    let (phase, dealt) = shared(&mut world, &mut members);
    let honest = delivery(&phase, &dealt, 1);
    let two = Delivery {
        dealers: IndexSet::of(5, [1, 2]),
        incoming: IndexSet::of(5, [2]),
        sealed: vec![sealed(&dealt, 2, 1).unwrap()].into(),
        ..honest.clone()
    };
    assert!(matches!(members[0].mask(&two), Err(Refusal::TooFew { what: "dealers", needed: 3, got: 2 })));
    members[0].restore();
    members[0].upload(&honest);
    for (survivors, left_out) in [(vec![1, 2], false), (vec![2, 3, 4], true)] {
        members[0].restore();
        let refused = members[0].check(&told(*phase.sid(), IndexSet::of(5, survivors))).err().unwrap();
        let expected =
            if left_out { Refusal::LeftOut } else { Refusal::TooFew { what: "survivors", needed: 3, got: 2 } };
        assert_eq!(refused, expected);
    }
}

#[test]
fn a_survivor_that_never_dealt() {
    let (mut world, mut members) = five(16);
    let (phase, dealt) = shared(&mut world, &mut members);
    let honest = delivery(&phase, &dealt, 1);
    let four = Delivery {
        dealers: IndexSet::of(5, 1..=4),
        incoming: IndexSet::of(5, 2..=4),
        sealed: honest.sealed.as_slice()[..3].to_vec().into(),
        ..honest
    };
    members[0].upload(&four);
    let refused = members[0].check(&told(*phase.sid(), IndexSet::full(5))).err();
    assert_eq!(refused, Some(Refusal::Inconsistent { what: "the set of survivors" }));
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
    // Nothing that was not revealed is left in what it keeps.
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
    // The update was sent: the same one never goes out again, whoever would be left out of the second sum.
    assert!(matches!(retry(&mut members[0], Release::SameUpdate), Err(Refusal::SecondRelease)));
    let step = retry(&mut members[0], Release::FreshNoisePaid).unwrap();
    assert_eq!(step.send.body.round.attempt, 1);

    // Who has not sent an input yet may try again, but only forward, and only at its own round.
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
    // Between any two writes: the phase and the admitted messages come back as bytes, and close as if nothing happened.
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
    // A message that was admitted before the crash is admitted again, and recognised.
    let again = MaskedInput::decode(&uploads[0]).unwrap();
    let admitted = restored().admit(again.clone()).unwrap();
    assert_eq!(admitted.repeated_by(&again), Ok(()));
    // A phase that was cut short does not load.
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

/// A cohort that draws its mask neighbours: n = 130, k_m = 28, t = 72.
fn sparse(seed: u64) -> (World, Vec<Member>) {
    cohort(130, SessionConfig { max_dropout: 150_000, min_cohort: 130, ..config(130, 1) }, seed)
}

/// What a server that closed no phase would announce.
fn announced(sid: [u8; 32], survivors: &IndexSet, inputs: &std::collections::BTreeMap<u16, MaskedInput>) -> Survivors {
    let inputs = survivors.iter().map(|index| SurvivorInput::of(&inputs[&index])).collect::<Vec<_>>().into();
    Survivors { sid, survivors: survivors.clone(), inputs }
}

#[test]
fn isolate_a_survivor_that_is_never_asked_to_sign() {
    // t signatures open the sum, so the server need not ask its victim whether *its* neighbours are still there. It calls all but
    // t_m - 1 of them dropped: the masks of these it may take off the victim's input. The others keep plenty of their own.
    let (mut world, mut members) = sparse(26);
    let params = world.config.params(130).unwrap();
    let (phase, dealt) = shared(&mut world, &mut members);
    let out = &dealt[&1].body.out;
    let dropped = IndexSet::of(130, out.iter().take(usize::from(out.len() - params.min_out() + 1)));
    let survivors = IndexSet::full(130).difference(&dropped);
    assert!(survivors.len() > params.threshold());
    let inputs: std::collections::BTreeMap<u16, MaskedInput> = (1..)
        .zip(&mut members)
        .map(|(index, member)| (index, member.upload(&delivery(&phase, &dealt, index)).message))
        .collect();
    let claim = announced(*phase.sid(), &survivors, &inputs);
    // The victim's signed list tells the others; the server cannot show another, leave it away, or reorder.
    let few = Refusal::TooFew {
        what: "drawn neighbours of another survivor",
        needed: params.min_out(),
        got: params.min_out() - 1,
    };
    let mut other_list = claim.clone();
    let mut shown = other_list.inputs.into_vec();
    shown[0].out = IndexSet::of(130, survivors.iter().filter(|index| *index != 1).take(out.len().into()));
    other_list.inputs = shown.clone().into();
    let mut none = claim.clone();
    none.inputs = Vec::new().into();
    shown.rotate_left(1);
    let rotated = Survivors { inputs: shown.into(), ..claim.clone() };
    // Those whose own lists would let them go on.
    let content = |index: u16| dealt[&index].body.out.intersection(&survivors).len() >= params.min_out();
    let asked: Vec<u16> = survivors.iter().skip(1).filter(|index| content(*index)).collect();
    assert!(
        asked.len() >= params.threshold().into(),
        "else the attack would fail without the check that is shown here"
    );
    for index in asked.into_iter().take(5) {
        let member = &mut members[usize::from(index) - 1];
        let mut says = |survivors: &Survivors| {
            member.restore();
            member.check(survivors).err()
        };
        assert_eq!(says(&claim), Some(few));
        assert_eq!(says(&other_list), Some(Refusal::Signature { signer: 1 }));
        assert!(matches!(says(&none), Some(Refusal::Inconsistent { .. })));
        assert!(says(&rotated).is_some());
    }
    // An honest coordinator ends such a session, naming who is isolated, before anybody is asked to sign in vain.
    let admitted = survivors.iter().map(|index| phase.admit(inputs[&index].clone()).unwrap()).collect();
    assert!(matches!(phase.close(admitted), Err(Abort::Isolated { .. })));
}

#[test]
fn isolate_a_survivor_that_was_shown_other_dealers() {
    // The victim masks with those it was told have dealt. Were these all dropped later, its own list would look well enough to the
    // others; but it signed for which dealers it masked.
    let (mut world, mut members) = sparse(27);
    let params = world.config.params(130).unwrap();
    let (phase, dealt) = shared(&mut world, &mut members);
    let out = dealt[&1].body.out.clone();
    let never = IndexSet::of(130, out.iter().take(usize::from(out.len() - params.min_out())));
    let told = IndexSet::full(130).difference(&never);
    let honest = delivery(&phase, &dealt, 1);
    let others = told.iter().filter(|dealer| *dealer != 1);
    let narrowed = Delivery {
        incoming: honest.incoming.intersection(&told),
        sealed: others.map(|dealer| sealed(&dealt, dealer, 1).unwrap()).collect::<Vec<_>>().into(),
        dealers: told,
        ..honest
    };
    let mut inputs: std::collections::BTreeMap<u16, MaskedInput> = (2..)
        .zip(&mut members[1..])
        .map(|(index, member)| (index, member.upload(&delivery(&phase, &dealt, index)).message))
        .collect();
    inputs.insert(1, members[0].upload(&narrowed).message);
    assert_eq!(phase.admit(inputs[&1].clone()).err(), Some(MessageRejection::OtherMasks));
    let all = announced(*phase.sid(), &IndexSet::full(130), &inputs);
    for member in &mut members[1..6] {
        assert_eq!(member.check(&all).err(), Some(Refusal::Signature { signer: 1 }));
    }
}
