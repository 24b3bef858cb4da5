//! Phases close when their requirements are met, and rounds fail with the right reason.

use std::collections::BTreeMap;
use std::time::Duration;

use federation::round::{AssignmentState, FailureReason, RoundState};
use task_spec::TaskSpec;

use crate::world::{DEADLINE, World};

fn four_with_over_selection(spec: &mut TaskSpec) {
    spec.selection.cohort = task_spec::Cohort::Count(4);
    spec.selection.over_selection = 0.5;
    spec.rounds.collect_min = Some(3);
    spec.rounds.select_min = Some(6);
}

async fn states(world: &World) -> BTreeMap<AssignmentState, usize> {
    let mut states = BTreeMap::new();
    for (_, state) in world.assignments(1).await {
        *states.entry(state).or_default() += 1;
    }
    states
}

#[tokio::test]
async fn too_few_participants() {
    let world = World::new(4).await;
    let engine = world.engine(1);
    engine.step_all().await.unwrap();
    world.check_in(&world.participants[..3]).await;
    world.clock.advance(DEADLINE - Duration::from_millis(1));
    assert_eq!(engine.step_all().await.unwrap(), 0);
    world.clock.advance(Duration::from_millis(1));
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::TooFewParticipants).await;
}

#[tokio::test]
async fn collection_closes_with_the_target_and_the_others_are_late() {
    let world = World::with(6, four_with_over_selection).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    assert_eq!(cohort.len(), 6);
    for participant in &cohort[..4] {
        assert!(world.report(*participant).await);
    }
    engine.step_all().await.unwrap();
    let row = world.round(1).await;
    assert_eq!((row.round.state, row.reported), (RoundState::Completed, 4));
    assert_eq!(states(&world).await, BTreeMap::from([(AssignmentState::Reported, 4), (AssignmentState::Late, 2)]));
    assert!(!world.report(cohort[4]).await, "a late input does not count any more");
}

#[tokio::test]
async fn collection_closes_when_nobody_is_left_to_wait_for() {
    let world = World::with(6, four_with_over_selection).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    for participant in &cohort[..3] {
        assert!(world.report(*participant).await);
    }
    world.abandon(cohort[3]).await;
    world.abandon(cohort[4]).await;
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Collecting);
    world.abandon(cohort[5]).await;
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
}

#[tokio::test]
async fn collection_closes_at_its_deadline_with_enough() {
    let world = World::with(6, four_with_over_selection).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    for participant in &cohort[..3] {
        assert!(world.report(*participant).await);
    }
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Collecting);
    world.clock.advance(DEADLINE);
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
}

#[tokio::test]
async fn too_few_inputs() {
    let world = World::with(6, four_with_over_selection).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    for participant in &cohort[..2] {
        assert!(world.report(*participant).await);
    }
    world.clock.advance(DEADLINE);
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::TooFewInputs).await;
    assert_eq!(states(&world).await, BTreeMap::from([(AssignmentState::Reported, 2), (AssignmentState::Released, 4)]));
}

#[tokio::test]
async fn quorum_lost_fails_at_once_without_waiting_for_the_deadline() {
    let world = World::with(6, four_with_over_selection).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    assert!(world.report(cohort[0]).await);
    for participant in &cohort[1..4] {
        world.abandon(*participant).await;
    }
    assert_eq!(engine.step_all().await.unwrap(), 0, "three can still report");
    world.abandon(cohort[4]).await;
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::QuorumLost).await;
}

#[tokio::test]
async fn history_tells_every_phase() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    engine.step_all().await.unwrap();
    world.clock.advance(Duration::from_secs(5));
    world.check_in_all().await;
    engine.step_all().await.unwrap();
    world.clock.advance(Duration::from_secs(7));
    world.report_all().await;
    engine.step_all().await.unwrap();
    let key = world.key(1);
    let summaries =
        world.store.read("test", |tx| Box::pin(async move { tx.round_summaries(key.task, &[(1, 1)]).await }));
    let history = summaries.await.unwrap().remove(0).history;
    let start = history[0].at;
    let told: Vec<_> = history.iter().map(|line| (line.state, line.at.since(start).as_secs(), line.count)).collect();
    assert_eq!(
        told,
        [
            (RoundState::Selecting, 0, 0),
            (RoundState::Collecting, 5, 3),
            (RoundState::Aggregating, 12, 3),
            (RoundState::Completed, 12, 3)
        ]
    );
}
