//! Ends of privacy ledgers outside the database, checked against edited and older databases, and lost ends.

use federation::round::RoundState;
use serde_json::json;

use super::kept::{RESUMED, assert_untrusted, by_hand, post, two_rounds, world};
use crate::support::private::in_the_clear;
use crate::support::secure;

/// An attacker with the database but without the key can make its rows consistent, but not the end outside it.
#[tokio::test]
async fn a_ledger_that_was_cut_short_with_its_counters_or_promises_more_is_found() {
    let cut = "DELETE FROM privacy_ledger WHERE idx = 1; UPDATE privacy_head SET seal = \
               (SELECT json_extract(row, '$.seal') FROM privacy_ledger WHERE idx = 0); \
               DELETE FROM model_version WHERE version = 2; UPDATE task SET rounds_completed = 1, model_version = 1";
    let emptied = "DELETE FROM privacy_ledger; DELETE FROM privacy_head; DELETE FROM model_version WHERE version > 0; \
                   UPDATE task SET rounds_completed = 0, rounds_forfeited = 2, model_version = 0";
    let raised = "UPDATE task SET spec = json_set(spec, '$.privacy.epsilon', 1000.0)";
    let quieter = "UPDATE task SET spec = json_set(spec, '$.privacy.noise_multiplier', 0.5)";
    let larger = "UPDATE task SET spec = json_set(spec, '$.selection.cohort.count', 4)";
    let longer = "UPDATE task SET spec = json_set(spec, '$.rounds.count', 400)";
    for (statements, says) in [
        (cut, "has 1 rows, and had 2"),
        (emptied, "has 0 rows, and had 2"),
        (raised, "not what it was created with"),
        (quieter, "not what it was created with"),
        (larger, "not what it was created with"),
        (longer, "not what it was created with"),
    ] {
        for is_restarted in [false, true] {
            let mut world = two_rounds("central_gaussian").await;
            by_hand(&world, statements);
            by_hand(&world, RESUMED);
            if is_restarted {
                world.restart().await;
                world.t.inner.engine.check_ledgers().await.unwrap();
            } else {
                world.t.work().await;
            }
            let (status, why) = world.status().await;
            assert_eq!(status, "PAUSED", "{statements}");
            assert!(why.contains(says), "{why}");
            assert_eq!(world.privacy().await.status, 409);
        }
    }
}

#[tokio::test]
async fn a_task_whose_mechanism_was_removed_is_paused() {
    for is_restarted in [false, true] {
        let mut world = two_rounds("central_gaussian").await;
        by_hand(&world, &format!("UPDATE task SET spec = json_remove(spec, '$.privacy'); {RESUMED}"));
        if is_restarted {
            world.restart().await;
            world.t.inner.engine.check_ledgers().await.unwrap();
        } else {
            world.t.work().await;
        }
        let (status, why) = world.status().await;
        assert!(status == "PAUSED" && why.contains("not what it was created with"), "{status}: {why}");
        let refused = world.t.post(&world.t.operator, "/v1/tasks/secure/resume", &json!({})).await;
        assert_eq!(refused.status, 409);
        if is_restarted {
            // The same for the engine of a process with a cached task.
            by_hand(&world, RESUMED);
            world.t.work().await;
            assert_eq!(world.status().await.0, "PAUSED");
        }
        assert_eq!(world.digests().await.len(), 3, "no version without noise");
    }
}

#[tokio::test]
async fn an_older_database_is_noticed_when_it_is_started_with() {
    let mut world = world("central_gaussian", 4).await;
    world.run_in_the_clear(1, |_| true, |_| true).await;
    let folder = world.folder.as_ref().unwrap().path().to_owned();
    by_hand(&world, &format!("VACUUM INTO '{}'", folder.join("copy.db").display()));
    world.run_in_the_clear(2, |_| true, |_| true).await;
    assert_eq!(world.rows().await.len(), 2);
    world.config.database.url = format!("sqlite:{}", folder.join("copy.db").display());
    world.restart().await;
    world.t.inner.engine.check_ledgers().await.unwrap();
    let (status, why) = world.status().await;
    assert_eq!(status, "PAUSED");
    assert!(why.contains("older than what was released"), "{why}");
}

#[tokio::test]
async fn a_ledger_whose_end_is_gone_or_was_edited_is_not_trusted() {
    let world = two_rounds("central_gaussian").await;
    world.t.inner.engine.check_ledgers().await.unwrap();
    let end = world.end_of(world.task);
    let kept = std::fs::read_to_string(&end).unwrap();
    let edited = kept.replace("\"rows\":2", "\"rows\":1");
    assert_ne!(edited, kept);
    std::fs::write(&end, &edited).unwrap();
    assert_untrusted(&world, "is not what was written").await;
    assert_eq!(std::fs::read_to_string(&end).unwrap(), edited, "it is not written over");
    std::fs::remove_file(&end).unwrap();
    assert_untrusted(&world, "is gone").await;
    std::fs::write(&end, kept).unwrap();
    assert_eq!(world.ledger().await.releases.len(), 2);
}

/// With or without a release: a restored database looks the same for a task that has released since.
#[tokio::test]
async fn a_start_without_the_folder_of_ends_pauses_every_private_task() {
    for rounds in [0, 1] {
        let mut world = world("central_gaussian", 4).await;
        for number in 1..=rounds {
            world.run_in_the_clear(number, |_| true, |_| true).await;
        }
        let (end, kept) = (world.end_of(world.task), std::fs::read(world.end_of(world.task)).unwrap());
        std::fs::remove_dir_all(end.parent().unwrap()).unwrap();
        for _ in 0..2 {
            world.restart().await;
            world.t.inner.engine.check_ledgers().await.unwrap();
            let (status, why) = world.status().await;
            assert!(status == "PAUSED" && why.contains("privacy ledger ends is gone"), "{status}: {why}");
            assert!(why.contains("releases after the backup cannot be ruled out"), "{why}");
            assert!(!end.exists(), "the database does not say where its own ledger ends");
            assert_eq!(world.privacy().await.status, 409);
            let refused = world.t.post(&world.t.operator, "/v1/tasks/secure/resume", &json!({})).await;
            assert!(refused.status == 409 && String::from_utf8_lossy(&refused.body).contains("is gone"), "{refused:?}");
        }
        std::fs::create_dir_all(end.parent().unwrap()).unwrap();
        std::fs::write(&end, kept).unwrap();
        post(&world, "resume").await;
        let view = world.run_in_the_clear(rounds + 1, |_| true, |_| true).await;
        assert_eq!(view.state, RoundState::Completed, "with the file that was lost");
    }
}

#[tokio::test]
async fn an_end_from_before_the_whole_task_was_stored_is_completed() {
    let mut world = two_rounds("central_gaussian").await;
    world.change_end(world.task, |end| {
        end["privacy"] = end["task"]["privacy"].take();
        end.as_object_mut().unwrap().remove("task");
    });
    let before = std::fs::read(world.end_of(world.task)).unwrap();
    world.restart().await;
    post(&world, "resume").await;
    world.t.inner.engine.check_ledgers().await.unwrap();
    assert_eq!(world.status().await.0, "ACTIVE");
    assert_ne!(std::fs::read(world.end_of(world.task)).unwrap(), before);
    assert_eq!(world.run_in_the_clear(3, |_| true, |_| true).await.state, RoundState::Completed);
    by_hand(&world, "UPDATE task SET spec = json_set(spec, '$.selection.cohort.count', 4)");
    world.restart().await;
    world.t.inner.engine.check_ledgers().await.unwrap();
    let (status, why) = world.status().await;
    assert!(status == "PAUSED" && why.contains("not what it was created with"), "{status}: {why}");
}

#[tokio::test]
async fn a_task_that_is_refused_leaves_no_end() {
    let world = world("central_gaussian", 1).await;
    let ends = || std::fs::read_dir(world.end_of(world.task).parent().unwrap()).unwrap().count();
    let before = ends();
    let mut written = secure::spec(3);
    in_the_clear(&mut written, "central_gaussian");
    let body = json!({ "spec": written });
    assert_eq!(world.t.post(&world.t.operator, "/v1/tasks", &body).await.status, 409, "its name is taken");
    assert_eq!(ends(), before);
}
