//! The reported reason for waiting, in every phase of a round under secure aggregation.

use std::time::Duration;

use federation::round::RoundState;
use serde_json::{Value, json};

use super::groups::groups_of_three;
use crate::support::die_at::DieAt;
use crate::support::secure::World;

async fn waiting_for(world: &World) -> Value {
    world.t.get(&world.t.viewer, "/v1/tasks/secure").await.json()["waiting_for"].clone()
}

/// The expected view: the first round is in this phase, and lacks this number of answers.
async fn phase(world: &World, state: RoundState, more: Option<u32>) -> Value {
    let view = world.view(1).await;
    assert_eq!(view.state, state);
    let until = view.phases.last().unwrap().deadline_at.unwrap();
    let mut phase = json!({ "kind": "phase", "round": 1, "attempt": 1, "state": state, "until": until });
    if let Some(more) = more {
        phase["more"] = json!(more);
    }
    phase
}

#[tokio::test]
async fn each_phase_is_told_with_its_deadline_and_the_answers_that_it_lacks() {
    let mut world = World::on_disk(5, |_| {}).await;
    world.join(|_| true).await;
    world.assign(|_| true).await;
    for state in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking] {
        assert_eq!(waiting_for(&world).await, phase(&world, state, Some(3)).await);
        world.t.advance(Duration::from_secs(1));
        world.act(state, |at| at == 0).await;
        assert_eq!(waiting_for(&world).await, phase(&world, state, Some(2)).await);
        world.act(state, |at| (1..4).contains(&at)).await;
        assert_eq!(waiting_for(&world).await, phase(&world, state, Some(0)).await, "it needs nobody and waits for one");
        if state != RoundState::Unmasking {
            world.act(state, |at| at == 4).await;
        }
    }
    let World { t, members, .. } = &mut world;
    members[4].unmask(t).await;
    world.engine(DieAt::named("release_sum: before the blob"), 1).step_all().await.unwrap_err();
    let aggregating = phase(&world, RoundState::Aggregating, None).await;
    assert_eq!(waiting_for(&world).await, aggregating, "no participant is waited for");
}

#[tokio::test]
async fn groups_need_answers_of_their_own() {
    let mut world = World::with(12, groups_of_three).await;
    world.join(|_| true).await;
    world.assign(|_| true).await;
    for state in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking] {
        assert_eq!(waiting_for(&world).await, phase(&world, state, None).await);
        world.act(state, |_| true).await;
    }
    assert_eq!(world.state(1).await, RoundState::Completed);
}
