//! The task that an operator would write for what is simulated.

use std::time::Duration;

use client_sdk::models::Architecture;
use serde_json::json;
use task_spec::{Cohort, TaskSpec};

use super::flags::Simulate;
use crate::command::demo;
use crate::failure::{Exit, Failure, Outcome};
use crate::task_input::{TaskInput, ahead_of_rounds, layered};

/// Name of the task.
const TASK: &str = "simulation";
/// Rounds, where nothing is said.
const ROUNDS: u32 = 20;
/// How long a round waits for participants, and for its own work.
const PATIENCE_MS: u64 = 24 * 3600 * 1000;

/// What was said of the task, and the model for the data.
pub(super) fn task(
    simulate: &Simulate,
    input: &TaskInput,
    architecture: &Architecture,
    most_examples: usize,
    description: &str,
) -> Outcome<TaskSpec> {
    let base = json!({ "name": TASK, "description": description, "rounds": { "count": ROUNDS } });
    let draft = input.draft(&base)?;
    let over_selection = match input.said("selection.over_selection") {
        Some(_) => draft.selection.over_selection,
        None if draft.ahead().is_some() => 0.2,
        None => 0.3,
    };
    let drawn = drawn(simulate, over_selection)?;
    let usual = architecture.usual();
    let own = json!({
        "model": { "seed": simulate.seed },
        "training": { "epochs": usual.epochs, "batch_size": usual.batch_size, "learning_rate": usual.learning_rate },
        "rounds": {
            "select_min": drawn,
            "select_max": drawn,
            "select_deadline_ms": PATIENCE_MS,
            "collect_max": simulate.cohort,
            "collect_deadline_ms": simulate.deadline * 1000,
            "aggregate_deadline_ms": PATIENCE_MS,
        },
        "selection": {
            "cohort": Cohort::Count(simulate.cohort),
            "over_selection": over_selection,
            "seed": simulate.seed,
        },
        "aggregation": {
            "clip_range": demo::clip_range(simulate.data.source()),
            "max_weight": draft.training.weight_cap(demo::max_weight(most_examples, drawn)),
        },
        "metrics": ["train_loss"],
    });
    let ahead = ahead_of_rounds(&draft, drawn, Duration::from_secs(simulate.deadline));
    let mut task = input.over(&layered([base, own, ahead]))?;
    task.training.complete(simulate.population, most_examples);
    if let Some(method) = &mut task.personalization {
        method.complete(&mut task.model.personal, &usual.last_layer, usual.linear_layers);
    }
    input.check(&task)?;
    Ok(task)
}

/// Devices drawn for a round.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is compared below")]
fn drawn(simulate: &Simulate, over_selection: f64) -> Outcome<u32> {
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
