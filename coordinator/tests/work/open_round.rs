//! Rounds open at the right time.

use std::time::Duration;

use federation::round::{FailureReason, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Clock as _;

use crate::world::{DEADLINE, START, World};

#[tokio::test]
async fn an_active_task_gets_its_first_round_with_the_limits_of_its_specification() {
    let world = World::new(4).await;
    world.engine(1).step_all().await.unwrap();
    let row = world.round(1).await;
    assert_eq!((row.round.state, row.round.key.attempt, row.round.base_version), (RoundState::Selecting, 1, 0));
    assert_eq!(row.round.limits, federation::round::RoundLimits::of(&world.spec));
    assert_eq!((row.round.state_since, row.round.opened_at), (START, START));
}

#[tokio::test]
async fn stepping_again_changes_nothing() {
    let world = World::new(4).await;
    let engine = world.engine(1);
    assert_eq!(engine.step_all().await.unwrap(), 1);
    let before = world.round(1).await;
    assert_eq!(engine.step_all().await.unwrap(), 0);
    assert_eq!(world.round(1).await, before);
    assert_eq!(engine.next_deadline().await.unwrap(), Some(START.plus(DEADLINE)));
}

#[tokio::test]
async fn the_next_round_opens_in_the_same_pass_from_the_new_version() {
    let world = World::new(3).await;
    world.run_round(&world.engine(1)).await;
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
    let next = world.round(2).await.round;
    assert_eq!((next.state, next.key.attempt, next.base_version), (RoundState::Selecting, 1, 1));
}

#[tokio::test]
async fn a_failed_round_is_tried_again_later_and_later_up_to_a_bound() {
    let mut world = World::new(4).await;
    world.config.retry_max = Duration::from_secs(5);
    let engine = world.engine(1);
    for (attempt, delay) in [(1, 1), (2, 2), (3, 4), (4, 5), (5, 5)] {
        engine.step_all().await.unwrap();
        assert_eq!(world.round(1).await.round.key.attempt, attempt);
        world.clock.advance(DEADLINE);
        engine.step_all().await.unwrap();
        world.assert_failed(1, FailureReason::TooFewParticipants).await;
        let delay = Duration::from_secs(delay);
        assert_eq!(engine.next_deadline().await.unwrap(), Some(world.clock.now().plus(delay)));
        world.clock.advance(delay - Duration::from_millis(1));
        assert_eq!(engine.step_all().await.unwrap(), 0, "attempt {attempt} waits");
        world.clock.advance(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn the_pace_of_attempts_survives_a_restart() {
    let world = World::new(4).await;
    world.engine(1).step_all().await.unwrap();
    world.clock.advance(DEADLINE);
    world.engine(2).step_all().await.unwrap();
    world.assert_failed(1, FailureReason::TooFewParticipants).await;
    world.clock.advance(Duration::from_millis(999));
    assert_eq!(world.engine(3).step_all().await.unwrap(), 0);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(world.engine(4).step_all().await.unwrap(), 1);
}

#[tokio::test]
async fn too_many_failed_attempts_pause_the_task_and_resuming_grants_as_many_again() {
    let world = World::with(4, |spec| spec.rounds.max_attempts = 2).await;
    let engine = world.engine(1);
    for attempt in 1..=4 {
        engine.step_all().await.unwrap();
        assert_eq!(world.round(1).await.round.key.attempt, attempt);
        world.clock.advance(DEADLINE);
        engine.step_all().await.unwrap();
        let paused = attempt % 2 == 0;
        let status = if paused { TaskStatus::Paused } else { TaskStatus::Active };
        assert_eq!(world.task_row().await.status, status, "after attempt {attempt}");
        world.clock.advance(Duration::from_secs(300));
        if paused {
            assert_eq!(engine.step_all().await.unwrap(), 0);
            world.set_status(TaskStatus::Paused, TaskStatus::Active).await;
        }
    }
    let task = world.task;
    let history = world.store.read("test", |tx| Box::pin(async move { tx.task_history(task).await })).await.unwrap();
    assert_eq!(
        history[1].detail.as_deref(),
        Some("attempt 2 at round 1 failed (too_few_participants): paused after 2 failed attempts in a row")
    );
}

#[tokio::test]
async fn a_paused_task_opens_no_round_but_finishes_the_present_one() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    world.set_status(TaskStatus::Active, TaskStatus::Paused).await;
    world.report_all().await;
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
    assert!(world.present().await.is_none(), "no second round");
    assert_eq!(engine.next_deadline().await.unwrap(), None);

    world.set_status(TaskStatus::Paused, TaskStatus::Active).await;
    engine.step_all().await.unwrap();
    assert_eq!(world.round(2).await.round.state, RoundState::Selecting);
}

#[tokio::test]
async fn a_cancelled_task_opens_no_round() {
    let world = World::new(3).await;
    world.set_status(TaskStatus::Active, TaskStatus::Cancelled).await;
    assert_eq!(world.engine(1).step_all().await.unwrap(), 0);
    assert!(world.present().await.is_none());
}

#[tokio::test]
async fn no_round_opens_from_a_damaged_model_and_the_task_says_so() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    world.report_all().await;
    let (paused, active) = (TaskStatus::Paused, TaskStatus::Active);
    // Stopped before the next round opens.
    world.set_status(active, paused).await;
    engine.step_all().await.unwrap();
    let newest = world.versions().await.pop().unwrap();
    assert_eq!(newest.version, 1);
    world.blobs.damage(newest.sha256);
    world.set_status(paused, active).await;
    engine.step_all().await.unwrap();
    assert_eq!(world.task_row().await.status, paused);
    assert!(world.present().await.is_none_or(|round| round.key.round == 1), "no round opened");
    let task = world.task;
    let history: Result<_, store::StoreError> =
        world.store.read("test", |tx| Box::pin(async move { tx.task_history(task).await })).await;
    let why = history.unwrap().pop().unwrap().detail.unwrap();
    assert!(why.contains("model version 1 is damaged") && why.contains(&newest.sha256.to_string()), "{why}");
    world.blobs.mend(newest.sha256);
    world.set_status(paused, active).await;
    engine.step_all().await.unwrap();
    assert_eq!(world.present().await.unwrap().key.round, 2);
}
