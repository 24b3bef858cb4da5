//! The task that an operator would write for what is simulated.

use std::time::Duration;

use client_sdk::models::Architecture;
use task_spec::Cohort;
use task_spec::Strategy;
use task_spec::{ModelSpec, RoundsSpec, SelectionSpec, TaskSpec};

use super::flags::Simulate;
use crate::command::demo;
use crate::failure::{Exit, Failure, Outcome};
use crate::task_file;

/// Name of the task.
const TASK: &str = "simulation";
/// How long a round waits for participants, and for its own work.
const PATIENCE_MS: u64 = 24 * 3600 * 1000;

/// The task.
pub(super) fn task(
    simulate: &Simulate,
    architecture: &Architecture,
    most_examples: usize,
    description: &str,
) -> Outcome<TaskSpec> {
    let sizes = |error: &dyn std::fmt::Display| Failure::new(Exit::Usage, format!("the model's sizes: {error}"));
    let drawn = drawn(simulate)?;
    let model = ModelSpec {
        architecture: Some(serde_json::to_value(architecture).map_err(|error| sizes(&error))?),
        tensors: task_file::declarations(architecture).map_err(|error| sizes(&error))?,
        personal: Vec::new(),
        seed: simulate.seed,
    };
    // What is not said here is as in a task file that does not say it.
    let mut task: TaskSpec = serde_json::from_value(serde_json::json!({ "name": TASK, "model": model }))
        .map_err(Failure::because(Exit::Internal, "the task"))?;
    task.description = description.to_owned();
    task.training = simulate.training.plan(architecture);
    task.rounds = RoundsSpec {
        count: simulate.rounds,
        max_attempts: 0,
        select_min: Some(drawn),
        select_max: drawn,
        select_deadline_ms: PATIENCE_MS,
        collect_min: None,
        collect_max: Some(simulate.cohort),
        collect_deadline_ms: simulate.deadline * 1000,
        aggregate_deadline_ms: PATIENCE_MS,
    };
    task.selection = SelectionSpec {
        cohort: Cohort::Count(simulate.cohort),
        over_selection: over_selection(simulate),
        strategy: strategy(&simulate.selector)?,
        seed: Some(simulate.seed),
        ..SelectionSpec::default()
    };
    task.aggregation.clip_range = demo::clip_range(simulate.data.source());
    task.training = demo::local::complete(task.training, simulate.population, most_examples);
    task.aggregation.max_weight = demo::local::weight_cap(&task.training, demo::max_weight(most_examples, drawn));
    task.secure_aggregation.enabled = !simulate.insecure_aggregation;
    task.metrics = vec!["train_loss".to_owned()];
    simulate.schedule.apply(&mut task, drawn, Duration::from_secs(simulate.deadline))?;
    Ok(task)
}

/// Devices drawn for a round.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is compared below")]
fn drawn(simulate: &Simulate) -> Outcome<u32> {
    let over_selection = over_selection(simulate);
    if !(0.0..=10.0).contains(&over_selection) {
        return Err(Failure::new(Exit::Usage, "--over-selection must be between 0 and 10"));
    }
    // As the coordinator rounds.
    let drawn = (f64::from(simulate.cohort) * (1.0 + over_selection) - 1e-9).ceil() as u32;
    if drawn > simulate.population {
        let detail = format!(
            "--cohort {} with --over-selection {} draws {drawn}, above --population {}",
            simulate.cohort, over_selection, simulate.population
        );
        return Err(Failure::new(Exit::Usage, detail));
    }
    Ok(drawn)
}

fn over_selection(simulate: &Simulate) -> f64 {
    let usual = if simulate.schedule.trains_ahead() { 0.2 } else { 0.3 };
    simulate.over_selection.unwrap_or(usual)
}

/// A selector of the coordinator's, by name or as a table.
fn strategy(text: &str) -> Outcome<Strategy> {
    let name = text.trim().replace('-', "_");
    let parsed = match serde_json::from_str(&name) {
        Ok(value @ serde_json::Value::Object(_)) => serde_json::from_value(value),
        // One that takes numbers takes them from its defaults.
        _ => serde_json::from_value(serde_json::json!(name))
            .or_else(|error| serde_json::from_value(serde_json::json!({ name: {} })).map_err(|_| error)),
    };
    parsed.map_err(|error| Failure::new(Exit::Usage, format!("--selector {text}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_coordinator_does_not_have_is_refused_and_what_it_has_is_named() {
        assert_eq!(strategy("uniform").unwrap(), Strategy::Uniform);
        let failure = strategy("dowsing").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.detail.contains("`uniform`"), "{}", failure.detail);
    }
}
