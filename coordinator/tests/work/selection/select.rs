//! Cohorts: drawn from enough eligible participants, repeatably.

use std::collections::BTreeSet;
use std::time::Duration;

use federation::cohort::CoarseLoss;
use federation::id::ParticipantId;
use federation::round::{AssignmentState, RoundState};
use federation::time::Clock as _;
use store::WakeEvent;
use task_spec::{Oort, PowerOfChoice};
use task_spec::{Strategy, TaskSpec};

use crate::world::World;

fn five_of_eight(spec: &mut TaskSpec) {
    spec.selection.cohort = task_spec::Cohort::Count(4);
    spec.selection.over_selection = 0.25;
    spec.rounds.select_min = Some(6);
}

#[tokio::test]
async fn nobody_is_drawn_before_enough_are_there() {
    let world = World::with(8, five_of_eight).await;
    let engine = world.engine(1);
    engine.step_all().await.unwrap();
    world.check_in(&world.participants[..5]).await;
    assert_eq!(engine.step_all().await.unwrap(), 0);
    world.check_in(&world.participants[5..6]).await;
    assert_eq!(engine.step_all().await.unwrap(), 1);
    let row = world.round(1).await;
    assert_eq!((row.round.state, row.round.cohort), (RoundState::Collecting, 5));
    assert_eq!(row.round.limits.collect.max, 4, "over-selection is not waited for");
    let cohort = world.assignments(1).await;
    assert_eq!(cohort.len(), 5);
    assert!(
        cohort
            .iter()
            .all(|(id, state)| { *state == AssignmentState::Assigned && world.participants[..6].contains(id) })
    );
}

#[tokio::test]
async fn a_drawn_participant_is_no_longer_checked_in_and_the_others_are() {
    let world = World::with(8, five_of_eight).await;
    let cohort: BTreeSet<_> = world.start_round(&world.engine(1)).await.into_iter().collect();
    let (task, now) = (world.task, world.clock.now());
    let left = world.store.read("test", |tx| Box::pin(async move { tx.candidates(task, now).await })).await.unwrap();
    let left: BTreeSet<_> = left.into_iter().map(|candidate| candidate.participant).collect();
    assert_eq!((cohort.len(), left.len()), (5, 3));
    assert!(cohort.is_disjoint(&left));
}

async fn drawn(task_seed: Option<u64>, engine_seed: u64) -> Vec<ParticipantId> {
    let world = World::with(8, |spec| {
        five_of_eight(spec);
        spec.selection.seed = task_seed;
    })
    .await;
    world.start_round(&world.engine(engine_seed)).await
}

#[tokio::test]
async fn a_seeded_task_draws_the_same_cohort_on_any_engine() {
    assert_eq!(drawn(Some(7), 1).await, drawn(Some(7), 2).await);
    let mut draws = BTreeSet::new();
    for seed in 0..8 {
        draws.insert(drawn(Some(seed), 1).await);
    }
    assert!(draws.len() > 3, "{draws:?}");
}

#[tokio::test]
async fn an_unseeded_task_draws_by_chance() {
    let mut draws = BTreeSet::new();
    for engine_seed in 0..8 {
        draws.insert(drawn(None, engine_seed).await);
    }
    assert!(draws.len() > 3, "{draws:?}");
}

#[tokio::test]
async fn a_second_attempt_draws_anew() {
    let world = World::with(8, |spec| {
        five_of_eight(spec);
        spec.selection.seed = Some(3);
    })
    .await;
    let engine = world.engine(1);
    let mut draws = BTreeSet::new();
    for _ in 0..8 {
        let cohort = world.start_round(&engine).await;
        for participant in &cohort {
            world.abandon(*participant).await;
        }
        draws.insert(cohort);
        engine.step_all().await.unwrap();
        world.clock.advance(Duration::from_secs(300));
    }
    assert!(draws.len() > 3, "{draws:?}");
}

#[tokio::test]
async fn whoever_does_not_meet_the_requirements_is_not_counted() {
    let world = World::with(4, |spec| spec.selection.require.min_examples = 11).await;
    let engine = world.engine(1);
    engine.step_all().await.unwrap();
    world.check_in_all().await;
    assert_eq!(engine.step_all().await.unwrap(), 0, "everybody has 10 examples");
}

#[tokio::test]
async fn a_participant_sits_out_as_long_as_the_task_says() {
    let world = World::with(4, |spec| {
        spec.selection.cohort = task_spec::Cohort::Count(2);
        spec.selection.require.min_gap_rounds = 1;
    })
    .await;
    let engine = world.engine(1);
    let first: BTreeSet<_> = world.start_round(&engine).await.into_iter().collect();
    world.report_all().await;
    let second: BTreeSet<_> = world.start_round(&engine).await.into_iter().collect();
    assert_eq!((first.len(), second.len()), (2, 2));
    assert!(first.is_disjoint(&second));
}

#[tokio::test]
async fn the_drawn_are_woken() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    engine.step_all().await.unwrap();
    world.check_in_all().await;
    let mut wakes = world.store.wake().subscribe();
    engine.step_all().await.unwrap();
    assert_eq!(wakes.next().await, Some(WakeEvent::Recorded), "an event of the draw");
    assert_eq!(wakes.next().await, Some(WakeEvent::Assigned(world.participants.clone().into())));
    assert_eq!(wakes.next().await, Some(WakeEvent::Round(world.key(1))));
}

/// Plays rounds by `strategy` in which all drawn participants report; returns the draws, as indices of participants.
async fn played(strategy: Strategy, losses: [u8; 6], rounds: u32) -> Vec<BTreeSet<usize>> {
    let world = World::with(6, |spec| {
        spec.selection.cohort = task_spec::Cohort::Count(2);
        spec.selection.strategy = strategy;
        spec.selection.seed = Some(3);
        (spec.rounds.count, spec.rounds.select_min) = (rounds, Some(6));
    })
    .await;
    let engine = world.engine(1);
    let mut cohorts = Vec::new();
    for number in 1..=rounds {
        engine.step_all().await.unwrap();
        let told = losses.map(|level| CoarseLoss::try_from(level).ok());
        world.check_in_telling(&world.participants, &told).await;
        engine.step_all().await.unwrap();
        let drawn = world.assignments(number).await;
        let position = |id: &ParticipantId| world.participants.iter().position(|one| one == id).unwrap();
        cohorts.push(drawn.iter().map(|(id, _)| position(id)).collect());
        for (id, _) in &drawn {
            assert!(world.report(*id).await);
        }
        engine.step_all().await.unwrap();
    }
    cohorts
}

#[tokio::test]
async fn a_round_robin_takes_everybody_in_turn() {
    let cohorts = played(Strategy::RoundRobin, [0; 6], 6).await;
    for cycle in cohorts.chunks(3) {
        assert_eq!(cycle.iter().flatten().collect::<BTreeSet<_>>().len(), 6, "{cohorts:?}");
    }
}

#[tokio::test]
async fn the_losses_that_were_told_decide_where_the_strategy_follows_them() {
    let power = Strategy::PowerOfChoice(PowerOfChoice { candidates: 6 });
    let cohorts = played(power, [9, 20, 3, 25, 1, 0], 3).await;
    assert!(cohorts.iter().all(|cohort| *cohort == BTreeSet::from([1, 3])), "{cohorts:?}");
    let greedy = Oort { exploration: 0.0, exploration_min: 0.0, cutoff: 1.0, clip_quantile: 1.0, ..Oort::default() };
    let cohorts = played(Strategy::Oort(greedy), [9, 20, 3, 25, 1, 0], 1).await;
    assert_eq!(cohorts, [BTreeSet::from([1, 3])]);
}
