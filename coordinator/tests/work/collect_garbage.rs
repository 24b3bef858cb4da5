//! Garbage collection removes only garbage.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use coordinator::work::StepError;
use federation::id::{Digest, SignInId, TokenId};
use federation::model_version::ModelVersion;
use federation::time::{Clock as _, MockClock, Timestamp};
use store::BlobStore as _;
use store::entity::model_server::ModelServer;
use store::entity::sign_in::{Holder, SignIn};
use store::entity::token::{OperatorToken, TaskScope};
use task_spec::Retain;
use uuid::Uuid;

use crate::world::{DieAt, LEASE_TTL, START, World};

/// Publishes a version with this blob.
async fn name(world: &World, sha256: Digest) -> Result<(), store::StoreError> {
    let version = &ModelVersion {
        task: world.task,
        version: 1,
        sha256,
        bytes: 1,
        round: Some(1),
        parent: Some(0),
        clip: None,
        optimizer_state: None,
        created_at: Timestamp(0),
    };
    world.store.transact("name", |tx| Box::pin(async move { tx.insert_model_version(version).await })).await
}

const GRACE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn after_a_task_its_inputs_and_partial_sums_are_gone_and_its_models_are_not() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    for _ in 0..3 {
        world.run_round(&engine).await;
    }
    let before = world.blobs.all().await;
    world.clock.advance(GRACE + Duration::from_millis(1));
    engine.collect_garbage().await.unwrap();
    let left = world.blobs.all().await;
    let models: HashSet<_> = world.digests().await.into_iter().collect();
    assert!(left.is_superset(&models));
    for number in 1..=3 {
        for participant in &world.participants {
            let input = world.blobs.put_bytes(world.input(*participant, number)).await.unwrap();
            assert!(before.contains(&input) && !left.contains(&input), "round {number}, {participant}");
        }
    }
    let released = 3;
    assert!(left.len() <= models.len() + released, "{left:?}");
}

#[tokio::test]
async fn of_versions_that_are_not_retained_the_row_stays_and_the_blob_goes() {
    let world = World::with(3, |spec| {
        spec.rounds.count = 4;
        spec.retain = Some(Retain { last: 2 });
    })
    .await;
    let (engine, task) = (world.engine(1), world.task);
    for number in 1..=3 {
        world.run_round(&engine).await;
        if number == 1 {
            assert!(
                world.store.transact("test", |tx| Box::pin(tx.pin_version(task, 1, true, Timestamp(1)))).await.unwrap()
            );
        }
    }
    // The open round starts from version 3; older ones are no longer needed.
    world.start_round(&engine).await;
    world.clock.advance(GRACE + Duration::from_millis(1));
    engine.collect_garbage().await.unwrap();
    let versions = world.versions().await;
    let mut there = Vec::new();
    for version in &versions {
        there.extend(world.blobs.len(version.sha256).await.unwrap().map(|_| version.version));
    }
    assert_eq!((versions.len(), there), (4, vec![1, 2, 3]), "version 0 goes, version 1 is pinned");
    world.report_all().await;
    engine.step_all().await.unwrap();
    assert_eq!(world.versions().await.len(), 5);
}

#[tokio::test]
async fn a_sign_in_goes_once_it_has_expired() {
    let world = World::new(1).await;
    let engine = world.engine(1);
    let token = &OperatorToken {
        id: TokenId(Uuid::from_u128(1)),
        secret_sha256: Digest([1; 32]),
        name: "ann".to_owned(),
        role: "viewer".to_owned(),
        created_at: START,
        expires_at: None,
        revoked_at: None,
        tasks: TaskScope::All,
    };
    let sign_in = &SignIn {
        id: SignInId(Uuid::from_u128(2)),
        secret_sha256: Digest([2; 32]),
        holder: Holder::Token(token.id),
        created_at: START,
        expires_at: START.plus(Duration::from_secs(60)),
        ended_at: None,
    };
    world.store.transact("test", |tx| Box::pin(async move { tx.insert_operator_token(token).await })).await.unwrap();
    // A row can be stored only once: again only after its removal.
    let is_new = async || {
        let stored = world.store.transact("test", |tx| Box::pin(async move { tx.insert_sign_in(sign_in, 9).await }));
        stored.await.is_ok()
    };
    assert!(is_new().await);
    world.clock.advance(Duration::from_millis(59_999));
    engine.collect_garbage().await.unwrap();
    assert!(!is_new().await, "it still counts");
    world.clock.advance(Duration::from_millis(1));
    engine.collect_garbage().await.unwrap();
    assert!(is_new().await);
}

#[tokio::test]
async fn what_a_server_of_models_said_goes_once_it_has_expired() {
    let world = World::new(1).await;
    let engine = world.engine(1);
    let (task, expires_at) = (world.task, START.plus(Duration::from_secs(60)));
    let server = &ModelServer { task, name: "icu".to_owned(), report: "{}".to_owned(), told_at: START, expires_at };
    world.store.transact("test", |tx| Box::pin(async move { tx.put_model_server(server, 9).await })).await.unwrap();
    // Read at a time before its expiry, so only its row matters.
    let rows = async || {
        let listed =
            world.store.read("test", |tx| Box::pin(async move { tx.model_servers(task, None, START, 9).await }));
        listed.await.unwrap().len()
    };
    world.clock.advance(Duration::from_millis(59_999));
    engine.collect_garbage().await.unwrap();
    assert_eq!(rows().await, 1);
    world.clock.advance(Duration::from_millis(1));
    engine.collect_garbage().await.unwrap();
    assert_eq!(rows().await, 0);
}

#[tokio::test]
async fn a_young_blob_without_a_row_is_spared_and_an_old_one_is_not() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    let blob = world.blobs.put_bytes("about to get its row".into()).await.unwrap();
    world.clock.advance(GRACE - Duration::from_millis(1));
    assert_eq!(engine.collect_garbage().await.unwrap().blobs, 0);
    // Storing it again makes it young.
    world.blobs.put_bytes("about to get its row".into()).await.unwrap();
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(engine.collect_garbage().await.unwrap().blobs, 0);
    world.clock.advance(GRACE - Duration::from_millis(2));
    assert_eq!(engine.collect_garbage().await.unwrap().blobs, 0);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(engine.collect_garbage().await.unwrap().blobs, 1);
    assert!(world.blobs.len(blob).await.unwrap().is_none());
}

/// As with rows dated by the database's clock, and a blob store with its own.
#[tokio::test]
async fn blobs_have_their_age_by_the_clock_that_dates_them() {
    let world = World::new(3).await;
    world.blobs.put_bytes("young".into()).await.unwrap();
    for ahead in [Duration::from_secs(3600), Duration::ZERO] {
        let clock = Arc::new(MockClock::new(world.clock.now().plus(ahead)));
        let engine = world.engine_by(clock);
        assert_eq!(engine.collect_garbage().await.unwrap().blobs, 0, "rows are {ahead:?} ahead");
        world.clock.advance(GRACE);
        assert_eq!(engine.collect_garbage().await.unwrap().blobs, 1, "rows are {ahead:?} ahead");
        world.blobs.put_bytes("young".into()).await.unwrap();
    }
}

#[tokio::test]
async fn what_an_open_round_needs_is_kept_however_old() {
    let world = World::new(4).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    for participant in &cohort[..3] {
        assert!(world.report(*participant).await);
        engine.step_all().await.unwrap();
    }
    world.clock.advance(Duration::from_secs(300));
    let collected = engine.collect_garbage().await.unwrap();
    assert_eq!(collected.blobs, 2, "the two inputs that the partial sum holds");
    world.report_all().await;
    engine.step_all().await.unwrap();
    assert_eq!(world.versions().await.len(), 2);
}

#[tokio::test]
async fn one_run_is_bounded() -> Result<(), StepError> {
    let mut world = World::new(3).await;
    world.config.garbage_batch = 2;
    let engine = world.engine(1);
    for text in ["a", "b", "c"] {
        world.blobs.put_bytes(text.into()).await.unwrap();
    }
    world.clock.advance(GRACE * 2);
    assert_eq!(engine.collect_garbage().await?.blobs, 2);
    assert_eq!(engine.collect_garbage().await?.blobs, 1);
    assert_eq!(engine.collect_garbage().await?.blobs, 0);
    Ok(())
}

#[tokio::test]
async fn expired_check_ins_go() {
    let world = World::new(3).await;
    let engine = world.engine(1);
    world.check_in(&world.participants[..2]).await;
    assert_eq!(engine.collect_garbage().await.unwrap().check_ins, 0);
    world.clock.advance(Duration::from_secs(3600));
    assert_eq!(engine.collect_garbage().await.unwrap().check_ins, 2);
}

#[tokio::test]
async fn one_worker_removes_blobs_at_a_time_and_another_takes_over_where_it_died() {
    let world = World::new(3).await;
    for text in ["a", "b", "c"] {
        world.blobs.put_bytes(text.into()).await.unwrap();
    }
    world.clock.advance(GRACE * 2);
    let died = world.engine_with(1, DieAt::named("collect_garbage: before blobs")).collect_garbage().await;
    assert!(matches!(died, Err(StepError::Stopped(_))), "{died:?}");
    let engine = world.engine(2);
    assert_eq!(engine.collect_garbage().await.unwrap().blobs, 0, "the first one may still be at it");
    // Doomed blobs cannot be referenced.
    let doomed = world.blobs.put_bytes("a".into()).await.unwrap();
    let named = name(&world, doomed).await;
    assert!(matches!(named, Err(store::StoreError::BeingRemoved(blob)) if blob == doomed), "{named:?}");
    world.clock.advance(LEASE_TTL);
    assert_eq!(engine.collect_garbage().await.unwrap().blobs, 2, "one was stored again");
    name(&world, doomed).await.unwrap();
    assert!(world.blobs.len(doomed).await.unwrap().is_some());
}
