//! Rounds and tasks that start from one model: the same participants, with the journals that they have, are in all of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use federation::round::FailureReason;
use serde_json::{Value, json};
use wire::RoundState;

use crate::device::{Character, Vanishes};
use crate::world::{Federation, Rows, residual};

const SEED: u64 = 4;
const COHORT: usize = 5;
/// Longer than any phase.
const JUMP: Duration = Duration::from_secs(7200);

fn spec(privacy: &Value) -> Value {
    json!({
        "rounds": {
            "count": 1, "select_max": COHORT, "collect_min": 3, "max_attempts": 0,
            "select_deadline_ms": 60_000, "collect_deadline_ms": 60_000,
        },
        "selection": { "cohort": { "count": COHORT }, "seed": 1 },
        "secure_aggregation": {
            "share_deadline_ms": 60_000, "confirm_deadline_ms": 60_000, "unmask_deadline_ms": 60_000,
        },
        "privacy": privacy,
    })
}

fn exact() -> Value {
    spec(&json!({ "mechanism": "none" }))
}

/// Each participant moves the model by an update of its own.
fn characters(vanishes: impl Fn(usize) -> Option<Vanishes>) -> Vec<Character> {
    let update = |index: usize| vec![0.25 * (index + 1) as f32, -0.5, 0.125 * index as f32];
    (0..COHORT).map(|index| Character { update: update(index), fault: None, vanishes: vanishes(index) }).collect()
}

/// Has all members take part in the round after one that failed with this reason.
async fn goes_on(mut federation: Federation, failure: FailureReason, view: &wire::inspect::RoundView) {
    assert_eq!((view.failure, view.spent), (Some(failure), true), "{view:?}");
    federation.devices.iter_mut().for_each(|device| device.come_back());
    let view = federation.end(federation.task, 2, 1).await;
    assert_eq!((view.state, view.reported, view.base.version), (RoundState::Completed, 5, 0), "{view:?}");
    assert!(federation.devices.iter().all(|device| device.refusals.is_empty()));
    federation.stop().await;
}

#[tokio::test]
async fn a_second_task_with_one_initial_model_completes() {
    let mut federation = Federation::new(SEED, 3, &exact(), None, characters(|_| None)).await;
    federation.complete(1).await;
    let again = federation.create_again("another-name", &exact()).await;
    let view = federation.end(again, 1, 1).await;
    assert_eq!((view.state, view.reported, view.base.version), (RoundState::Completed, 5, 0), "{view:?}");
    let [first, second] = [federation.released(1).await, federation.released_by(again, 1).await];
    assert_eq!(first.words(), second.words(), "the same updates");
    federation.stop().await;
}

async fn jump_costs_one_round(rows: impl Fn() -> Option<Rows>) {
    use RoundState::{Collecting, Confirming, Unmasking};
    let cases = [
        (Collecting, Vanishes::InTraining, FailureReason::TooFewInputs),
        (Confirming, Vanishes::BeforeSigning, FailureReason::TooFewConfirmations),
        (Unmasking, Vanishes::BeforeAnswering, FailureReason::TooFewUnmaskShares),
    ];
    for (state, vanishes, failure) in cases {
        let Some(rows) = rows() else { return };
        let config = rows.config();
        // One participant answers in time; the others are late after the jump.
        let characters = characters(|index| (index > 0).then_some(vanishes));
        let mut federation = Federation::on(rows, config, SEED, 3, &exact(), None, characters).await;
        let jump = async |federation: &mut Federation| {
            federation.jump(JUMP).await;
            true
        };
        let view = federation.end_after(federation.task, 1, 1, Some(state), jump).await;
        goes_on(federation, failure, &view).await;
    }
}

#[tokio::test]
async fn a_clock_that_jumps_over_a_deadline_costs_one_round() {
    jump_costs_one_round(|| Some(Rows::Memory)).await;
}

/// The clock is the database's, which all coordinators use.
#[tokio::test]
async fn a_jump_of_the_clock_costs_one_round_on_postgres() {
    jump_costs_one_round(Rows::on_postgres).await;
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

async fn damage_costs_one_round(rows: Rows) {
    let blobs = tempfile::tempdir().unwrap();
    let mut config = rows.config();
    config.blobs.url = format!("file:{}", blobs.path().display());
    let mut federation = Federation::on(rows, config, SEED, 3, &exact(), None, characters(|_| None)).await;
    let before = files(blobs.path());
    let damage = async |_: &mut Federation| {
        let mut inputs = files(blobs.path()).into_iter().filter(|file| !before.contains(file));
        let Some(input) = inputs.next() else { return false };
        let mut bytes = std::fs::read(&input).unwrap();
        bytes[0] ^= 1;
        std::fs::write(input, bytes).unwrap();
        true
    };
    let view = federation.end_after(federation.task, 1, 1, Some(RoundState::Collecting), damage).await;
    goes_on(federation, FailureReason::InputLost, &view).await;
}

#[tokio::test]
async fn a_damaged_input_costs_one_round() {
    damage_costs_one_round(Rows::Memory).await;
}

#[tokio::test]
async fn a_damaged_input_costs_one_round_on_postgres() {
    let Some(rows) = Rows::on_postgres() else { return };
    damage_costs_one_round(rows).await;
}

#[tokio::test]
async fn with_noise_of_their_own_both_tasks_are_answered_and_both_are_charged() {
    let noised = json!({
        "mechanism": "distributed_discrete_gaussian", "noise_multiplier": 1.0, "delta": 1e-5, "clip": { "fixed": 1.0 },
    });
    let mut federation = Federation::new(SEED, 3, &spec(&noised), None, characters(|_| None)).await;
    federation.complete(1).await;
    let again = federation.create_again("another-name", &spec(&noised)).await;
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
