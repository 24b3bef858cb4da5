//! Tests of runs that overlap.

use wire::{Attempt, Digest};

use super::*;

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

#[test]
fn a_run_that_is_left_behind_does_not_end_the_one_that_follows() {
    let task = "00000000-0000-0000-0000-000000000001".parse().unwrap();
    let place = Attempt { task, round: 1, attempt: 1 };
    let id = TrainingId { place, base: Digest([1; 32]), trained: Digest([2; 32]) };
    let log = TrainingLog::new(id, 0, 100, false, Cancel::default(), None);
    let behind = log.begin(&Own, Surroundings::default());
    let next = log.begin(&Own, Surroundings::default());
    log.end(behind);
    assert!(matches!(log.save(behind, 0, b"late", false), Err(NotKept::Over)));
    log.save(next, 0, b"state", false).unwrap();
    log.end(next);
    assert!(matches!(log.save(next, 0, b"late", false), Err(NotKept::Over)));
}
