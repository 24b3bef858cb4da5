//! What t members that left a session prove to the others, and what does not prove it.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod support;

use secure_agg::codec::Message as _;
use secure_agg::messages::{Roster, Signed};
use secure_agg::rejection::MessageRejection;
use secure_agg::server::CollectMasked;
use secure_agg::unopened::{AbortProof, AbortStatement, AbortStatementBody, Departure, EndedSession, Unproven};
use support::{Member, World, agreed, answered, cohort, config, masked, shared, wire};

const N: u16 = 20;
/// γ = 0.1 of 20 are 2: floor((20 + 2)/2) + 1.
const T: u16 = 12;

fn begun() -> (World, Vec<Member>, CollectMasked, support::Dealt, Roster) {
    let (mut world, mut members) = cohort(N, config(N, 8), 3);
    let (phase, dealt) = shared(&mut world, &mut members);
    let roster = secure_agg::server::Phase::CollectMasked(phase);
    let public = roster.roster().unwrap().clone();
    let secure_agg::server::Phase::CollectMasked(phase) = roster else { unreachable!("it is that phase") };
    (world, members, phase, dealt, public)
}

fn leave(member: &mut Member) -> AbortStatement {
    let departure: Departure = member.client.take().unwrap().departure().unwrap();
    wire(&departure.state(&member.signer).unwrap())
}

fn shown(world: &World, roster: &Roster, statements: &[AbortStatement]) -> AbortProof {
    let ended = EndedSession::new(roster.clone(), &world.registry).unwrap();
    for statement in statements {
        ended.admit(statement).unwrap();
    }
    wire(&AbortProof::of(roster.clone(), statements.iter().cloned()))
}

#[test]
fn t_members_that_left_in_whatever_state_prove_it_and_one_fewer_does_not() {
    let (world, mut members, phase, dealt, roster) = begun();
    let sid = *members[0].client.as_ref().unwrap().sid().unwrap();
    // Three leave before they mask, six when they are to sign, the others when they are to answer.
    let mut statements: Vec<_> = members[17..].iter_mut().map(leave).collect();
    let (mut staying, _) = members.split_at_mut(17);
    let confirming = {
        let mut uploads = std::collections::BTreeMap::new();
        for (index, member) in (1..).zip(staying.iter_mut()) {
            uploads.insert(index, member.upload(&support::delivery(&phase, &dealt, index)));
        }
        let admitted = uploads.values().map(|upload| phase.admit(wire(&upload.message)).unwrap()).collect();
        phase.close(admitted).unwrap()
    };
    statements.extend(staying[11..].iter_mut().map(leave));
    staying = &mut staying[..11];
    for member in &mut *staying {
        member.check(&confirming.announcement()).unwrap();
    }
    statements.extend(staying[..3].iter_mut().map(leave));
    assert_eq!(statements.len(), usize::from(T));
    let proof = shown(&world, &roster, &statements);
    assert_eq!(AbortProof::decode(&proof.encode()).unwrap(), proof);
    proof.prove(&sid, &world.registry).unwrap();
    let fewer = shown(&world, &roster, &statements[1..]).prove(&sid, &world.registry);
    assert_eq!(fewer, Err(Unproven::TooFew { needed: T, got: T - 1 }));
    // What one says twice counts once.
    let twice = shown(&world, &roster, &[&statements[1..], &statements[1..2]].concat());
    assert_eq!(twice.prove(&sid, &world.registry), Err(Unproven::TooFew { needed: T, got: T - 1 }));
}

#[test]
fn whoever_has_answered_can_say_nothing() {
    let (mut world, mut members) = cohort(N, config(N, 8), 4);
    let (phase, dealt) = shared(&mut world, &mut members);
    let (phase, _) = masked(phase, &dealt, &mut members, |_| true);
    let phase = agreed(phase, &mut members);
    answered(&phase, &mut members);
    assert!(members.iter().all(|member| member.client.as_ref().unwrap().departure().is_none()));
}

#[test]
fn statements_of_others_of_another_session_or_of_nobody_prove_nothing() {
    let (world, mut members, _, _, roster) = begun();
    let sid = *members[0].client.as_ref().unwrap().sid().unwrap();
    let statements: Vec<_> = members.iter_mut().map(leave).collect();
    let honest = shown(&world, &roster, &statements);
    honest.clone().prove(&sid, &world.registry).unwrap();
    let ended = EndedSession::new(roster.clone(), &world.registry).unwrap();
    assert_eq!((ended.sid(), ended.needed()), (&sid, T));

    // In another's name, and for a session that it was not said of.
    let body = AbortStatementBody { sid, sender: 2 };
    let forged = Signed::sign(body.clone(), &members[0].signer).unwrap();
    assert_eq!(ended.admit(&forged), Err(MessageRejection::Signature));
    let other = Signed::sign(AbortStatementBody { sid: [9; 32], ..body.clone() }, &members[1].signer).unwrap();
    assert_eq!(ended.admit(&other), Err(MessageRejection::WrongSession));
    let stranger = Signed::sign(AbortStatementBody { sender: 21, ..body }, &members[1].signer).unwrap();
    assert_eq!(ended.admit(&stranger), Err(MessageRejection::NotExpected { sender: 21 }));

    let change = |change: &dyn Fn(&mut AbortProof)| {
        let mut proof = honest.clone();
        change(&mut proof);
        wire(&proof).prove(&sid, &world.registry)
    };
    let statement = |position| Err(Unproven::Statement { position });
    assert_eq!(
        change(&|proof| proof.statements =
            [proof.statements.as_slice(), &proof.statements.as_slice()[19..]].concat().into()),
        statement(20)
    );
    assert_eq!(
        change(&|proof| {
            let mut swapped = proof.statements.as_slice().to_vec();
            (swapped[0].signature, swapped[1].signature) = (swapped[1].signature, swapped[0].signature);
            proof.statements = swapped.into();
        }),
        statement(0)
    );
    // A roster of fewer, or with other rules or another model, is another session.
    assert_eq!(change(&|proof| proof.roster.model_hash[0] ^= 1), Err(Unproven::Session));
    assert_eq!(change(&|proof| proof.roster.config.max_corrupt = 0), Err(Unproven::Session));
    assert_eq!(change(&|proof| proof.roster.round.attempt += 1), Err(Unproven::Session));
    assert_eq!(
        change(&|proof| proof.roster.entries = proof.roster.entries.as_slice()[..5].to_vec().into()),
        Err(Unproven::Session)
    );
    // The parameters follow from the configuration, whatever the roster says.
    change(&|proof| proof.roster.threshold = 1).unwrap();
    let few = change(&|proof| {
        proof.roster.threshold = 1;
        proof.statements = proof.statements.as_slice()[..3].to_vec().into();
    });
    assert_eq!(few, Err(Unproven::TooFew { needed: T, got: 3 }));
    assert_eq!(honest.prove(&[0; 32], &world.registry), Err(Unproven::Session));
}

/// Every way in which t members can say so, up to n_c of them lying: never are there t left who could answer.
#[test]
fn t_statements_leave_fewer_than_t_who_can_answer_however_many_lie() {
    for n in 3..=1024_u32 {
        for corrupt in 0..=n / 2 {
            let t = (n + corrupt) / 2 + 1;
            if t > n {
                continue;
            }
            let honest_said = t.saturating_sub(corrupt);
            assert!(n - honest_said < t, "n = {n}, {corrupt} lie");
            // One statement fewer would leave t, or just not: never is it enough for every n.
        }
    }
    let one_fewer = |n: u32, corrupt: u32| {
        let t = (n + corrupt) / 2 + 1;
        n - (t - 1).saturating_sub(corrupt) < t
    };
    assert!((3..=20).any(|n| !one_fewer(n, n / 10)));
}
