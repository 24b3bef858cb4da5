//! What came of a simulation: only what follows from the experiment, so that two reports of one experiment are equal.

use std::collections::BTreeMap;

use federation::quantile::quantile;
use serde::Serialize;
use wire::{Digest, FailureReason, RoundState};

/// What came of it. Times are virtual, in seconds; bytes are of bodies, in both directions as participants see them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Devices that were enrolled.
    pub population: u32,
    /// Rounds that made a model.
    pub rounds_completed: u32,
    /// Attempts that failed.
    pub rounds_failed: u32,
    /// From the beginning to the end of the last round.
    pub seconds: f64,
    /// Rounds that made a model, per hour.
    pub rounds_per_hour: f64,
    /// What participants sent.
    pub bytes_up: u64,
    /// What participants received.
    pub bytes_down: u64,
    /// How often a device trained, whatever became of it.
    pub trainings: u64,
    /// Updates that were accepted.
    pub updates: u64,
    /// How often a device vanished in the middle of a round.
    pub vanished: u64,
    /// Time that rounds and participants waited.
    pub waiting: WaitingTimes,
    /// How evenly devices took part.
    pub participation: Participation,
    /// The scored models, from the first on.
    pub curve: Vec<Point>,
    /// Whether and when the accuracy asked for was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<Point>,
    /// Every attempt that ended, in order.
    pub rounds: Vec<RoundReport>,
    /// The last model.
    pub model_sha256: Option<Digest>,
    /// Why it ended before all rounds were run, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// One attempt at a round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundReport {
    /// Counts from 1.
    pub number: u32,
    /// Counts from 1.
    pub attempt: u32,
    /// Completed or failed.
    pub state: RoundState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReason>,
    pub ended_at: f64,
    /// From opening to end.
    pub seconds: f64,
    /// How long each phase took.
    pub phases: BTreeMap<&'static str, f64>,
    /// Participants drawn.
    pub cohort: u32,
    /// How many versions the updates were behind on average, where devices train ahead of rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness: Option<f64>,
    /// Updates accepted.
    pub reported: u32,
    /// Participants that dropped out.
    pub dropped: u32,
    /// What participants sent since the round before ended.
    pub bytes_up: u64,
    /// What they received.
    pub bytes_down: u64,
    /// Weighted means over the cohort, by name.
    pub metrics: BTreeMap<String, f64>,
    /// The model it made, scored on the test data, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Likewise: mean cross-entropy, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Of which round; 0 is the first model.
    pub round: u32,
    /// When it was made.
    pub seconds: f64,
    /// What participants had sent and received until then.
    pub bytes: u64,
    /// Part of the test data it gets right.
    pub accuracy: f64,
    /// Mean cross-entropy, in nats.
    pub loss: f64,
}

/// Who waited for what.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WaitingTimes {
    /// Time that rounds spent in each phase, in all.
    pub phases: BTreeMap<&'static str, f64>,
    /// From an accepted update to the end of its round: mean and quantiles over updates.
    pub update_mean: f64,
    /// 10th, 50th and 90th percentile of that.
    pub update_quantiles: [f64; 3],
    /// Of the time between a participant's assignment and its round's end, the part after its update was accepted.
    pub idle_share: f64,
}

/// How evenly devices took part, by the number of updates that were accepted of each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Participation {
    /// Jain's index, (Σx)² / (n·Σx²): 1 if all took part alike, 1/n if one alone did.
    pub jain: f64,
    /// Devices of which no update was accepted.
    pub never: u32,
    /// Least, 10th, 50th, 90th percentile and most over devices.
    pub quantiles: [u32; 5],
}

impl Participation {
    /// Of these counts, one for each device.
    pub(crate) fn of(mut counts: Vec<u32>) -> Self {
        counts.sort_unstable();
        let sum: f64 = counts.iter().map(|count| f64::from(*count)).sum();
        let squares: f64 = counts.iter().map(|count| f64::from(*count).powi(2)).sum();
        let jain = if squares > 0.0 { sum * sum / (counts.len() as f64 * squares) } else { 0.0 };
        let never = counts.iter().filter(|count| **count == 0).count();
        let quantiles = [0.0, 0.1, 0.5, 0.9, 1.0].map(|part| quantile(&counts, part).unwrap_or_default());
        Self { jain, never: u32::try_from(never).unwrap_or(u32::MAX), quantiles }
    }
}

/// What is gathered about waiting.
#[derive(Default)]
pub(crate) struct WaitingSamples {
    /// Of each update, in seconds.
    waited: Vec<f64>,
    /// From assignment to the end of the round, of all together.
    engaged: f64,
}

impl WaitingSamples {
    /// An update's participant was assigned and reported so long before its round's end.
    pub(crate) fn add(&mut self, assigned_before: f64, reported_before: f64) {
        self.waited.push(reported_before);
        self.engaged += assigned_before;
    }

    /// All of it, with the phases of these rounds.
    pub(crate) fn finish(mut self, rounds: &[RoundReport]) -> WaitingTimes {
        let mut phases = BTreeMap::new();
        for (phase, seconds) in rounds.iter().flat_map(|round| &round.phases) {
            *phases.entry(*phase).or_default() += seconds;
        }
        self.waited.sort_by(f64::total_cmp);
        let total: f64 = self.waited.iter().sum();
        WaitingTimes {
            phases,
            update_mean: total / self.waited.len().max(1) as f64,
            update_quantiles: [0.1, 0.5, 0.9].map(|part| quantile(&self.waited, part).unwrap_or_default()),
            idle_share: if self.engaged > 0.0 { total / self.engaged } else { 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_participation_has_index_one_and_uneven_less() {
        assert_eq!(Participation::of(vec![3; 10]).jain, 1.0);
        let uneven = Participation::of(vec![0, 0, 0, 4]);
        assert_eq!((uneven.jain, uneven.never, uneven.quantiles), (0.25, 3, [0, 0, 0, 4, 4]));
        let nobody = Participation::of(vec![0, 0]);
        assert_eq!((nobody.jain, nobody.never), (0.0, 2));
    }

    #[test]
    fn waiting_is_the_part_after_the_update() {
        let mut ledger = WaitingSamples::default();
        ledger.add(10.0, 5.0);
        ledger.add(10.0, 0.0);
        let waiting = ledger.finish(&[]);
        assert_eq!((waiting.update_mean, waiting.idle_share, waiting.update_quantiles), (2.5, 0.25, [0.0, 0.0, 5.0]));
    }
}
