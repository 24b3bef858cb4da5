//! Tests of runs that overlap, and of their saved results.

use wire::{Attempt, Digest};

use super::*;
use crate::clock::SystemClock;

/// An app's own training.
struct Own;

impl Trainer for Own {
    fn train(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        Err(TrainerError::Paused)
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        1
    }
}

/// Of a round of several trainings, whose models have at most so many bytes.
fn log(max_model_bytes: u64) -> TrainingLog {
    let task = "00000000-0000-0000-0000-000000000001".parse().unwrap();
    let place = Attempt { task, round: 1, attempt: 1 };
    let id = TrainingId { place, base: Digest([1; 32]), trained: Digest([2; 32]) };
    TrainingLog::new(id, 0, max_model_bytes, true, Cancel::default(), None)
}

/// Of a model of 40 bytes.
fn result() -> Call {
    Call::Trained { values: Zeroizing::new(vec![0.5; 10]), examples: 1, metrics: Vec::new() }
}

#[test]
fn a_run_that_is_left_behind_does_not_end_the_one_that_follows() {
    let log = log(100);
    let behind = log.begin(&Own, Surroundings::default());
    let next = log.begin(&Own, Surroundings::default());
    log.end(behind);
    assert!(matches!(log.save(behind, 0, b"late", false), Err(NotKept::Over)));
    log.save(next, 0, b"state", false).unwrap();
    log.end(next);
    assert!(matches!(log.save(next, 0, b"late", false), Err(NotKept::Over)));
}

#[test]
fn results_that_checkpoints_have_no_room_for_are_not_kept_and_nothing_is_saved_after_them() {
    let log = log(10);
    let run = log.begin(&Own, Surroundings::default());
    for number in 0..3 {
        log.note(number, result());
    }
    assert!(log.returned(0).is_some() && log.returned(1).is_none());
    assert_eq!(log.inner().calls.len(), 1);
    log.pause();
    assert!(!log.pauses_between(), "the second training would be repeated");
    let saved = log.save(run, 3, b"state", false);
    assert!(matches!(saved, Err(NotKept::TooLarge { bytes: 125, limit: 40 })), "{saved:?}");
}

#[test]
fn a_result_goes_to_the_journal_though_something_was_evaluated_after_it() {
    let log = log(100);
    let clock = Arc::new(SystemClock::new());
    let checkpoints = CheckpointWriter { write: Arc::new(|_| Ok(())), clock, every: Duration::MAX };
    let run = log.begin(&Own, Surroundings { checkpoints: Some(checkpoints), slice: None });
    log.note(0, result());
    log.note(1, Call::Evaluated(Vec::new()));
    log.end(run);
    assert!(log.unwritten().unwrap().is_some());
    assert!(log.unwritten().unwrap().is_none(), "once");
}

#[test]
fn who_asks_whether_there_is_a_state_hears_what_would_be_loaded() {
    let log = Arc::new(log(100));
    let run = log.begin(&Own, Surroundings::default());
    let has_state = |number| {
        let kept = OfRun { log: Arc::clone(&log), run, number };
        assert_eq!(kept.has_state(), kept.load().is_some(), "of call {number}");
        kept.has_state()
    };
    assert!(!has_state(0));
    log.save(run, 0, b"state", false).unwrap();
    assert!(has_state(0) && !has_state(1), "it is that of the call under way");
    log.note(0, result());
    assert!(!has_state(0) && !has_state(1));
}
