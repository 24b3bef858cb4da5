//! The ledger: one row for each release, before its version, after any crash; changes are detected.

use std::sync::Arc;

use coordinator::work::{NoFailPoint, StepError};
use federation::id::RoundKey;
use federation::round::{FailureReason, RoundState};
use serde_json::{Value, json};
use wire::problem::ProblemType;

use super::released::run_drawn;
use crate::support::die_at::DieAt;
use crate::support::private::{assert_variance, charged_variance, in_the_clear, mechanism};
use crate::support::secure::{LEASE, World};

/// Three participants of an unmasked task, with files, for this number of rounds.
pub(super) async fn world(name: &str, rounds: u32) -> World {
    World::on_disk(3, |spec| {
        in_the_clear(spec, name);
        spec["rounds"]["count"] = json!(rounds);
    })
    .await
}

/// Takes all possible actions of participants in unmasked round `number` once.
async fn act(world: &mut World, number: u32) {
    let view = world.t.get(&world.t.viewer, &format!("/v1/tasks/secure/rounds/{number}")).await;
    if view.status != 200 {
        return;
    }
    match world.state(number).await {
        RoundState::Selecting => {
            for member in &world.members {
                member.check_in(&world.t).await;
            }
        }
        RoundState::Collecting => {
            let waiting = world.assignments(number).await;
            for member in &mut world.members {
                if waiting.get(&member.id).is_some_and(|place| place.state.is_pending()) {
                    member.assigned(&world.t).await;
                    member.report(&world.t, &world.model).await;
                }
            }
        }
        _ => {}
    }
}

/// Every version except the first has its row.
async fn assert_paid(world: &World) {
    let versions = world.digests().await.len();
    let rows = world.rows().await;
    assert!(versions <= 1 + rows.iter().filter(|row| row.published).count(), "{versions} versions, {rows:?}");
    let indices: Vec<_> = rows.iter().map(|row| row.idx).collect();
    assert_eq!(indices, (0..rows.len() as u64).collect::<Vec<_>>());
}

/// The names of all blobs.
pub(super) fn blobs(world: &World) -> Vec<String> {
    let name = |path: std::path::PathBuf| path.display().to_string();
    world.files().into_iter().map(|(path, _)| name(path)).filter(|path| path.contains("/blobs/")).collect()
}

/// Runs the last round; the coordinator dies at these points, one life each. Returns the point and the blobs at that time.
async fn run(
    world: &mut World,
    number: u32,
    lives: &[&'static str],
    counter: Option<Arc<DieAt>>,
) -> Vec<(&'static str, Vec<String>)> {
    let mut lives = lives.iter();
    let mut next = |counter: &Option<Arc<DieAt>>| -> Arc<dyn coordinator::work::FailPoint> {
        match (lives.next(), counter) {
            (Some(point), _) => DieAt::named(point),
            (None, Some(counter)) => Arc::clone(counter) as _,
            (None, None) => Arc::new(NoFailPoint),
        }
    };
    let mut deaths = Vec::new();
    let mut engine = world.engine(next(&counter), 1);
    for pass in 0..60 {
        match engine.step_all().await {
            Ok(_) => {}
            Err(StepError::Stopped(point)) => {
                deaths.push((point, blobs(world)));
                assert_paid(world).await;
                world.restart().await;
                world.t.advance(LEASE);
                engine = world.engine(next(&counter), 1_000 + pass);
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        assert_paid(world).await;
        if world.status().await.0 == "COMPLETED" {
            return deaths;
        }
        act(world, number).await;
    }
    panic!("the round does not come to an end");
}

#[tokio::test]
async fn killed_between_any_two_writes_one_release_is_charged_once() {
    for (name, number) in [("central_gaussian", 1), ("tree", 2), ("banded_matrix", 2), ("local", 1)] {
        // The last round's noise cancels noise drawn before it.
        let is_correlated = number > 1;
        let create = async || {
            let mut world = World::on_disk(3 * number as usize, |spec| {
                in_the_clear(spec, name);
                spec["rounds"]["count"] = json!(number);
                if is_correlated {
                    spec["selection"] = json!({ "cohort": { "count": 3 }, "require": { "max_participations": 1 } });
                }
                if name == "banded_matrix" {
                    spec["privacy"]["participations"] = json!(1);
                    spec["privacy"]["separation"] = json!(2);
                }
            })
            .await;
            let mut before = vec![0; world.model.codec.len()];
            if is_correlated {
                let cohort = run_drawn(&mut world, 1).await;
                before = world.residual(1, |at| cohort.contains(&at)).await;
            }
            (world, before)
        };
        let counter = DieAt::never();
        assert!(run(&mut create().await.0, number, &[], Some(Arc::clone(&counter))).await.is_empty());
        let reached = counter.reached.lock().unwrap().clone();
        let seeds = usize::from(name != "local");
        assert_eq!(reached.get("release_sum: after the seed").copied().unwrap_or(0), seeds, "{reached:?}");
        // Without a release all mechanisms are alike.
        let matters = |point: &&str| name == "central_gaussian" || point.starts_with("release_sum");
        for point in reached.into_keys().filter(matters) {
            let (mut world, before) = create().await;
            let deaths = run(&mut world, number, &[point], None).await;
            assert_eq!(deaths.len(), 1, "{point}");
            let rows = world.rows().await;
            assert_eq!(rows.len(), number as usize, "killed at {}", deaths[0].0);
            assert!(rows.iter().all(|row| row.published) && world.view(number).await.attempt == 1);
            assert_eq!(world.digests().await.len(), 1 + number as usize);
            let charged = charged_variance(&world.ledger().await.releases.pop().unwrap().parameters);
            let cohort = world.assignments(number).await;
            let is_in: Vec<bool> = world.members.iter().map(|member| cohort.contains_key(&member.id)).collect();
            let residual = world.residual(number, |at| is_in[at]).await;
            let both: Vec<i64> = before.iter().zip(&residual).map(|(before, last)| before + last).collect();
            // Of the release, and of all together.
            let (one, all) = match name {
                "tree" => (2.0, 1.0),
                "banded_matrix" => (1.25, 1.25),
                "local" => (3.0, 3.0),
                _ => (1.0, 1.0),
            };
            assert_variance(&residual, one * charged);
            assert_variance(&both, all * charged);
        }
    }
}

#[tokio::test]
async fn whoever_repeats_a_release_adds_the_same_noise() {
    let mut world = world("central_gaussian", 1).await;
    let point = "release_sum: after the blob";
    let deaths = run(&mut world, 1, &[point; 3], None).await;
    assert_eq!(deaths.iter().map(|death| death.0).collect::<Vec<_>>(), [point; 3]);
    assert_eq!(deaths[0].1.len(), deaths[2].1.len(), "no other bytes were written");
    let (key, task) = (RoundKey { task: world.task, number: 1 }, world.task);
    let read = world.t.inner.store.read("test", |tx| {
        Box::pin(async move {
            let sum = tx.noised_sum(key.attempt(1)).await?.unwrap();
            Ok::<_, store::StoreError>((sum.blob.to_string(), tx.privacy_count(task).await?))
        })
    });
    let (released, rows) = read.await.unwrap();
    assert_eq!(rows, 1);
    assert!(deaths[0].1.iter().any(|path| path.contains(&released)), "{released} was there when it died first");
}

#[tokio::test]
async fn a_round_that_fails_with_its_sum_opened_is_charged_all_the_same() {
    for n in 0..8 {
        let mut world = world("central_gaussian", 1).await;
        world.t.work().await;
        act(&mut world, 1).await;
        world.t.work().await;
        act(&mut world, 1).await;
        // An accepted input is lost.
        let key = RoundKey { task: world.task, number: 1 };
        let digest = crate::support::sha256(&secure_agg::packing::pack(&world.members[0].words, world.model.modulus));
        let path = blobs(&world).into_iter().find(|path| path.contains(&digest.to_string()));
        std::fs::remove_file(path.expect("it is a blob")).unwrap();
        let died = world.engine(DieAt::nth(n), 1).step_all().await;
        if died.is_err() {
            assert_paid(&world).await;
            world.restart().await;
            world.t.advance(LEASE);
        }
        world.t.work().await;
        let read =
            world.t.inner.store.read("test", |tx| Box::pin(async move { tx.round_attempt(key.attempt(1)).await }));
        let failed = read.await.unwrap().unwrap().round;
        assert_eq!((failed.state, failed.failure), (RoundState::Failed, Some(FailureReason::InputLost)), "{died:?}");
        let rows = world.rows().await;
        assert_eq!(rows.len(), 1, "{died:?}");
        assert!(!rows[0].published && rows[0].attempt == key.attempt(1));
        assert_eq!(world.digests().await.len(), 1);
        // The next attempt is charged as well.
        world.t.advance(LEASE);
        for _ in 0..4 {
            world.t.work().await;
            act(&mut world, 1).await;
        }
        world.t.work().await;
        let view = world.view(1).await;
        assert_eq!((view.attempt, view.state), (2, RoundState::Completed));
        let report = world.ledger().await;
        let attempts: Vec<_> = report.releases.iter().map(|row| (row.attempt, row.published)).collect();
        assert_eq!(attempts, [(1, false), (2, true)]);
        assert!(report.releases[1].total.published > report.releases[0].total.published);
    }
}

#[tokio::test]
async fn cancelled_while_the_sum_is_opened_it_is_charged_and_before_that_not() {
    for (phase, rows) in [(RoundState::Collecting, 0), (RoundState::Confirming, 0), (RoundState::Unmasking, 1)] {
        let mut world = World::with(4, |spec| mechanism(spec, "distributed_skellam")).await;
        world.up_to(1, phase).await;
        world.t.post(&world.t.operator, "/v1/tasks/secure/cancel", &json!({})).await;
        let report = world.ledger().await;
        assert_eq!(report.releases.len(), rows, "{phase}");
        assert!(report.releases.iter().all(|row| !row.published && row.participants == Some(report.smallest_cohort)));
    }
}

#[tokio::test]
async fn local_updates_that_were_seen_one_by_one_are_charged() {
    let mut world = World::with(3, |spec| in_the_clear(spec, "local")).await;
    world.t.work().await;
    act(&mut world, 1).await;
    world.t.work().await;
    let member = &mut world.members[0];
    member.assigned(&world.t).await;
    member.report(&world.t, &world.model).await;
    world.time_out().await;
    assert_eq!(world.view(1).await.failure, Some(FailureReason::TooFewInputs));
    let rows = world.rows().await;
    assert_eq!(rows.iter().map(|row| row.published).collect::<Vec<_>>(), [false]);
}

/// Writes rows like an attacker with access to the database.
pub(super) fn by_hand(world: &World, statements: &str) {
    let path = world.folder.as_ref().unwrap().path().join("rows.db");
    let hand = rusqlite::Connection::open(path).unwrap();
    hand.execute_batch(&format!("PRAGMA foreign_keys = OFF; {statements}")).unwrap();
}

pub(super) async fn post(world: &World, action: &str) {
    let reply = world.t.post(&world.t.operator, &format!("/v1/tasks/secure/{action}"), &json!({})).await;
    assert_eq!(reply.status, 200, "{action}: {}", String::from_utf8_lossy(&reply.body));
}

/// Two rounds are done, and the task is paused before the third.
pub(super) async fn two_rounds(name: &str) -> World {
    let mut world = world(name, 4).await;
    world.run_in_the_clear(1, |_| true, |_| true).await;
    post(&world, "pause").await;
    world.run_in_the_clear(2, |_| true, |_| true).await;
    assert_eq!(world.rows().await.len(), 2);
    world
}

/// Resuming the task, and the engine of the still active task, both reject the ledger.
pub(super) async fn assert_untrusted(world: &World, says: &str) {
    let refused = world.t.post(&world.t.operator, "/v1/tasks/secure/resume", &json!({})).await;
    let told = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(refused.status == 409 && told.contains("stays PAUSED") && told.contains(says), "{told}");
    assert_eq!(world.status().await.0, "PAUSED");
    by_hand(world, RESUMED);
    world.t.work().await;
    let (status, why) = world.status().await;
    assert_eq!(status, "PAUSED");
    assert!(why.contains(says), "{why}");
    let reply = world.privacy().await;
    assert_eq!(reply.status, 409, "{}", String::from_utf8_lossy(&reply.body));
    assert!(String::from_utf8_lossy(&reply.body).contains(says), "{reply:?}");
    assert_eq!(world.t.get(&world.t.viewer, "/v1/tasks/secure/rounds/3").await.status, 404, "no round opens");
}

/// Bypasses the check at a resume by an operator.
pub(super) const RESUMED: &str = "UPDATE task SET status = 'ACTIVE' WHERE status = 'PAUSED'";

#[tokio::test]
async fn rows_that_were_edited_removed_moved_or_added_are_found() {
    let mut world = two_rounds("central_gaussian").await;
    by_hand(
        &world,
        "CREATE TABLE kept AS SELECT * FROM privacy_ledger; CREATE TABLE kept_head AS SELECT * FROM privacy_head",
    );
    let restore = "DELETE FROM privacy_ledger; INSERT INTO privacy_ledger SELECT * FROM kept; \
                   DELETE FROM privacy_head; INSERT INTO privacy_head SELECT * FROM kept_head";
    for (statements, says) in [
        (
            r#"UPDATE privacy_ledger SET row = replace(row, '"participants":3', '"participants":4') WHERE idx = 0"#,
            "row 0",
        ),
        (r#"UPDATE privacy_ledger SET row = replace(row, '"rho":', '"rho":1') WHERE idx = 1"#, "row 1"),
        (r#"UPDATE privacy_ledger SET row = replace(row, '"published":', '"published":1') WHERE idx = 1"#, "row 1"),
        ("UPDATE privacy_ledger SET row = '{}' WHERE idx = 1", "row 1"),
        ("DELETE FROM privacy_ledger WHERE idx = 0", "row 0"),
        ("DELETE FROM privacy_ledger WHERE idx = 1", "removed or added"),
        ("DELETE FROM privacy_ledger", "removed or added"),
        ("DELETE FROM privacy_ledger; DELETE FROM privacy_head", "removed or added"),
        ("DELETE FROM privacy_head", "removed or added"),
        (
            "UPDATE privacy_ledger SET row = (SELECT kept.row FROM kept WHERE kept.idx = 1 - privacy_ledger.idx)",
            "row 0",
        ),
        (
            "DELETE FROM privacy_ledger WHERE idx = 1; UPDATE privacy_head SET seal = \
             (SELECT json_extract(row, '$.seal') FROM privacy_ledger WHERE idx = 0)",
            "removed or added",
        ),
        (
            "INSERT INTO privacy_ledger (task, number, attempt, idx, published, created_at, row) \
             SELECT task, 3, 1, 2, 1, created_at, row FROM kept WHERE idx = 1",
            "row 2",
        ),
    ] {
        by_hand(&world, statements);
        assert_untrusted(&world, says).await;
        by_hand(&world, restore);
        assert_eq!(world.ledger().await.releases.len(), 2);
    }
    post(&world, "resume").await;
    let view = world.run_in_the_clear(3, |_| true, |_| true).await;
    assert_eq!(view.state, RoundState::Completed);
    assert_eq!(world.ledger().await.releases.len(), 3);
}

#[tokio::test]
async fn a_ledger_is_worth_nothing_with_another_key() {
    let mut world = two_rounds("central_gaussian").await;
    world.lose_seal_key();
    world.restart().await;
    assert_untrusted(&world, "row 0").await;
}

#[tokio::test]
async fn nothing_is_released_while_the_ledger_cannot_be_trusted() {
    let mut world = world("central_gaussian", 2).await;
    world.run_in_the_clear(1, |_| true, |_| true).await;
    act(&mut world, 2).await;
    world.t.work().await;
    act(&mut world, 2).await;
    by_hand(&world, "CREATE TABLE kept_head AS SELECT * FROM privacy_head; DELETE FROM privacy_head");
    for _ in 0..2 {
        let stuck = world.t.inner.engine.step_all().await;
        assert!(
            matches!(&stuck, Err(StepError::Unworkable(why)) if why.to_string().contains("removed or added")),
            "{stuck:?}"
        );
        assert_eq!((world.released(2).await, world.rows().await.len()), (None, 1));
    }
    by_hand(&world, "INSERT INTO privacy_head SELECT * FROM kept_head");
    world.t.work().await;
    assert_eq!(world.state(2).await, RoundState::Completed);
    assert_eq!(world.rows().await.len(), 2);
}

#[tokio::test]
async fn every_row_says_what_ran_and_stays_as_it_was_written() {
    let mut world = world("central_gaussian", 3).await;
    let mut seen: Vec<Value> = Vec::new();
    for number in 1..=3 {
        world.run_in_the_clear(number, |_| true, |_| true).await;
        let rows = serde_json::to_value(world.ledger().await.releases).unwrap();
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len(), seen.len() + 1);
        assert_eq!(&rows[..seen.len()], seen.as_slice());
        seen = rows.clone();
    }
    let page = world.t.get(&world.t.viewer, "/v1/tasks/secure/privacy?limit=2").await.json();
    assert_eq!(page["releases"].as_array().unwrap().as_slice(), &seen[..2]);
    let next = page["next_cursor"].as_str().unwrap();
    let page = world.t.get(&world.t.viewer, &format!("/v1/tasks/secure/privacy?cursor={next}")).await.json();
    assert_eq!((page["releases"].as_array().unwrap().as_slice(), &page["next_cursor"]), (&seen[2..], &json!(null)));
}

#[tokio::test]
async fn all_private_tasks_together_are_shown_at_one_delta() {
    let mut world = world("central_gaussian", 2).await;
    let nothing = world.t.get(&world.t.viewer, "/v1/privacy").await.json();
    assert_eq!((&nothing["tasks"][0]["releases"], &nothing["spent"]["cohort_known"]), (&json!(0), &json!(0.0)));
    world.run_in_the_clear(1, |_| true, |_| true).await;
    world.run_in_the_clear(2, |_| true, |_| true).await;
    let report = world.ledger().await;
    assert_eq!(report.releases.len(), 2);
    let total = world.t.get(&world.t.viewer, "/v1/privacy").await.json();
    assert_eq!((&total["delta"], &total["tasks"][0]["releases"]), (&json!(1e-5), &json!(2)), "{total}");
    assert_eq!(total["spent"], serde_json::to_value(&report.spent).unwrap());
    assert_eq!(total["tasks"][0]["spent"], total["spent"]);
    let looser = world.t.get(&world.t.viewer, "/v1/privacy?delta=0.001").await.json();
    assert!(looser["spent"]["cohort_known"].as_f64() < total["spent"]["cohort_known"].as_f64(), "{looser}");
    let refused = world.t.get(&world.t.viewer, "/v1/privacy?delta=1").await;
    refused.problem(ProblemType::InvalidValue);
}
