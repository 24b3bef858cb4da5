//! A sampling task whose devices gradually refuse because of their own spent ledgers: it pauses before it releases or charges noise alone.

use std::collections::BTreeMap;
use std::time::Duration;

use federation::id::ParticipantId;
use federation::round::{FailureReason, RoundState};
use serde_json::json;
use wire::inspect::TaskView;
use wire::{TaskStatus, route};

use crate::support::private::in_the_clear;
use crate::support::secure::{PHASE, World};

const POPULATION: usize = 12;

async fn world() -> World {
    World::with(POPULATION, |spec| {
        in_the_clear(spec, "central_gaussian");
        spec["model"]["tensors"][0]["shape"] = json!([16]);
        spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.0);
        spec["rounds"] = json!({ "count": 100, "select_max": 64 });
        spec["selection"] = json!({ "cohort": { "fraction": 0.5 } });
        spec["privacy"]["sampling"] = json!({ "poisson": 0.5 });
        spec["privacy"]["population"] = json!(POPULATION);
    })
    .await
}

async fn view(world: &World) -> TaskView {
    world.t.get(&world.t.viewer, &route::fill(route::TASK, &[&world.task])).await.read()
}

/// Runs rounds until the task pauses. All participants are present at every draw, take part `most` times, and refuse after that.
async fn until_paused(world: &mut World, most: u32) -> TaskView {
    let mut parts: BTreeMap<ParticipantId, u32> = BTreeMap::new();
    for _ in 0..400 {
        world.t.work().await;
        let task = view(world).await;
        if task.summary.status == TaskStatus::Paused {
            return task;
        }
        let number = task.summary.rounds_completed + 1;
        if world.t.get(&world.t.viewer, &format!("/v1/tasks/secure/rounds/{number}")).await.status != 200 {
            world.t.advance(PHASE);
            continue;
        }
        match world.state(number).await {
            RoundState::Selecting => {
                world.t.advance(PHASE - Duration::from_secs(2));
                for member in &mut world.members {
                    member.check_in(&world.t).await;
                }
                world.t.work().await;
                world.t.advance(Duration::from_secs(2));
            }
            RoundState::Collecting => {
                let (attempt, cohort) = (world.view(number).await.attempt, world.assignments(number).await);
                for member in world.members.iter_mut().filter(|member| cohort.contains_key(&member.id)) {
                    member.assigned(&world.t).await;
                    let part = parts.entry(member.id).or_default();
                    if *part < most {
                        *part += 1;
                        member.report(&world.t, &world.model).await;
                        continue;
                    }
                    let body = json!({ "attempt": attempt, "reason": "refused", "refusal": "privacy" });
                    let path = route::abandon(world.task, number, member.id);
                    assert!(world.t.post(&member.who, &path, &body).await.status.is_success());
                }
            }
            _ => world.t.advance(PHASE),
        }
    }
    panic!("it does not pause: {:?}", view(world).await.summary);
}

#[tokio::test]
async fn task_whose_devices_refuse_pauses_before_noise_alone() {
    let mut world = world().await;
    let task = until_paused(&mut world, 2).await;
    let why = task.history.last().unwrap().detail.clone().unwrap();
    assert!(why.contains("their own limits of privacy") && why.contains("noise alone"), "{why}");
    let ledger = world.ledger().await;
    assert!(!ledger.releases.is_empty());
    for row in &ledger.releases {
        let (round, of) = (world.view(row.round).await, row.round);
        let refused = world.assignments(of).await;
        let refused = refused.values().filter(|place| place.detail.as_deref().is_some_and(|it| it.contains("privacy")));
        assert!(round.reported > 0 || refused.count() == 0, "round {of} released noise alone");
    }
    // After `task resume` all participants may try again.
    let resume = route::fill(route::TASK_RESUME, &[&world.task]);
    assert!(world.t.post(&world.t.operator, &resume, &json!({})).await.status.is_success());
    let again = until_paused(&mut world, 1).await;
    assert!(again.summary.rounds_completed > task.summary.rounds_completed, "{:?}", again.summary);
}

#[tokio::test]
async fn round_whose_whole_cohort_refuses_is_not_released() {
    let mut world = world().await;
    let task = until_paused(&mut world, 0).await;
    let why = task.history.last().unwrap().detail.clone().unwrap();
    assert!(why.contains("nobody reported"), "{why}");
    assert_eq!((task.summary.rounds_completed, world.ledger().await.releases.len()), (0, 0), "nothing is charged");
    let round = world.view(1).await;
    assert_eq!((round.state, round.failure), (RoundState::Failed, Some(FailureReason::TooFewInputs)));
}
