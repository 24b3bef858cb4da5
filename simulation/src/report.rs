//! The result of a simulation: a function of the experiment, so two reports of one experiment are equal.

use std::collections::BTreeMap;

use federation::quantile::quantile;
use serde::Serialize;
use task_spec::PrivacyMechanism;
use wire::inspect::EpsilonView;
use wire::{Digest, FailureReason, RoundState};

/// Result of a simulation. Times are virtual, in seconds; bytes are those of request and response bodies, from the
/// participants' point of view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Number of enrolled devices.
    pub population: u32,
    /// Number of completed rounds.
    pub rounds_completed: u32,
    /// Failed attempts at rounds.
    pub rounds_failed: u32,
    /// Time from the beginning to the end of the last round.
    pub seconds: f64,
    /// Completed rounds per hour.
    pub rounds_per_hour: f64,
    /// Bytes sent by participants.
    pub bytes_up: u64,
    /// Bytes received by participants.
    pub bytes_down: u64,
    /// Number of trainings, whatever their result.
    pub trainings: u64,
    /// Number of accepted updates.
    pub updates: u64,
    /// Number of dropouts of devices within a round.
    pub vanished: u64,
    /// Waiting times of rounds and participants.
    pub waiting: WaitingTimes,
    /// How evenly devices took part.
    pub participation: Participation,
    /// The evaluated models, from the first on.
    pub curve: Vec<Point>,
    /// When the target accuracy was reached, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<Point>,
    /// Every attempt that ended, in order.
    pub rounds: Vec<RoundReport>,
    /// SHA-256 of the last model.
    pub model_sha256: Option<Digest>,
    /// What a private task has spent; absent without a mechanism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacySpending>,
    /// The regions, if there are any. Then all other figures are those of the upper task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionReport>,
    /// Why the simulation ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// What a region did in all rounds of the upper task.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RegionReport {
    /// Number of its devices.
    pub population: u32,
    /// Number of regional tasks that ended, and of their rounds.
    pub tasks: u32,
    pub rounds_completed: u32,
    pub rounds_failed: u32,
    /// Longest time of a task, in virtual seconds.
    pub longest: f64,
    /// Bytes sent and received by its devices.
    pub bytes_up: u64,
    pub bytes_down: u64,
    /// Trainings of its devices, accepted updates, and dropouts.
    pub trainings: u64,
    pub updates: u64,
    pub vanished: u64,
}

impl RegionReport {
    /// Adds a regional task.
    pub(crate) fn add(&mut self, task: &Report) {
        self.tasks += 1;
        self.rounds_completed += task.rounds_completed;
        self.rounds_failed += task.rounds_failed;
        self.longest = self.longest.max(task.seconds);
        self.bytes_up += task.bytes_up;
        self.bytes_down += task.bytes_down;
        self.trainings += task.trainings;
        self.updates += task.updates;
        self.vanished += task.vanished;
    }
}

/// What a private task has spent, from the coordinator's ledger.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrivacySpending {
    pub mechanism: PrivacyMechanism,
    pub noise_multiplier: Option<f64>,
    pub delta: f64,
    /// The most that epsilon may reach; absent if spending is only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Published, to those who know the cohorts, and to the coordinator where there is a figure.
    pub epsilon: EpsilonView,
}

/// One attempt at a round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundReport {
    /// From 1.
    pub number: u32,
    /// From 1.
    pub attempt: u32,
    /// Completed or failed.
    pub state: RoundState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureReason>,
    pub ended_at: f64,
    /// Time from opening to end.
    pub seconds: f64,
    /// Duration of each phase.
    pub phases: BTreeMap<&'static str, f64>,
    /// Number of participants drawn.
    pub cohort: u32,
    /// Mean staleness of updates in versions, with training ahead of rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness: Option<f64>,
    /// Number of updates accepted.
    pub reported: u32,
    /// Participants that dropped out.
    pub dropped: u32,
    /// Bytes sent by participants since the previous round ended.
    pub bytes_up: u64,
    /// Bytes received by participants since then.
    pub bytes_down: u64,
    /// Privacy spent after the round, in a private task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<EpsilonView>,
    /// Weighted means over the cohort, by name.
    pub metrics: BTreeMap<String, f64>,
    /// Accuracy of the round's model on the test data, if evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Mean cross-entropy on the test data, in nats, if evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The model's round; 0 for the first model.
    pub round: u32,
    /// Time of the model's publication.
    pub seconds: f64,
    /// Bytes sent and received by participants until then.
    pub bytes: u64,
    /// Fraction of the test data classified correctly.
    pub accuracy: f64,
    /// Mean cross-entropy, in nats.
    pub loss: f64,
}

/// Time that rounds and participants spent waiting.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WaitingTimes {
    /// Total time of rounds in each phase.
    pub phases: BTreeMap<&'static str, f64>,
    /// Mean time from an accepted update to the end of its round, over updates.
    pub update_mean: f64,
    /// 10th, 50th and 90th percentile of that time.
    pub update_quantiles: [f64; 3],
    /// Fraction of the time between a participant's assignment and its round's end that comes after its update was
    /// accepted.
    pub idle_share: f64,
}

/// Fairness of participation, by the number of accepted updates per device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Participation {
    /// Jain's index, (Σx)² / (n·Σx²): 1 if all took part alike, 1/n if one alone did.
    pub jain: f64,
    /// Number of devices without an accepted update.
    pub never: u32,
    /// Minimum, 10th, 50th and 90th percentile, and maximum over devices.
    pub quantiles: [u32; 5],
}

impl Participation {
    /// Computes the fairness of these counts, one per device.
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

/// Samples of waiting times.
#[derive(Default)]
pub(crate) struct WaitingSamples {
    /// Waiting time of each update, in seconds.
    waited: Vec<f64>,
    /// Total time from assignments to the ends of rounds, in seconds.
    engaged: f64,
}

impl WaitingSamples {
    /// Adds an update whose participant was assigned and reported this many seconds before its round's end.
    pub(crate) fn add(&mut self, assigned_before: f64, reported_before: f64) {
        self.waited.push(reported_before);
        self.engaged += assigned_before;
    }

    /// The waiting times, with the phases of these rounds.
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
