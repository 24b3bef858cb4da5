//! Divided cohorts: every group has its own session, a robust rule combines the groups' means, and a failed group only costs the round
//! itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use federation::round::{AssignmentState, FailureReason, RoundState};
use learning::{ExactSum, NoisedSum};
use secure_agg::codec::Message as _;
use secure_agg::messages::{Roster, ShareKeys, Signed};
use serde_json::{Value, json};
use wire::inspect::RoundView;
use wire::participant::{Announcement, Answer, GroupTerms};
use wire::problem::ProblemType;
use wire::{Attempt, route};

use crate::support::die_at::DieAt;
use crate::support::member::words;
use crate::support::secure::World;

const SIZE: usize = 3;
const PHASES: [RoundState; 4] =
    [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking];

/// The median of groups of three. It tolerates one attacker, so three groups are needed.
pub(super) fn groups_of_three(spec: &mut Value) {
    spec["aggregation"] = json!({ "robust": { "rule": "median", "attackers": 0.05, "group_size": SIZE } });
    spec["rounds"]["collect_min"] = json!(6);
}

async fn world(participants: usize) -> World {
    World::with(participants, groups_of_three).await
}

/// Members by group, as positions in the world.
async fn groups(world: &World, round: u32) -> Vec<Vec<usize>> {
    let mut groups = BTreeMap::<u32, Vec<usize>>::new();
    let places = world.assignments(round).await;
    for (at, member) in world.members.iter().enumerate() {
        if let Some(place) = places.get(&member.id) {
            groups.entry(place.group.unwrap()).or_default().push(at);
        }
    }
    groups.into_values().collect()
}

/// The mean of these members' inputs.
fn mean(world: &World, round: u32, group: &[usize]) -> Vec<f32> {
    let sum = world.plain(round, |at| group.contains(&at));
    let count = u32::try_from(group.len()).unwrap();
    let sum = ExactSum::new(sum, world.model.modulus.bits(), count).unwrap().release_without_noise();
    world.model.codec.plain().unwrap().decode(&sum).unwrap().delta
}

fn median(rows: &[Vec<f32>]) -> Vec<f32> {
    let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
    let mut values = vec![0.0; rows[0].len()];
    learning::robust::coordinates::median(&rows, &mut values);
    values
}

/// Asserts that the released sum is the median of these groups' means.
async fn assert_median(world: &World, round: u32, groups: &[Vec<usize>]) {
    let codec = world.model.robust.unwrap().groups.unwrap().codec;
    let released = world.released(round).await.expect("it was released");
    let count = u32::try_from(groups.len()).unwrap();
    let released: NoisedSum = ExactSum::new(released, 32, count).unwrap().release_without_noise();
    let released = codec.decode(&released).unwrap();
    let means: Vec<_> = groups.iter().map(|group| mean(world, round, group)).collect();
    let expected = median(&means);
    assert!(
        released.delta.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-3),
        "{released:?} is not {expected:?}"
    );
}

fn anomalies(view: &RoundView) -> Vec<Option<f64>> {
    view.groups.iter().map(|group| group.anomaly).collect()
}

#[tokio::test]
async fn each_group_has_its_own_session_and_the_rule_sees_their_means() {
    let mut world = world(13).await;
    world.join(|_| true).await;
    let groups = groups(&world, 1).await;
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [SIZE; 4], "whoever makes no whole group is not drawn");
    let drawn = |at: usize| groups.concat().contains(&at);
    world.assign(drawn).await;
    for group in &groups {
        for &at in group {
            let member = &world.members[at];
            let place = member.place.as_ref().unwrap();
            assert_eq!((place.cohort, place.groups), (3, Some(4)));
            assert_eq!(place.encoding.groups, Some(GroupTerms { size: 3 }));
            let terms = place.secure_aggregation.as_ref().unwrap();
            assert_eq!((terms.min_cohort, terms.max_cohort), (3, 3), "the session takes no other roster");
            let roster: Roster = member.hear(&world.t, Announcement::Roster).await;
            let ids: Vec<_> = roster.entries.iter().map(|entry| entry.client_id.as_slice().to_vec()).collect();
            let expected: Vec<_> = group.iter().map(|&at| world.members[at].id.0.as_bytes().to_vec()).collect();
            assert_eq!(ids, expected);
        }
    }
    for phase in PHASES {
        assert_eq!(world.state(1).await, phase);
        world.act(phase, drawn).await;
    }
    let view = world.view(1).await;
    assert_eq!((view.state, view.cohort, view.reported, view.dropped), (RoundState::Completed, 12, 12, 0));
    assert!(anomalies(&view).iter().all(|score| score.is_some_and(|score| score < 10.0)), "{view:?}");
    assert!(view.work.as_ref().is_some_and(|work| work.keystream_bytes > 0), "{view:?}");
    let session = view.secure_aggregation.unwrap();
    assert_eq!((session.threshold, session.advertised, session.unmasked), (2, 12, 12));
    // Twelve measured eleven examples each; the most unusual of the four groups is excluded. 99 is rounded.
    assert_eq!(view.metrics["loss"].count, 100);
    assert_median(&world, 1, &groups).await;
}

/// A round in which all except one member of each of the first `lost` groups fall silent in `phase`.
async fn lose(world: &mut World, round: u32, phase: RoundState, lost: usize) -> (RoundView, Vec<Vec<usize>>) {
    world.join(|_| true).await;
    let groups = groups(world, round).await;
    world.assign(|_| true).await;
    let silent: Vec<_> = groups[..lost].iter().flat_map(|group| group[1..].to_vec()).collect();
    for now in PHASES {
        if world.state(round).await != now {
            break;
        }
        let gone = world.view(round).await.dropped_in.keys().any(|state| *state < now);
        let acts = |at: usize| {
            let is_lost = groups[..lost].iter().any(|group| group.contains(&at));
            if now == phase { !silent.contains(&at) } else { !(gone && is_lost) }
        };
        world.act(now, acts).await;
        if world.state(round).await == now {
            world.time_out().await;
        }
    }
    (world.view(round).await, groups)
}

#[tokio::test]
async fn a_group_that_falls_below_its_threshold_is_left_out_in_any_phase() {
    for phase in PHASES {
        let mut world = world(12).await;
        let (view, groups) = lose(&mut world, 1, phase, 1).await;
        assert_eq!((view.state, view.failure), (RoundState::Completed, None), "{phase}");
        assert_eq!(
            anomalies(&view).iter().map(Option::is_some).collect::<Vec<_>>(),
            [false, true, true, true],
            "{phase}"
        );
        assert_median(&world, 1, &groups[1..]).await;
        let places = world.assignments(1).await;
        for &at in &groups[0] {
            let place = &places[&world.members[at].id];
            let expected = match phase {
                RoundState::Sharing => AssignmentState::Late,
                RoundState::Collecting if at != groups[0][0] => AssignmentState::Late,
                _ => AssignmentState::Reported,
            };
            assert_eq!(place.state, expected, "{phase}");
            assert_eq!(place.dropped_in, Some(phase), "{phase}");
        }
        // Excluded participants are free for the next round.
        world.complete(2).await;
    }
}

#[tokio::test]
async fn who_is_left_out_is_told_so() {
    let mut world = world(12).await;
    world.join(|_| true).await;
    let groups = groups(&world, 1).await;
    world.assign(|_| true).await;
    world.act(RoundState::Sharing, |at| !groups[2][1..].contains(&at)).await;
    world.time_out().await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
    let member = &world.members[groups[2][0]];
    let reply = world.t.get(&member.who, &member.announcement(Announcement::Delivery, 0)).await;
    assert!(reply.problem(ProblemType::NotAssigned).contains("the group was left out"));
}

#[tokio::test]
async fn with_too_few_groups_for_the_rule_the_round_fails() {
    for (phase, reason, spent) in [
        (RoundState::Sharing, FailureReason::TooFewShares, false),
        (RoundState::Collecting, FailureReason::TooFewInputs, true),
        (RoundState::Unmasking, FailureReason::TooFewUnmaskShares, true),
    ] {
        let mut world = world(12).await;
        let (view, _) = lose(&mut world, 1, phase, 2).await;
        assert_eq!((view.state, view.failure, view.spent), (RoundState::Failed, Some(reason), spent), "{phase}");
        assert_eq!(world.released(1).await, None);
    }
}

#[tokio::test]
async fn with_too_few_inputs_left_the_round_fails_in_any_phase() {
    for (phase, reason) in [
        (RoundState::Sharing, FailureReason::TooFewShares),
        (RoundState::Collecting, FailureReason::TooFewInputs),
        (RoundState::Confirming, FailureReason::TooFewConfirmations),
        (RoundState::Unmasking, FailureReason::TooFewUnmaskShares),
    ] {
        // Three groups suffice for the rule, but their nine inputs are fewer than the required ten.
        let more = |spec: &mut Value| {
            groups_of_three(spec);
            spec["rounds"]["collect_min"] = json!(10);
        };
        let mut world = World::with(12, more).await;
        let (view, _) = lose(&mut world, 1, phase, 1).await;
        assert_eq!((view.state, view.failure), (RoundState::Failed, Some(reason)), "{phase}");
        assert_eq!(world.released(1).await, None, "{phase}");
    }
}

#[tokio::test]
async fn inputs_of_a_group_whose_sum_is_garbage_do_not_count() {
    let more = |spec: &mut Value| {
        groups_of_three(spec);
        spec["rounds"]["collect_min"] = json!(10);
    };
    let mut world = World::with(12, more).await;
    world.up_to(1, RoundState::Collecting).await;
    let mut garbage = words(&world.model, world.members[0].id, 1);
    garbage[3] = 0u32.wrapping_sub(1_000_000);
    world.members[0].send_words(&world.t, garbage).await;
    world.act(RoundState::Collecting, |at| at != 0).await;
    world.act(RoundState::Confirming, |_| true).await;
    world.act(RoundState::Unmasking, |_| true).await;
    world.assert_failed(1, FailureReason::GarbageSum).await;
}

#[tokio::test]
async fn nobody_has_a_say_in_another_group() {
    let mut world = world(12).await;
    world.up_to(1, RoundState::Sharing).await;
    let groups = groups(&world, 1).await;
    // Both are the first of their sessions, so only the session distinguishes them.
    let (own, other) = (groups[0][0], groups[1][0]);
    let dealt = world.members[own].deal(&world.t).await;
    let signed_anew = Signed::sign(dealt.body.clone(), &world.members[other].signer).unwrap();
    for message in [&dealt, &signed_anew] {
        let reply = world.members[other].say(&world.t, Answer::KeyShares, &message.encode()).await;
        reply.problem(ProblemType::SessionRejected);
    }
    assert_eq!(world.members[own].say(&world.t, Answer::KeyShares, &dealt.encode()).await.status, 204);
    world.act(RoundState::Sharing, |at| at != own).await;

    let path = world.members[own].announcement(Announcement::Delivery, 0);
    world.t.get(&world.members[other].who, &path).await.problem(ProblemType::Forbidden);
    let signed = world.members[own].mask(&world.t, &world.model).await;
    let (input, who) = (&world.members[own], &world.members[other]);
    world.t.send(&who.who, who.upload(&input.masked, &signed)).await.problem(ProblemType::SessionRejected);
    assert_eq!(world.t.send(&input.who, input.upload(&input.masked, &signed)).await.status, 200);
    world.act(RoundState::Collecting, |at| at != own).await;

    for (phase, what) in [(RoundState::Confirming, Answer::Consistency), (RoundState::Unmasking, Answer::UnmaskShares)]
    {
        let said = match what {
            Answer::Consistency => world.members[own].sign(&world.t).await,
            _ => world.members[own].reveal(&world.t).await,
        };
        world.members[other].say(&world.t, what, &said).await.problem(ProblemType::SessionRejected);
        assert_eq!(world.members[own].say(&world.t, what, &said).await.status, 204, "{phase}");
        world.act(phase, |at| at != own).await;
    }
    assert_eq!(world.state(1).await, RoundState::Completed);
    assert_median(&world, 1, &groups).await;
}

#[tokio::test]
async fn one_hostile_participant_moves_the_median_no_farther_than_honest_groups_go() {
    let mut world = world(12).await;
    world.up_to(1, RoundState::Collecting).await;
    let groups = groups(&world, 1).await;
    let hostile = groups[1][0];
    let mut poison = words(&world.model, world.members[hostile].id, 1);
    let (levels, most) = {
        let codec = world.model.codec.plain().unwrap();
        (codec.levels(), codec.params().max_weight)
    };
    poison[..3].fill(levels * most);
    poison[3] = most;
    world.members[hostile].send_words(&world.t, poison).await;
    world.act(RoundState::Collecting, |at| at != hostile).await;
    world.act(RoundState::Confirming, |_| true).await;
    world.act(RoundState::Unmasking, |_| true).await;
    let view = world.view(1).await;
    assert_eq!(view.state, RoundState::Completed);
    let scores: Vec<_> = anomalies(&view).into_iter().map(Option::unwrap).collect();
    assert!((0..4).all(|group| scores[group] <= scores[1]) && scores[1] > 1.5, "{scores:?}");
    let released = ExactSum::new(world.released(1).await.unwrap(), 32, 4).unwrap().release_without_noise();
    let released = world.model.robust.unwrap().groups.unwrap().codec.decode(&released).unwrap().delta;
    let honest: Vec<_> = [0, 2, 3].map(|group: usize| mean(&world, 1, &groups[group])).to_vec();
    for (at, value) in released.iter().enumerate() {
        let most = honest.iter().map(|row| row[at]).fold(f32::MIN, f32::max);
        assert!(*value <= most + 1e-3, "{value} is beyond {most}");
    }
}

#[tokio::test]
async fn a_group_whose_sum_is_garbage_is_left_out_and_named() {
    let mut world = world(12).await;
    world.up_to(1, RoundState::Collecting).await;
    let groups = groups(&world, 1).await;
    // Weights are not negative.
    let mut garbage = words(&world.model, world.members[groups[3][2]].id, 1);
    garbage[3] = 0u32.wrapping_sub(1_000_000);
    world.members[groups[3][2]].send_words(&world.t, garbage).await;
    world.act(RoundState::Collecting, |at| at != groups[3][2]).await;
    world.act(RoundState::Confirming, |_| true).await;
    world.act(RoundState::Unmasking, |_| true).await;
    let view = world.view(1).await;
    assert_eq!(view.state, RoundState::Completed);
    assert_eq!(view.groups[3].anomaly, Some(learning::robust::MAX_SCORE));
    assert_median(&world, 1, &groups[..3]).await;
}

#[tokio::test]
async fn garbage_that_was_dealt_costs_its_group_alone() {
    let mut world = world(12).await;
    world.up_to(1, RoundState::Sharing).await;
    let groups = groups(&world, 1).await;
    let [dealer, holder, _] = groups[0][..] else { panic!("three in a group") };
    let dealt = world.members[dealer].deal(&world.t).await;
    let mut body = dealt.body;
    let mut sealed: Vec<_> = body.sealed.as_slice().to_vec();
    sealed[0][7] ^= 1;
    body.sealed = sealed.into();
    let bent = Signed::sign(body, &world.members[dealer].signer).unwrap();
    assert_eq!(world.members[dealer].say(&world.t, Answer::KeyShares, &bent.encode()).await.status, 204);
    world.act(RoundState::Sharing, |at| at != dealer).await;
    let challenge = world.members[holder].challenge(&world.t).await;
    let path = route::evidence(Attempt { task: world.task, round: 1, attempt: 1 }, world.members[dealer].id);
    let proof = ShareKeys::decode(&world.t.get(&world.members[holder].who, &path).await.body).unwrap();
    let step = challenge.complain(&proof, &world.members[holder].signer).unwrap();
    let complaint = world.members[holder].keep(step).encode();
    assert_eq!(world.members[holder].say(&world.t, Answer::Complaint, &complaint).await.status, 204);
    world.act(RoundState::Collecting, |at| at != holder).await;
    assert_eq!(world.state(1).await, RoundState::Confirming);
    world.act(RoundState::Confirming, |at| !groups[0].contains(&at)).await;
    world.act(RoundState::Unmasking, |at| !groups[0].contains(&at)).await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    assert_median(&world, 1, &groups[1..]).await;
}

#[tokio::test]
async fn killed_between_any_two_writes_the_groups_sums_are_released_once() {
    let small = |spec: &mut Value| {
        groups_of_three(spec);
        spec["rounds"]["count"] = json!(1);
    };
    let counter = DieAt::never();
    let mut calm = World::on_disk(9, small).await;
    calm.outlive(Arc::clone(&counter)).await;
    let points: usize = counter.reached.lock().unwrap().values().sum();
    // A sample of them: the others do not differ regarding groups.
    for n in (0..points).skip(2).step_by(4) {
        let mut world = World::on_disk(9, small).await;
        let (digests, deaths) = world.outlive(DieAt::nth(n)).await;
        assert_eq!((digests.len(), deaths), (2, 1), "killed at point {n}");
        let groups = groups(&world, 1).await;
        assert_median(&world, 1, &groups).await;
    }
}
