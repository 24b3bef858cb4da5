//! A server that tries to have one survivor masked by too few participants, or without its own signature, to open its input.

use crate::attacks::{five, told};
use crate::support::{Member, World, cohort, config, delivery, sealed, shared};
use secure_agg::IndexSet;
use secure_agg::messages::{Delivery, MaskedInput, SurvivorInput, Survivors};
use secure_agg::params::SessionConfig;
use secure_agg::rejection::{Abort, MessageRejection, Refusal};

#[test]
fn drop_the_victims_mask_neighbours() {
    let config = SessionConfig { max_dropout: 150_000, min_cohort: 130, ..config(130, 1) };
    let params = config.params(130).unwrap();
    let (mut world, mut members) = cohort(130, config, 14);
    let (phase, dealt) = shared(&mut world, &mut members);
    let out = dealt[&1].body.out.clone();
    assert_eq!(out.len(), params.out_degree());

    // All but t_m - 1 of the neighbours drawn by participant 1 "never dealt"; far more than t dealers remain.
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

/// A cohort that draws its mask neighbours: n = 130, k_m = 28, t = 72.
fn sparse(seed: u64) -> (World, Vec<Member>) {
    cohort(130, SessionConfig { max_dropout: 150_000, min_cohort: 130, ..config(130, 1) }, seed)
}

/// The announcement of a server that closed no phase.
fn announced(sid: [u8; 32], survivors: &IndexSet, inputs: &std::collections::BTreeMap<u16, MaskedInput>) -> Survivors {
    let inputs = survivors.iter().map(|index| SurvivorInput::of(&inputs[&index])).collect::<Vec<_>>().into();
    Survivors { sid, survivors: survivors.clone(), inputs }
}

#[test]
fn isolate_a_survivor_that_is_never_asked_to_sign() {
    // t signatures open the sum, so the server need not ask its victim to confirm that *its* neighbours remain. It reports all but t_m - 1
    // of them as dropouts, so it may remove their masks from the victim's input. The other participants keep enough of their own.
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
    // The others check the victim's signed list; the server cannot replace, omit or reorder it.
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
    // Participants whose own lists would let them continue.
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
    // An honest coordinator ends such a session and names the isolated participant, before any request to sign.
    let admitted = survivors.iter().map(|index| phase.admit(inputs[&index].clone()).unwrap()).collect();
    assert!(matches!(phase.close(admitted), Err(Abort::Isolated { .. })));
}

#[test]
fn isolate_a_survivor_that_was_shown_other_dealers() {
    // The victim masks with the dealers announced to it. If these were all dropped later, its own list would look sufficient to the others;
    // but it signed the set of dealers for which it masked.
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
