//! Nobody's update is the difference of two sums: from one model, a participant gives one input that masks alone hide, whatever
//! the task is called and however often a round is tried.

use federation::round::FailureReason;
use learning::NoisedSum;
use serde_json::{Value, json};
use wire::RoundState;

use crate::device::{Character, Vanishes};
use crate::world::{Federation, residual};

const SEED: u64 = 4;
const COHORT: usize = 5;
/// The participant that only the first sum holds.
const VICTIM: usize = 2;

fn spec(cohort: usize, privacy: &Value) -> Value {
    json!({
        "rounds": {
            "count": 1, "select_max": COHORT, "collect_min": 3, "max_attempts": 0,
            "select_deadline_ms": 60_000, "collect_deadline_ms": 60_000,
        },
        "selection": { "cohort": { "count": cohort }, "seed": 1 },
        "secure_aggregation": {
            "share_deadline_ms": 60_000, "confirm_deadline_ms": 60_000, "unmask_deadline_ms": 60_000,
        },
        "privacy": privacy,
    })
}

/// Everybody moves the model by something of its own.
fn characters(vanishes: impl Fn(usize) -> Option<Vanishes>) -> Vec<Character> {
    let update = |index: usize| vec![0.25 * (index + 1) as f32, -0.5, 0.125 * index as f32];
    (0..COHORT).map(|index| Character { update: update(index), fault: None, vanishes: vanishes(index) }).collect()
}

/// What a sum without the victim leaves of one with it: its update in units of the grid, unless the second was never opened.
fn difference(with: &NoisedSum, without: &NoisedSum) -> String {
    assert_eq!((with.participants(), without.participants()), (5, 4));
    let words: Vec<i64> =
        with.words().iter().zip(without.words()).map(|(&a, &b)| i64::from(a.wrapping_sub(b))).collect();
    format!("the victim's update is {words:?}")
}

#[tokio::test]
async fn two_tasks_with_one_initial_model_do_not_give_the_difference_away() {
    let exact = json!({ "mechanism": "none" });
    let mut federation = Federation::new(SEED, 3, &spec(COHORT, &exact), None, characters(|_| None)).await;
    federation.complete(1).await;
    federation.devices[VICTIM].is_gone = true;
    let again = federation.create_again("another-name", &spec(COHORT - 1, &exact)).await;
    let view = federation.end(again, 1, 1).await;
    if view.state == RoundState::Completed {
        let [with, without] = [federation.released(1).await, federation.released_by(again, 1).await];
        panic!("{}", difference(&with, &without));
    }
    assert_eq!((view.failure, view.spent), (Some(FailureReason::TooFewParticipants), false), "{view:?}");
    for (index, device) in federation.devices.iter().enumerate().filter(|(index, _)| *index != VICTIM) {
        let [reason] = &device.refusals[..] else { panic!("device {index}: {:?}", device.refusals) };
        assert!(reason.contains("an update was given from this very model before"), "{reason}");
    }
    federation.stop().await;
}

#[tokio::test]
async fn a_round_on_the_base_of_one_that_may_have_been_opened_is_not_answered() {
    let exact = json!({ "mechanism": "none" });
    // Three of five sign, as many as it takes, and only one of them answers: a coordinator may say that it heard no more.
    let vanishes = |index| match index {
        0 => None,
        1 | 2 => Some(Vanishes::BeforeAnswering),
        _ => Some(Vanishes::BeforeSigning),
    };
    let mut federation = Federation::new(SEED, 3, &spec(COHORT, &exact), None, characters(vanishes)).await;
    let view = federation.end(federation.task, 1, 1).await;
    assert_eq!((view.failure, view.spent), (Some(FailureReason::TooFewUnmaskShares), true), "{view:?}");
    federation.devices.iter_mut().for_each(|device| device.come_back());
    let view = federation.end(federation.task, 2, 1).await;
    assert_eq!((view.failure, view.spent), (Some(FailureReason::TooFewParticipants), false), "{view:?}");
    assert!(federation.devices.iter().all(|device| device.refusals.len() == 1));
    // Two have said that they left without an answer: that is one too few, and people are told why nobody comes.
    assert_eq!(view.base_given_by, 5);
    federation.stop().await;
}

#[tokio::test]
async fn a_round_on_the_base_of_one_that_nobody_opened_is_answered_once_enough_have_said_so() {
    let exact = json!({ "mechanism": "none" });
    // All inputs are in, and two of five sign, one fewer than it takes.
    let vanishes = |index| (index >= 2).then_some(Vanishes::BeforeSigning);
    let mut federation = Federation::new(SEED, 3, &spec(COHORT, &exact), None, characters(vanishes)).await;
    let view = federation.end(federation.task, 1, 1).await;
    assert_eq!((view.failure, view.spent), (Some(FailureReason::TooFewConfirmations), true), "{view:?}");
    // Two have left: that proves nothing, and they are not invited twice in a storm.
    let view = federation.end(federation.task, 2, 1).await;
    assert_eq!((view.failure, view.base_given_by), (Some(FailureReason::TooFewParticipants), 5), "{view:?}");
    for device in &mut federation.devices {
        assert_eq!(device.refusals.len(), usize::from(!device.is_gone), "{:?}", device.refusals);
        device.come_back();
        device.refusals.clear();
    }
    let mut attempt = 2;
    let view = loop {
        let view = federation.end(federation.task, 2, attempt).await;
        if view.state == RoundState::Completed {
            break view;
        }
        // Whoever was told to come later comes later.
        assert_eq!(view.failure, Some(FailureReason::TooFewParticipants), "{view:?}");
        attempt += 1;
        assert!(attempt < 10, "it does not come to an end: {view:?}");
    };
    assert_eq!((view.reported, view.base.version, view.base_given_by), (5, 0, 0), "{view:?}");
    federation.stop().await;
}

#[tokio::test]
async fn with_noise_of_their_own_both_tasks_are_answered_and_both_are_charged() {
    let noised = json!({
        "mechanism": "distributed_discrete_gaussian", "noise_multiplier": 1.0, "delta": 1e-5, "clip": { "fixed": 1.0 },
    });
    let mut federation = Federation::new(SEED, 3, &spec(COHORT, &noised), None, characters(|_| None)).await;
    federation.complete(1).await;
    let again = federation.create_again("another-name", &spec(COHORT, &noised)).await;
    let view = federation.end(again, 1, 1).await;
    assert_eq!(view.state, RoundState::Completed, "{view:?}");
    let [first, second] = [federation.released(1).await, federation.released_by(again, 1).await];
    assert!(residual(&first, &second).iter().any(|left| left.abs() > 1.0), "fresh noise is in each");
    for device in &federation.devices {
        assert_eq!(device.refusals, [""; 0]);
        let spent: Vec<_> = device.privacy_spent().into_iter().map(|task| (task.task, task.releases)).collect();
        let mut expected = vec![(federation.task, 1), (again, 1)];
        expected.sort_unstable();
        assert_eq!(spent, expected, "a ledger for each");
    }
    federation.stop().await;
}
