//! A task's defaults for a model, its data and the number of participants: the layer below everything the user sets.

use std::time::Duration;

use client_sdk::models::Architecture;
use serde_json::{Value, json};
use task_spec::{Cohort, MAX_COHORT, MAX_SECURE_COHORT, TaskSpec};

use super::TaskInput;
use super::table::{Table, cover};
use crate::data::Source;
use crate::failure::Outcome;

/// Time that a round waits for updates that are already finished.
const COLLECT_MS: u64 = 60_000;
/// Period of rounds that open by the clock.
const PERIOD_MS: u64 = 60_000;
/// Minimum number of levels, on either side of zero, of an update with the smallest weight.
const LEVELS: u32 = 256;

/// Inputs of a task's defaults.
pub(crate) struct TaskDefaults<'a> {
    pub(crate) architecture: &'a Architecture,
    pub(crate) source: Source,
    pub(crate) description: &'a str,
    /// Seed of the model's initial values and, without privacy, of the draw of cohorts.
    pub(crate) seed: u64,
    pub(crate) participants: u32,
    /// Maximum number of updates in a sum.
    pub(crate) most_updates: u32,
    /// Maximum number of training examples of a participant.
    pub(crate) most_examples: usize,
}

impl TaskDefaults<'_> {
    /// The task: settings from `input`, else from `parts` (later ones override earlier ones), else the defaults.
    ///
    /// # Errors
    /// As [`TaskInput::over`] and [`TaskInput::check`].
    pub(crate) fn task(
        &self,
        input: &TaskInput,
        draft: &TaskSpec,
        parts: impl IntoIterator<Item = Value>,
    ) -> Outcome<TaskSpec> {
        let defaults = self.architecture.defaults();
        let mut whole = self.implied(draft);
        parts.into_iter().for_each(|part| cover(&mut whole, part.as_object().cloned().unwrap_or_default()));
        let mut task = input.over(&Value::Object(whole))?;
        task.training.complete(self.participants, self.most_examples);
        if let Some(method) = &mut task.personalization {
            method.complete(&mut task.model.personal, &defaults.last_layer, &defaults.linear_layers);
        }
        input.check(&task)?;
        Ok(task)
    }

    fn implied(&self, draft: &TaskSpec) -> Table {
        let defaults = self.architecture.defaults();
        let implied = json!({
            "description": self.description,
            "model": { "seed": self.seed },
            "training": { "epochs": defaults.epochs, "batch_size": defaults.batch_size, "learning_rate": defaults.learning_rate },
            "aggregation": {
                "clip_range": clip_range(self.source),
                "max_weight": draft.training.weight_cap(max_weight(self.most_examples, self.most_updates)),
            },
        });
        implied.as_object().cloned().unwrap_or_default()
    }
}

/// Maximum change of a coordinate in a round: generous, since clipping biases updates.
fn clip_range(source: Source) -> f32 {
    match source {
        Source::Synthetic | Source::Text => 4.0,
        Source::Mnist => 1.0,
    }
}

/// Updates are weighted by their examples, up to the headroom of the sum.
pub(crate) fn max_weight(most_examples: usize, most_updates: u32) -> u32 {
    let room = (u32::MAX >> 1) / LEVELS / most_updates.max(1);
    u32::try_from(most_examples).unwrap_or(u32::MAX).clamp(1, room.max(1))
}

/// Values implied by rounds for which participants train ahead, given that a round opens with `drawn` updates and a
/// training may take `training`; empty where participants train in rounds.
pub(crate) fn ahead_of_rounds(draft: &TaskSpec, drawn: u32, training: Duration) -> Value {
    let Some(ahead) = draft.ahead() else { return json!({}) };
    let training_ms = u64::try_from(training.as_millis()).unwrap_or(u64::MAX);
    let concurrency = draft.schedule.concurrency.unwrap_or_else(|| drawn.saturating_mul(2));
    let mut implied = json!({
        "schedule": { "concurrency": concurrency, "training_deadline_ms": training_ms },
        // The updates are finished when the round begins.
        "rounds": { "collect_deadline_ms": COLLECT_MS, "select_min": drawn },
    });
    if ahead.period.is_some() {
        // As many as there are.
        let most = if draft.secure_aggregation.enabled { MAX_SECURE_COHORT } else { MAX_COHORT };
        implied["schedule"]["period_ms"] = PERIOD_MS.into();
        implied["selection"] = json!({ "cohort": Cohort::Fraction(1.0) });
        implied["rounds"]["select_max"] = concurrency.max(drawn).min(most).into();
        implied["rounds"]["collect_max"] = Value::Null;
    }
    implied
}

#[cfg(test)]
mod tests {
    use task_spec::Mode;

    use super::*;

    fn implied(schedule: &Value) -> (TaskSpec, Value) {
        let task: TaskSpec = serde_json::from_value(json!({ "name": "t", "schedule": schedule })).unwrap();
        let implied = ahead_of_rounds(&task, 13, Duration::from_secs(600));
        (task, implied)
    }

    #[test]
    fn a_schedule_implies_how_rounds_open() {
        assert_eq!(implied(&json!({})).1, json!({}));
        let (task, buffered) = implied(&json!({ "mode": "buffered" }));
        assert_eq!(task.schedule.mode, Mode::Buffered);
        assert_eq!(buffered["schedule"], json!({ "concurrency": 26, "training_deadline_ms": 600_000 }));
        assert_eq!(buffered["rounds"], json!({ "collect_deadline_ms": 60_000, "select_min": 13 }));
        let (_, semi) = implied(&json!({ "mode": "semi_sync", "concurrency": 20 }));
        assert_eq!(semi["schedule"]["period_ms"], 60_000);
        assert_eq!(semi["selection"]["cohort"], json!({ "fraction": 1.0 }), "all that is ready");
        assert_eq!((&semi["rounds"]["select_max"], &semi["rounds"]["collect_max"]), (&json!(20), &Value::Null));
    }

    #[test]
    fn weights_leave_room_for_everybody() {
        assert_eq!(max_weight(4500, 20), 4500);
        for (examples, participants) in [(5000, 10_000), (usize::MAX, 1), (0, 7)] {
            let weight = u64::from(max_weight(examples, participants));
            assert!(weight >= 1 && weight * u64::from(participants) * u64::from(LEVELS) < 1 << 31);
        }
    }
}
