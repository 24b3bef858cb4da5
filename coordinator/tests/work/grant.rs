//! Asynchronous rounds without secure aggregation, from rows only: assigned trainings, accepted updates, crashes.

use std::sync::Arc;
use std::time::Duration;

use coordinator::work::StepError;
use federation::id::ParticipantId;
use federation::round::RoundState;
use federation::task_status::TaskStatus;
use federation::time::Clock as _;
use federation::training::{Claim, Training};
use store::entity::check_in::CheckIn;
use store::entity::training::Buffered;

use crate::world::{DieAt, LEASE_TTL, World};

/// Six participants, four training at a time; three updates make a round.
async fn buffered() -> World {
    World::with(6, |spec| {
        let schedule = serde_json::json!({ "mode": "buffered", "concurrency": 4, "max_staleness": 1 });
        spec.schedule = serde_json::from_value(schedule).unwrap();
        spec.selection.cohort = task_spec::Cohort::Count(3);
    })
    .await
}

async fn trainings(world: &World) -> Vec<(Training, Option<Claim>)> {
    let (task, now) = (world.task, world.clock.now());
    world.store.read("test", |tx| Box::pin(async move { tx.open_trainings(task, now).await })).await.unwrap()
}

async fn finish(world: &World, trainings: &[Training]) {
    finish_with(world, trainings, 10).await;
}

async fn finish_with(world: &World, trainings: &[Training], examples: u64) {
    let now = world.clock.now();
    let rows: Vec<_> = trainings
        .iter()
        .map(|training| CheckIn {
            training: Some(Claim { serial: training.serial, is_ready: true }),
            ..CheckIn::new(training.participant, world.task, examples, now, now.plus(Duration::from_secs(3600)))
        })
        .collect();
    let rows = &rows;
    let written = world.store.transact("test", |tx| Box::pin(async move { tx.upsert_check_ins(rows).await })).await;
    written.unwrap();
}

async fn buffer(world: &World, number: u32) -> Vec<Buffered> {
    let key = world.key(number);
    world.store.read("test", |tx| Box::pin(async move { tx.all_buffered(key.attempt(1)).await })).await.unwrap()
}

fn of(trainings: &[(Training, Option<Claim>)]) -> Vec<Training> {
    trainings.iter().map(|(training, _)| *training).collect()
}

#[tokio::test]
async fn as_many_are_told_to_train_as_the_task_allows_and_from_the_newest_version() {
    let world = buffered().await;
    let engine = world.engine(1);
    world.check_in_all().await;
    assert_eq!(engine.step_all().await.unwrap(), 1, "one step for all of them");
    let told = of(&trainings(&world).await);
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|training| (training.serial, training.base_version) == (1, 0)));
    assert!(world.present().await.is_none(), "no round opens for nobody");
    assert_eq!(engine.step_all().await.unwrap(), 0);
    let lapse = told[0].expires_at;
    assert_eq!(engine.next_deadline().await.unwrap(), Some(lapse), "then their places are free");
    world.clock.advance(Duration::from_secs(600));
    assert_eq!(engine.step_all().await.unwrap(), 1);
    let serials: Vec<_> = of(&trainings(&world).await).iter().map(|training| training.serial).collect();
    assert_eq!(serials.len(), 6, "the two that waited, and who is counted on no more");
    world.set_status(TaskStatus::Active, TaskStatus::Paused).await;
    world.clock.advance(Duration::from_secs(600));
    assert_eq!(engine.step_all().await.unwrap(), 0, "a task that rests has nobody train");
}

#[tokio::test]
async fn the_oldest_updates_are_taken_first_and_each_once() {
    let world = buffered().await;
    let engine = world.engine(1);
    world.check_in_all().await;
    engine.step_all().await.unwrap();
    let told = of(&trainings(&world).await);
    finish(&world, &told[..3]).await;
    engine.step_all().await.unwrap();
    assert_eq!(world.present().await.unwrap().state, RoundState::Collecting, "nothing is trained in the round");
    let drawn: Vec<ParticipantId> = buffer(&world, 1).await.iter().map(|update| update.participant).collect();
    let mut expected: Vec<_> = told[..3].iter().map(|training| training.participant).collect();
    expected.sort_unstable();
    assert_eq!(drawn, expected);
    world.report_all().await;
    engine.step_all().await.unwrap();
    assert_eq!(world.round(1).await.round.state, RoundState::Completed);
    assert!(world.present().await.is_none(), "the next buffer is empty");

    // The fourth, and the two that took slots of drawn ones, are one version behind; one more trains on the newest. All are ready at once.
    world.check_in(&drawn).await;
    engine.step_all().await.unwrap();
    let open = of(&trainings(&world).await);
    let versions = |version| open.iter().filter(|training| training.base_version == version).count();
    assert_eq!((versions(0), versions(1)), (3, 1), "{open:?}");
    finish(&world, &open).await;
    engine.step_all().await.unwrap();
    let updates = buffer(&world, 2).await;
    assert!(updates.len() == 3 && updates.iter().all(|update| update.base_version == 0), "{updates:?}");
}

#[tokio::test]
async fn an_update_that_no_round_may_take_keeps_its_place_no_longer_than_a_training() {
    let world = World::with(6, |spec| {
        let schedule = serde_json::json!({ "mode": "buffered", "concurrency": 3 });
        spec.schedule = serde_json::from_value(schedule).unwrap();
        spec.selection.cohort = task_spec::Cohort::Count(3);
        spec.selection.require.min_examples = 10;
    })
    .await;
    let engine = world.engine(1);
    world.check_in_all().await;
    engine.step_all().await.unwrap();
    let told = of(&trainings(&world).await);
    assert_eq!(told.len(), 3);
    // They now have fewer examples than the task requires.
    finish_with(&world, &told, 5).await;
    engine.step_all().await.unwrap();
    assert_eq!(world.present().await.unwrap().state, RoundState::Selecting, "nobody can be drawn");
    assert_eq!(of(&trainings(&world).await).len(), 3, "all places are taken");
    world.clock.advance(Duration::from_secs(600));
    let waits = |who: &&ParticipantId| told.iter().all(|training| training.participant != **who);
    let mut others: Vec<_> = world.participants.iter().filter(waits).copied().collect();
    others.sort_unstable();
    world.check_in(&others).await;
    // The round fails, and is retried.
    let settle = async || {
        for _ in 0..4 {
            engine.step_all().await.unwrap();
            world.clock.advance(Duration::from_secs(1));
        }
    };
    settle().await;
    let open = of(&trainings(&world).await);
    assert_eq!(open.len(), 6, "the others train: {open:?}");
    let fresh: Vec<_> = open.into_iter().filter(|training| others.contains(&training.participant)).collect();
    finish(&world, &fresh).await;
    settle().await;
    let mut drawn = world.pending().await;
    drawn.sort_unstable();
    assert_eq!(drawn, others);
}

/// Independent of the wait: otherwise a period longer than a training would make all participants train.
#[tokio::test]
async fn an_update_that_waits_for_its_round_keeps_its_place() {
    let world = buffered().await;
    let engine = world.engine(1);
    world.check_in_all().await;
    engine.step_all().await.unwrap();
    let told = of(&trainings(&world).await);
    finish(&world, &told[..2]).await;
    let holds = |who: &ParticipantId| told[..2].iter().any(|training| training.participant == *who);
    let others: Vec<_> = world.participants.iter().filter(|who| !holds(who)).copied().collect();
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(600));
        world.check_in(&others).await;
        engine.step_all().await.unwrap();
        let now = world.clock.now();
        let open = of(&trainings(&world).await);
        let training = open.iter().filter(|training| now < training.expires_at && !holds(&training.participant));
        assert_eq!(training.count(), 2, "{open:?}");
    }
}

#[tokio::test]
async fn a_worker_that_dies_at_any_line_costs_a_step_and_nothing_else() {
    for nth in 0.. {
        let world = buffered().await;
        world.check_in_all().await;
        let die = DieAt::nth(nth);
        let (mut deaths, mut told) = (0, Vec::new());
        while world.task_row().await.rounds_completed == 0 {
            match world.engine_with(1, Arc::clone(&die) as _).step_all().await {
                Ok(_) => {}
                Err(StepError::Stopped(_)) => {
                    deaths += 1;
                    world.clock.advance(LEASE_TTL);
                    continue;
                }
                Err(error) => panic!("{nth}: {error}"),
            }
            if told.is_empty() {
                told = of(&trainings(&world).await);
                assert_eq!(told.len(), 4, "{nth}: no more than may train at a time");
                finish(&world, &told[..3]).await;
            } else {
                world.report_all().await;
            }
        }
        assert_eq!((buffer(&world, 1).await.len(), world.versions().await.len()), (3, 2), "{nth}");
        let open = of(&trainings(&world).await);
        let over = |training: &Training| !open.iter().any(|open| open.participant == training.participant);
        assert!(told[..3].iter().all(over), "{nth}: an update could be taken twice");
        if deaths == 0 {
            assert!(nth > 8, "it died nowhere");
            return;
        }
    }
}
