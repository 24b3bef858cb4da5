//! An exhausted budget: the task stops with its own status, before any unnecessary training.

use federation::round::RoundState;
use serde_json::json;
use wire::participant::CheckInReply;

use crate::support::private::{in_the_clear, mechanism};
use crate::support::secure::World;

/// A task of five rounds with a budget for two.
async fn world(is_secure: bool, at_the_end: &str) -> World {
    World::with(4, |spec| {
        if is_secure {
            mechanism(spec, "distributed_skellam");
        } else {
            in_the_clear(spec, "central_gaussian");
        }
        spec["rounds"]["count"] = json!(5);
        spec["privacy"]["noise_multiplier"] = json!(null);
        spec["privacy"]["epsilon"] = json!(6.0);
        spec["privacy"]["rounds"] = json!(2);
        spec["privacy"]["on_budget_end"] = json!(at_the_end);
    })
    .await
}

async fn run(world: &mut World, is_secure: bool, number: u32) {
    if is_secure {
        world.complete(number).await;
    } else {
        world.run_in_the_clear(number, |_| true, |_| true).await;
    }
    assert_eq!(world.state(number).await, RoundState::Completed);
}

async fn assert_nothing_begins(world: &World) {
    world.t.work().await;
    assert_eq!(world.t.get(&world.t.viewer, "/v1/tasks/secure/rounds/3").await.status, 404);
    assert_eq!((world.rows().await.len(), world.digests().await.len()), (2, 3));
}

#[tokio::test]
async fn a_budget_that_ends_pauses_the_task_as_exhausted() {
    for is_secure in [false, true] {
        let mut world = world(is_secure, "pause").await;
        run(&mut world, is_secure, 1).await;
        assert_eq!(world.status().await.0, "ACTIVE");
        run(&mut world, is_secure, 2).await;
        for again in [false, true] {
            if again {
                // Resuming it fails in the same way.
                let reply = world.t.post(&world.t.operator, "/v1/tasks/secure/resume", &json!({})).await;
                assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
            }
            assert_nothing_begins(&world).await;
            let (status, why) = world.status().await;
            assert_eq!(status, "BUDGET_EXHAUSTED");
            assert!(why.contains("the budget is 6.0000") && why.contains("would raise epsilon"), "{why}");
            let task = world.t.get(&world.t.viewer, "/v1/tasks/secure").await.json();
            let since = task["history"].as_array().unwrap().last().unwrap()["at"].clone();
            let operator = json!({ "kind": "operator", "status": "BUDGET_EXHAUSTED", "since": since });
            assert_eq!(task["waiting_for"], operator);
            for member in &world.members {
                let reply = member.check_in(&world.t).await;
                assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
            }
            assert_nothing_begins(&world).await;
        }
        let report = world.ledger().await;
        assert!(report.spent.published <= 6.0 && report.rounds_left == Some(0), "{report:?}");
        let reply = world.t.post(&world.t.operator, "/v1/tasks/secure/cancel", &json!({})).await;
        assert_eq!(reply.status, 200, "an exhausted task can be ended");
    }
}

#[tokio::test]
async fn a_budget_that_ends_completes_the_task_where_that_is_wanted() {
    let mut world = world(false, "complete").await;
    run(&mut world, false, 1).await;
    run(&mut world, false, 2).await;
    assert_nothing_begins(&world).await;
    let (status, why) = world.status().await;
    assert_eq!(status, "COMPLETED");
    assert!(why.contains("budget"), "{why}");
    let reply = world.members[0].check_in(&world.t).await;
    assert!(matches!(reply, CheckInReply::TaskOver { .. }), "{reply:?}");
}

#[tokio::test]
async fn a_failed_attempt_uses_up_the_budget_of_a_later_round() {
    let mut world = world(true, "pause").await;
    world.up_to(1, RoundState::Unmasking).await;
    // No participant answers: the inputs may have been unmasked.
    world.time_out().await;
    assert_eq!(world.state(1).await, RoundState::Failed);
    world.t.advance(crate::support::secure::PHASE);
    run(&mut world, true, 2).await;
    world.t.work().await;
    assert_eq!(world.status().await.0, "BUDGET_EXHAUSTED");
    let published: Vec<_> = world.rows().await.iter().map(|row| row.published).collect();
    assert_eq!(published, [false, true]);
}
