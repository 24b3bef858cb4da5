//! What a region answers about its rounds: its weight, and its metrics. A region is one participant of an upper task, and trains by a
//! regional task.

use federation::round::RoundState;
use task_spec::{PERSONAL_PREFIX, TaskSpec};

use super::{MetricView, RoundView};

/// Prefix of metrics about a training, and not about the model that it began with.
const TRAINING: &str = "train_";

/// The figures of completed regional rounds.
#[derive(Debug, PartialEq)]
pub struct RegionFigures {
    /// Number of completed rounds.
    pub rounds: u32,
    /// The weight of the region: the mean over its rounds.
    pub examples: u64,
    /// Those of the received model from the first round, those of the training from the last one.
    pub metrics: Vec<(String, MetricView)>,
}

impl RegionFigures {
    /// The figures of a task's rounds, in any order; `None` if none was completed.
    #[must_use]
    pub fn of(spec: &TaskSpec, rounds: &[RoundView]) -> Option<Self> {
        let mut completed: Vec<_> = rounds.iter().filter(|round| round.state == RoundState::Completed).collect();
        completed.sort_by_key(|round| round.number);
        let (first, last) = (completed.first()?, completed.last()?);
        let of = |round: &RoundView, is_training: bool| {
            let metrics = round.metrics.iter().filter(|(name, _)| !name.starts_with(PERSONAL_PREFIX));
            let metrics = metrics.filter(|(name, _)| name.starts_with(TRAINING) == is_training);
            metrics.map(|(name, metric)| (name.clone(), *metric)).collect::<Vec<_>>()
        };
        let total: u64 = completed.iter().map(|round| weight(spec, round)).fold(0, u64::saturating_add);
        let count = completed.len() as u64;
        Some(Self {
            rounds: u32::try_from(count).unwrap_or(u32::MAX),
            examples: ((total + count / 2) / count).max(1),
            metrics: of(first, false).into_iter().chain(of(last, true)).collect(),
        })
    }
}

/// The sum of the weights of a round's updates, as far as the coordinator shows it: the number of updates if all of them have
/// the weight 1, else the number of examples behind a metric.
fn weight(spec: &TaskSpec, round: &RoundView) -> u64 {
    let updates = u64::from(round.secure_aggregation.as_ref().map_or(round.reported, |session| session.included));
    if spec.aggregation.max_weight == 1 || spec.privacy.is_private() {
        return updates;
    }
    let counts = |is_training: bool| {
        let metrics = round.metrics.iter().filter(|(name, _)| name.starts_with(TRAINING) == is_training);
        metrics.map(|(_, metric)| metric.count).max()
    };
    counts(true).or_else(|| counts(false)).unwrap_or(updates)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(max_weight: u32) -> TaskSpec {
        serde_json::from_value(json!({ "name": "a", "aggregation": { "max_weight": max_weight } })).unwrap()
    }

    fn round(number: u32, state: &str, metrics: &Value) -> RoundView {
        serde_json::from_value(json!({
            "task": "00000000-0000-0000-0000-000000000001", "number": number, "attempt": 1, "state": state, "failure": null,
            "phases": [], "cohort": 4, "reported": 4, "dropped": 0, "dropped_why": {}, "bytes_up": 1, "bytes_down": 1,
            "metrics": metrics, "base": { "version": number - 1, "sha256": "ab".repeat(32) }, "model": null, "opened_at": 0,
            "ended_at": 1, "seconds": 1.0,
        }))
        .unwrap()
    }

    fn rounds() -> Vec<RoundView> {
        let metrics = |loss: f64, count: u64| {
            json!({ "loss": { "value": loss, "count": count / 10 }, "train_loss": { "value": loss, "count": count },
                    "personal_loss": { "value": 9.0, "count": 9 } })
        };
        vec![
            round(3, "FAILED", &json!({})),
            round(2, "COMPLETED", &metrics(0.5, 301)),
            round(1, "COMPLETED", &metrics(1.5, 200)),
        ]
    }

    #[test]
    fn metrics_of_the_model_are_the_first_rounds_and_those_of_training_the_last() {
        let figures = RegionFigures::of(&spec(1000), &rounds()).unwrap();
        let metric = |value, count| MetricView { value, count };
        let metrics = vec![("loss".to_owned(), metric(1.5, 20)), ("train_loss".to_owned(), metric(0.5, 301))];
        assert_eq!(figures, RegionFigures { rounds: 2, examples: 251, metrics });
    }

    #[test]
    fn updates_of_weight_one_count_one_each() {
        assert_eq!(RegionFigures::of(&spec(1), &rounds()).unwrap().examples, 4);
        assert_eq!(
            RegionFigures::of(&spec(9), &[round(1, "COMPLETED", &json!({}))]).unwrap().examples,
            4,
            "no metrics"
        );
        assert_eq!(RegionFigures::of(&spec(1), &[round(1, "CANCELLED", &json!({}))]), None);
    }
}
