//! Data deleted after the release of a sum: data that could remove its noise, the exact sum, and the drawn participants.

use std::sync::{Arc, Mutex};

use coordinator::seal::OF_A_RELEASE;
use coordinator::work::{Engine, FailPoint, StepError};
use federation::id::RoundKey;
use federation::round::{FailureReason, RoundState};
use federation::time::MockClock;
use serde_json::json;
use store::StoreError;
use store::entity::session_message::MessageKind;

use super::released::run_drawn;
use crate::support::die_at::DieAt;
use crate::support::private::{in_the_clear, mechanism};
use crate::support::secure::{LEASE, World};

const SEED: &str = "noise";

async fn secret(world: &World, number: u32, attempt: u32, purpose: &'static str) -> Option<Vec<u8>> {
    let key = RoundKey { task: world.task, number };
    world
        .t
        .inner
        .store
        .read("test", |tx| Box::pin(async move { tx.secret(key.attempt(attempt), purpose).await }))
        .await
        .unwrap()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// The file containing these bytes, including the write-ahead log.
fn lies_somewhere(world: &World, bytes: &[u8]) -> Option<std::path::PathBuf> {
    world.files().into_iter().find(|(_, file)| contains(file, bytes)).map(|(path, _)| path)
}

/// Lets a worker die at this point, and its lease expire.
async fn die_at(world: &World, point: &'static str) {
    let died = world.engine(DieAt::named(point), 1).step_all().await;
    assert!(matches!(died, Err(StepError::Stopped(_))), "{point}: {died:?}");
    world.t.advance(LEASE);
}

async fn die_after_the_seed(world: &World) {
    die_at(world, "release_sum: after the seed").await;
}

/// The files of release keys.
fn keys(world: &World) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let is_key = |path: &std::path::Path| path.parent().is_some_and(|folder| folder.ends_with("seal.releases"));
    world.files().into_iter().filter(|(path, _)| is_key(path)).collect()
}

/// A world whose only round is ready for its release.
async fn up_to_its_release() -> World {
    let mut world = World::on_disk(4, |spec| {
        mechanism(spec, "central_gaussian");
        spec["rounds"]["count"] = json!(1);
    })
    .await;
    world.up_to(1, RoundState::Unmasking).await;
    for member in &mut world.members {
        member.unmask(&world.t).await;
    }
    world
}

#[tokio::test]
async fn neither_seed_nor_exact_sum_is_left_of_a_release() {
    let mut world = up_to_its_release().await;
    // Dies after storing only the seed.
    die_after_the_seed(&world).await;
    let sealed = secret(&world, 1, 1, SEED).await.expect("the seed is kept until the sum is");
    assert!(sealed.len() > 32 + 12 && sealed.starts_with(OF_A_RELEASE), "sealed");
    let key = RoundKey { task: world.task, number: 1 };
    let read = world
        .t
        .inner
        .store
        .read("test", |tx| Box::pin(async move { tx.messages(key.attempt(1), MessageKind::Unmasking).await }));
    let answers: Vec<_> = read.await.unwrap().into_iter().filter_map(|answer| answer.message).collect();
    assert_eq!(answers.len(), 4);
    let all_sealed: Vec<&[u8]> = answers.iter().map(|answer| &answer[24..48]).chain([&sealed[24..48]]).collect();
    world.restart().await;
    for sealed in &all_sealed {
        assert!(lies_somewhere(&world, sealed).is_some(), "the search finds what is there");
    }
    let kept = keys(&world);
    assert!(!kept.is_empty() && kept.iter().all(|(_, key)| key.len() == 32), "{kept:?}");
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    assert_eq!(secret(&world, 1, 1, SEED).await, None);
    let exact = {
        let mut sum = vec![0; world.model.codec.len()];
        for member in &world.members {
            secure_agg::modular::add_assign(&mut sum, &member.plain);
        }
        secure_agg::modular::reduce(&mut sum, world.model.modulus);
        sum
    };
    let released = world.released(1).await.unwrap();
    for is_restarted in [false, true] {
        if is_restarted {
            world.restart().await;
        }
        let traces =
            all_sealed.iter().copied().chain(kept.iter().map(|(_, key)| key.as_slice())).chain([&OF_A_RELEASE[..]]);
        for trace in traces {
            assert_eq!(lies_somewhere(&world, trace), None, "restarted: {is_restarted}");
        }
        assert_eq!(keys(&world), []);
    }
    for (at, is_there) in [(&exact, false), (&released, true)] {
        let packed = secure_agg::packing::pack(at, world.model.modulus);
        let words: Vec<u8> = at[100..106].iter().flat_map(|word| word.to_le_bytes()).collect();
        let start = packed.len() / 2;
        let found = lies_somewhere(&world, &words).or_else(|| lies_somewhere(&world, &packed[start..start + 24]));
        assert_eq!(found.is_some(), is_there, "{found:?}");
    }
}

#[tokio::test]
async fn keys_go_before_a_version_comes_whatever_dies_in_between() {
    let mut world = up_to_its_release().await;
    die_at(&world, "release_sum: after the rows").await;
    assert!(!keys(&world).is_empty(), "it died before it could destroy them");
    world.restart().await;
    assert!(!keys(&world).is_empty());
    die_at(&world, "publish_version: after the keys").await;
    assert_eq!(keys(&world), []);
    die_at(&world, "publish_version: after the log").await;
    // The worker's last write was before it emptied the log.
    assert_eq!(lies_somewhere(&world, OF_A_RELEASE), None);
    assert_eq!(world.digests().await.len(), 1, "nothing is published before");
    world.t.work().await;
    assert_eq!((world.state(1).await, world.digests().await.len()), (RoundState::Completed, 2));
}

#[tokio::test]
async fn whoever_reads_an_earlier_state_holds_a_version_up_until_it_is_done() {
    let world = up_to_its_release().await;
    let path = world.folder.as_ref().unwrap().path().join("rows.db");
    let reader = rusqlite::Connection::open(path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let tasks: u32 = reader.query_row("SELECT count(*) FROM task", [], |row| row.get(0)).unwrap();
    assert_eq!(tasks, 1);
    for _ in 0..2 {
        let held = world.t.inner.engine.step_all().await;
        assert!(matches!(held, Err(StepError::Store(StoreError::Busy))), "{held:?}");
        assert_eq!((world.state(1).await, world.digests().await.len()), (RoundState::Aggregating, 1));
    }
    reader.execute_batch("COMMIT").unwrap();
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    assert_eq!(lies_somewhere(&world, OF_A_RELEASE), None);
}

#[tokio::test]
async fn a_release_whose_key_is_lost_fails_and_is_charged() {
    let mut world = up_to_its_release().await;
    die_after_the_seed(&world).await;
    for (path, _) in keys(&world) {
        std::fs::remove_file(path).unwrap();
    }
    world.restart().await;
    world.t.work().await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.failure), (RoundState::Failed, Some(FailureReason::InputLost)));
    assert_eq!(world.rows().await.iter().map(|row| row.published).collect::<Vec<_>>(), [false]);
}

#[tokio::test]
async fn keys_that_nothing_needs_are_garbage() {
    let mut world = up_to_its_release().await;
    die_after_the_seed(&world).await;
    let kept = keys(&world);
    assert_eq!(world.t.inner.engine.collect_garbage().await.unwrap().release_keys, 0, "the attempt goes on");
    assert_eq!(keys(&world), kept);
    die_at(&world, "release_sum: after the rows").await;
    world.restart().await;
    assert_eq!(world.t.inner.engine.collect_garbage().await.unwrap().release_keys, kept.len());
    assert_eq!(keys(&world), []);
    assert_eq!(lies_somewhere(&world, OF_A_RELEASE), None);
    assert_eq!(world.digests().await.len(), 1);
}

/// Nine participants, three of them in each of three rounds, with noise correlated over rounds.
async fn correlated(name: &str) -> World {
    World::on_disk(9, |spec| {
        in_the_clear(spec, name);
        spec["privacy"]["participations"] = if name == "tree" { json!(null) } else { json!(1) };
        spec["rounds"]["count"] = json!(3);
        spec["selection"] = json!({ "cohort": { "count": 3 }, "require": { "max_participations": 1 } });
    })
    .await
}

#[tokio::test]
async fn seeds_of_correlated_noise_are_kept_while_their_task_is_not_over() {
    let cases = [
        ("tree", ["tree noise 1", "tree noise 2", "tree noise 3"]),
        ("banded_matrix", ["banded noise 1", "banded noise 2", "banded noise 3"]),
    ];
    for ((name, places), ends) in cases.into_iter().flat_map(|case| [(case, true), (case, false)]) {
        let mut world = correlated(name).await;
        let mut kept = Vec::<Vec<u8>>::new();
        for number in 1..=2 {
            run_drawn(&mut world, number).await;
            let mut seeds = Vec::new();
            for place in places {
                seeds.extend(secret(&world, 0, 0, place).await);
            }
            assert_eq!(seeds.len(), number as usize, "one of each place that was needed");
            assert_eq!(seeds[..kept.len()], kept, "the next release takes noise back");
            assert!(seeds.iter().all(|seed| lies_somewhere(&world, &seed[24..48]).is_some()));
            kept = seeds;
        }
        let key = keys(&world);
        assert_eq!(key.len(), 1, "that of the task: those of its releases are gone");
        if ends {
            run_drawn(&mut world, 3).await;
        } else {
            world.t.post(&world.t.operator, "/v1/tasks/secure/cancel", &json!({})).await;
        }
        for place in places {
            assert_eq!(secret(&world, 0, 0, place).await, None);
        }
        assert_eq!(keys(&world), [], "ends by itself: {ends}");
        assert_eq!(lies_somewhere(&world, &key[0].1), None);
    }
}

#[tokio::test]
async fn one_seed_of_all_places_is_not_mixed_with_seeds_of_each() {
    for (name, purpose) in [("tree", "tree noise"), ("banded_matrix", "banded noise")] {
        let mut world = correlated(name).await;
        run_drawn(&mut world, 1).await;
        let key = RoundKey { task: world.task, number: 0 };
        let put = world.t.inner.store.transact("test", |tx| {
            Box::pin(async move { tx.put_secret_if_absent(key.attempt(0), purpose, b"of all places").await })
        });
        put.await.unwrap();
        for member in &world.members {
            member.check_in(&world.t).await;
        }
        world.t.work().await;
        let cohort = world.assignments(2).await;
        for member in world.members.iter_mut().filter(|member| cohort.contains_key(&member.id)) {
            member.assigned(&world.t).await;
            member.report(&world.t, &world.model).await;
        }
        let stuck = world.t.inner.engine.step_all().await;
        assert!(
            matches!(&stuck, Err(StepError::Unworkable(why)) if why.to_string().contains("cancel it")),
            "{stuck:?}"
        );
        assert_eq!((world.released(2).await, world.rows().await.len()), (None, 1));
        world.t.post(&world.t.operator, "/v1/tasks/secure/cancel", &json!({})).await;
        assert_eq!((secret(&world, 0, 0, purpose).await, keys(&world)), (None, vec![]));
    }
}

#[tokio::test]
async fn an_attempt_that_ends_leaves_no_seed_and_no_draw() {
    let mut world = World::on_disk(4, |spec| mechanism(spec, "central_gaussian")).await;
    world.up_to(1, RoundState::Unmasking).await;
    for member in &mut world.members {
        member.unmask(&world.t).await;
    }
    die_after_the_seed(&world).await;
    assert!(secret(&world, 1, 1, SEED).await.is_some());
    world.t.post(&world.t.operator, "/v1/tasks/secure/cancel", &json!({})).await;
    assert_eq!(secret(&world, 1, 1, SEED).await, None);
    assert_eq!(keys(&world), [], "what was sealed opens no more");
    world.t.work().await;
    assert_eq!(secret(&world, 1, 1, SEED).await, None);
    assert_eq!(world.rows().await.len(), 1);
}

/// When a worker is about to store its seed, another one takes over its lease and does all the work.
struct Overtaken(Mutex<Option<Engine>>, Arc<MockClock>);

impl std::fmt::Debug for Overtaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Overtaken")
    }
}

impl FailPoint for Overtaken {
    fn reached(&self, point: &'static str) -> Result<(), StepError> {
        if point != "release_sum: before the seed" {
            return Ok(());
        }
        if let Some(engine) = self.0.lock().unwrap().take() {
            self.1.advance(LEASE);
            let other = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(engine.step_all()).unwrap();
            };
            std::thread::spawn(other).join().unwrap();
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_worker_that_was_overtaken_noises_nothing_a_second_time() {
    let mut world = World::on_disk(4, |spec| {
        mechanism(spec, "central_gaussian");
        spec["rounds"]["count"] = json!(1);
    })
    .await;
    world.up_to(1, RoundState::Unmasking).await;
    for member in &mut world.members {
        member.unmask(&world.t).await;
    }
    // It has been away for longer than its lease.
    let closed = world.engine(DieAt::named("close_phase: after the rows"), 1).step_all().await;
    assert!(closed.is_err(), "{closed:?}");
    world.t.advance(LEASE);
    let other = world.engine(Arc::new(coordinator::work::NoFailPoint), 2);
    let overtaken = Arc::new(Overtaken(Mutex::new(None), Arc::clone(&world.t.clock)));
    let slow = world.engine(Arc::clone(&overtaken) as _, 3);
    *overtaken.0.lock().unwrap() = Some(other);
    let result = slow.step_all().await;
    assert!(overtaken.0.lock().unwrap().is_none(), "the other one came: {result:?}");
    assert_eq!(secret(&world, 1, 1, SEED).await, None);
    assert!(world.rows().await.len() <= 1);
    world.t.advance(LEASE);
    world.t.work().await;
    assert_eq!((world.state(1).await, world.rows().await.len()), (RoundState::Completed, 1));
    assert_eq!(secret(&world, 1, 1, SEED).await, None);
}
