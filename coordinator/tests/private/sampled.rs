//! Who may be in a round is drawn before anybody's availability is looked at, and nothing else decides.

use std::collections::BTreeMap;
use std::time::Duration;

use federation::id::{ParticipantId, RoundKey};
use federation::round::{FailureReason, RoundState};
use serde_json::{Value, json};
use wire::participant::CheckInReply;

use crate::support::private::mechanism;
use crate::support::secure::{PHASE, World};

fn sampling(spec: &mut Value, is_secure: bool, sampling: &Value, cohort: &Value, population: u32) {
    mechanism(spec, "central_gaussian");
    spec["model"]["tensors"][0]["shape"] = json!([16]);
    spec["secure_aggregation"]["enabled"] = json!(is_secure);
    spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.0);
    spec["rounds"] = json!({ "count": 100, "select_max": 64 });
    spec["selection"] = json!({ "cohort": cohort });
    spec["privacy"]["sampling"] = sampling.clone();
    spec["privacy"]["population"] = json!(population);
}

async fn poisson(participants: usize, is_secure: bool, rate: f64, population: u32) -> World {
    World::with(participants, |spec| {
        sampling(spec, is_secure, &json!({ "poisson": rate }), &json!({ "fraction": rate }), population);
    })
    .await
}

/// Who was drawn for the latest attempt; nobody once that is forgotten.
async fn drawn(world: &World, number: u32) -> Vec<ParticipantId> {
    let (key, attempt) = (RoundKey { task: world.task, number }, world.view(number).await.attempt);
    world.t.inner.store.read("test", |tx| Box::pin(async move { tx.sampled(key, attempt).await })).await.unwrap()
}

/// Ends the open attempt, to which nobody comes, and opens the next.
async fn next_attempt(world: &World) {
    let before = world.view(1).await.attempt;
    for _ in 0..50 {
        world.t.advance(PHASE);
        world.t.work().await;
        if world.view(1).await.attempt > before {
            return;
        }
    }
    panic!("no other attempt opens");
}

#[tokio::test]
async fn nobody_is_drawn_or_invited_who_was_not_sampled() {
    for is_secure in [false, true] {
        let world = poisson(12, is_secure, 0.5, 12).await;
        world.t.work().await;
        while drawn(&world, 1).await.len() < 3 {
            next_attempt(&world).await;
        }
        let sampled = drawn(&world, 1).await;
        let attempt = world.view(1).await.attempt;
        for member in world.members.iter().filter(|member| !sampled.contains(&member.id)) {
            let reply = member.check_in(&world.t).await;
            assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
        }
        world.t.work().await;
        assert_eq!(world.state(1).await, RoundState::Selecting, "it waits for those who were sampled");
        world.time_out().await;
        let view = world.view(1).await;
        assert_eq!((view.attempt, view.failure), (attempt, Some(FailureReason::TooFewParticipants)));
        assert!(world.assignments(1).await.is_empty());
        if is_secure {
            next_attempt(&world).await;
            let sampled = drawn(&world, 1).await;
            for member in &world.members {
                let invited = matches!(member.check_in(&world.t).await, CheckInReply::Invited(_));
                assert_eq!(invited, sampled.contains(&member.id));
            }
        }
    }
}

#[tokio::test]
async fn absentees_are_waited_for_and_dropped_at_the_deadline() {
    let mut world = poisson(12, false, 0.5, 12).await;
    world.t.work().await;
    while drawn(&world, 1).await.len() < 4 {
        next_attempt(&world).await;
    }
    let sampled = drawn(&world, 1).await;
    world.t.advance(PHASE - Duration::from_secs(2));
    for member in world.members.iter().filter(|member| member.id != sampled[0]) {
        member.check_in(&world.t).await;
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Selecting, "one of them may still come");
    world.t.advance(Duration::from_secs(2));
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
    let cohort: Vec<_> = world.assignments(1).await.into_keys().collect();
    assert_eq!(cohort, sampled[1..]);
    assert_eq!(drawn(&world, 1).await, [], "who was absent is not remembered");
    for member in &mut world.members {
        if cohort.contains(&member.id) {
            member.assigned(&world.t).await;
            member.report(&world.t, &world.model).await;
        }
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    let row = &world.ledger().await.releases[0];
    assert_eq!(row.participants as usize, cohort.len());
    assert!(row.total.published < row.total.cohort_known, "{row:?}");
    assert_eq!(row.parameters["sampled"]["poisson"]["rate"], json!(0.5));
}

#[tokio::test]
async fn draws_that_are_too_small_end_before_anybody_is_asked_for_anything() {
    // A hundred were promised, of whom half are drawn; only twelve are there.
    let world = poisson(12, false, 0.5, 100).await;
    world.t.work().await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.failure), (RoundState::Failed, Some(FailureReason::TooFewParticipants)));
    assert!(world.assignments(1).await.is_empty());
    let fixed = |spec: &mut Value| sampling(spec, false, &json!({ "fixed_size": 4 }), &json!({ "count": 4 }), 13);
    let world = World::with(12, fixed).await;
    world.t.work().await;
    assert_eq!(world.view(1).await.failure, Some(FailureReason::TooFewParticipants));
    assert_eq!((drawn(&world, 1).await, world.rows().await), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn everybody_who_enrolled_first_is_drawn_as_often_as_is_charged() {
    const DRAWS: u32 = 240;
    // Fourteen have enrolled; the population are twelve of them.
    let worlds = [
        (poisson(14, false, 0.5, 12).await, 0.5, None),
        (
            World::with(14, |spec| {
                sampling(spec, false, &json!({ "fixed_size": 4 }), &json!({ "count": 4 }), 12);
            })
            .await,
            1.0 / 3.0,
            Some(4),
        ),
    ];
    for (world, rate, size) in worlds {
        world.t.work().await;
        let (mut times, mut draws) = (BTreeMap::<_, u32>::new(), Vec::new());
        let mut sizes = BTreeMap::<_, u32>::new();
        for _ in 0..DRAWS {
            let sampled = drawn(&world, 1).await;
            // Draws that are too small have ended already, and are forgotten.
            if world.state(1).await == RoundState::Selecting {
                *sizes.entry(sampled.len()).or_default() += 1;
                sampled.iter().for_each(|id| *times.entry(*id).or_default() += 1);
                draws.push(sampled);
            }
            next_attempt(&world).await;
        }
        assert!(draws.len() as f64 > 0.95 * f64::from(DRAWS));
        assert_eq!(times.len(), 12, "nobody outside of the population");
        let count = draws.len() as f64;
        let spread = (count * rate * (1.0 - rate)).sqrt();
        for (id, times) in &times {
            assert!((f64::from(*times) - count * rate).abs() < 4.5 * spread, "{id}: {times} of {count}");
        }
        let all: u32 = times.values().sum();
        let mean = f64::from(all) / 12.0;
        assert!((mean - count * rate).abs() < 4.5 * spread / 12.0_f64.sqrt() + 0.01 * count, "{mean} of {count}");
        draws.dedup();
        assert!(draws.len() as f64 > 0.95 * count, "each draw is a new one");
        match size {
            Some(size) => assert_eq!(sizes.into_keys().collect::<Vec<_>>(), [size]),
            None => assert!(sizes.len() > 5, "{sizes:?}"),
        }
    }
}
