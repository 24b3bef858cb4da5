//! Either side is killed at any point: it repeats its messages byte for byte and sends nothing else.

use crate::support::{Dealt, Member, Sent, World, advertised, answered, delivery, masked, open_round, unmasked_sum};
use secure_agg::client::Client;
use secure_agg::codec::Message as _;
use secure_agg::messages::ShareKeys;
use secure_agg::rejection::Refusal;
use secure_agg::server::{Admitted, Enrolled, Phase, Unmasked};

use crate::attacks::five;

/// Kills the participant before and after it stored its answer: the answer is the same.
fn twice<T: PartialEq + std::fmt::Debug>(member: &mut Member, answer: impl Fn(&mut Member) -> T) -> T {
    let before = member.snapshot.clone();
    let first = answer(member);
    let after = std::mem::replace(&mut member.snapshot, before);
    member.restore();
    assert_eq!(answer(member), first, "killed before it was stored, so before it was sent");
    assert_eq!(member.snapshot, after);
    member.restore();
    first
}

#[test]
fn a_participant_killed_anywhere_answers_as_it_would_have_and_never_differently() {
    let (mut world, mut members) = five(60);
    let phase = advertised(&mut world, &mut members);
    let mut dealt = Dealt::new();
    for member in &mut members {
        // Dealing draws anew: an unstored draw was never sent, and a stored one is resent.
        let shares = member.share(&mut world, phase.roster()).unwrap();
        member.restore();
        assert_eq!(member.client.as_ref().unwrap().resend(), shares.encode());
        assert_eq!(member.share(&mut world, phase.roster()).err(), Some(Refusal::OutOfOrder), "no second dealing");
        member.restore();
        dealt.insert(shares.body.sender, shares);
    }
    let phase = phase.close(dealt.values().cloned().map(Admitted::from_store).collect()).unwrap();
    let mut inputs = Vec::new();
    for (index, member) in (1..).zip(&mut members) {
        let delivery = delivery(&phase, &dealt, index);
        let upload = twice(member, |member| {
            let upload = member.upload(&delivery);
            (upload.message, upload.body)
        });
        assert!(matches!(member.mask(&delivery), Err(Refusal::OutOfOrder)), "no second input");
        member.restore();
        assert!(member.client.as_ref().unwrap().has_sent_input());
        inputs.push(Admitted::from_store(upload.0));
    }
    let phase = phase.close(inputs).unwrap();
    let announcement = phase.announcement();
    let signed = members
        .iter_mut()
        .map(|member| {
            let signed = twice(member, |member| member.check(&announcement).unwrap());
            assert_eq!(member.check(&announcement).err(), Some(Refusal::OutOfOrder), "no second signature");
            member.restore();
            Admitted::from_store(signed)
        })
        .collect();
    let phase = phase.close(signed).unwrap();
    for member in &mut members {
        let answer = twice(member, |member| member.unmask(phase.agreement()).unwrap());
        assert!(matches!(member.client, Some(Client::Answered(_))), "that it answered was stored with the answer");
        assert_eq!(member.client.as_ref().unwrap().resend(), answer.encode());
        assert!(member.unmask(phase.agreement()).is_err());
    }
}

/// Closes a stored phase with stored messages twice, as a replica that takes over after an unknown outcome.
fn closed_twice<T: PartialEq + std::fmt::Debug>(phase: &[u8], close: impl Fn(Phase) -> T) -> T {
    let close = || close(Phase::restore(phase).unwrap());
    let first = close();
    assert_eq!(close(), first);
    first
}

/// The stored bytes of all answers.
fn stored<M>(messages: impl IntoIterator<Item = M>) -> impl Fn() -> Vec<Admitted<M>>
where
    M: Clone,
{
    let messages: Vec<M> = messages.into_iter().collect();
    move || messages.iter().cloned().map(Admitted::from_store).collect()
}

#[test]
fn a_coordinator_killed_between_any_two_writes_closes_each_phase_the_same_way() {
    let (mut world, mut members) = five(61);
    let opened = open_round(&world);
    let enrolled: Vec<Enrolled> = members
        .iter_mut()
        .map(|member| opened.admit(member.advertise(&mut world), &world.registry).unwrap().into_message())
        .collect();
    let (bytes, enrolled) = (Phase::CollectKeys(opened).encode(), stored(enrolled));
    let bytes = closed_twice(&bytes, |phase| match phase {
        Phase::CollectKeys(phase) => Phase::CollectShares(phase.close(enrolled()).unwrap()).encode(),
        other => panic!("{:?}", other.name()),
    });
    let dealt = dealt(&mut world, &mut members, &bytes);
    let shares = stored(dealt.values().cloned());
    let bytes = closed_twice(&bytes, |phase| match phase {
        Phase::CollectShares(phase) => Phase::CollectMasked(phase.close(shares()).unwrap()).encode(),
        other => panic!("{:?}", other.name()),
    });
    let Ok(Phase::CollectMasked(phase)) = Phase::restore(&bytes) else { panic!("another phase") };
    let (_, uploads) = masked(phase, &dealt, &mut members, |index| index != 2);
    let inputs = stored(uploads.values().map(|upload| upload.message.clone()));
    let bytes = closed_twice(&bytes, |phase| match phase {
        Phase::CollectMasked(phase) => Phase::CollectConsistency(phase.close(inputs()).unwrap()).encode(),
        other => panic!("{:?}", other.name()),
    });
    let Ok(Phase::CollectConsistency(phase)) = Phase::restore(&bytes) else { panic!("another phase") };
    let signed = stored([0, 2, 3].map(|member: usize| members[member].check(&phase.announcement()).unwrap()));
    let bytes = closed_twice(&bytes, |phase| match phase {
        Phase::CollectConsistency(phase) => Phase::CollectUnmasking(phase.close(signed()).unwrap()).encode(),
        other => panic!("{:?}", other.name()),
    });
    let Ok(Phase::CollectUnmasking(phase)) = Phase::restore(&bytes) else { panic!("another phase") };
    let answers = stored(answered(&phase, &mut members).into_iter().map(Admitted::into_message));
    let sum = |unmasked: &Unmasked| unmasked_sum(&world.config, unmasked, &uploads);
    let sums = closed_twice(&bytes, |phase| match phase {
        Phase::CollectUnmasking(phase) => sum(&phase.close(answers()).unwrap()),
        other => panic!("{:?}", other.name()),
    });
    assert_eq!(sums, crate::support::plain_sum(&world.config, &members, [1, 3, 4, 5].into_iter()));
}

fn dealt(world: &mut World, members: &mut [Member], phase: &[u8]) -> Dealt {
    let Ok(Phase::CollectShares(phase)) = Phase::restore(phase) else { panic!("another phase") };
    let shares = |member: &mut Member| -> ShareKeys { member.share(world, phase.roster()).unwrap() };
    members.iter_mut().map(shares).map(|shares| (shares.body.sender, shares)).collect()
}

#[test]
fn a_challenge_that_was_forgotten_is_no_complaint() {
    // Killed after a share did not open: nothing was sent, so the participant answers an honest delivery without revealing a key.
    let (mut world, mut members) = five(62);
    let (phase, dealt) = crate::support::shared(&mut world, &mut members);
    let mut bent = delivery(&phase, &dealt, 1);
    let mut sealed = bent.sealed.as_slice().to_vec();
    sealed[0][0] ^= 1;
    bent.sealed = sealed.into();
    assert!(matches!(members[0].mask(&bent), Ok(Sent::Challenge(_))));
    members[0].restore();
    members[0].upload(&delivery(&phase, &dealt, 1));
}
