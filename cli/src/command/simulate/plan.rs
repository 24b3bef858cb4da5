//! The task that an operator would write for the simulated federation.

use std::time::Duration;

use client_sdk::models::Architecture;
use serde_json::{Value, json};
use simulation::{DeviceModel, Regions, Trace};
use task_spec::{
    AggregationSpec, Cohort, MAX_COHORT, MAX_SECURE_COHORT, PrivacySpec, RoundsSpec, ScheduleSpec,
    SecureAggregationSpec, SelectionSpec, TaskSpec, TrainingPlan,
};

use super::flags::Simulate;
use super::pool::DeviceData;
use crate::command::region;
use crate::failure::{Exit, Failure, Outcome};
use crate::privacy_input;
use crate::task_input::{TaskDefaults, TaskInput, ahead_of_rounds, layered, max_weight};

/// Name of the task.
const TASK: &str = "simulation";
/// Default number of updates that a round aims at.
const COHORT: u32 = 50;
/// Default number of rounds.
const ROUNDS: u32 = 20;
/// Default number of regional rounds in a round among regions.
const REGIONAL_ROUNDS: u32 = 5;
/// Links between coordinators, which are always there.
const LINKS: DeviceModel = DeviceModel {
    trace: Trace::Always,
    examples_per_second: 1.0,
    speed_spread: 0.0,
    down_mbps: 100.0,
    up_mbps: 100.0,
    round_trip_ms: 60.0,
    link_spread: 0.0,
    dropout: 0.0,
    away: Duration::ZERO,
};
/// How long a round waits for participants, and for its own work.
const PATIENCE_MS: u64 = 24 * 3600 * 1000;

/// The task from the flags, for the model and the data that are dealt; and the number of updates that a round aims at.
pub(super) fn task(
    simulate: &Simulate,
    input: &TaskInput,
    architecture: &Architecture,
    dealt: &DeviceData,
) -> Outcome<(TaskSpec, u32)> {
    let base = json!({ "name": TASK, "rounds": { "count": ROUNDS } });
    let draft = input.draft(&base)?;
    let is_private = draft.privacy.is_private() || input.has("privacy");
    let over_selection = match input.value_of("selection.over_selection") {
        Some(_) => draft.selection.over_selection,
        // A private task's noise is laid for its cohort.
        None if is_private => 0.0,
        None if draft.ahead().is_some() => 0.2,
        None => 0.3,
    };
    let cohort = input.cohort(&draft, simulate.devices()).or(simulate.cohort).unwrap_or(COHORT);
    let drawn = drawn(simulate, cohort, over_selection)?;
    let (draft, base) = privacy_input::complete(input, base, draft, cohort, simulate.devices())?;
    // A sample may be of any size.
    let most = if draft.secure_aggregation.enabled { MAX_SECURE_COHORT } else { MAX_COHORT };
    let most_updates = if draft.privacy.sampling.is_some() { simulate.devices().min(most) } else { drawn };
    let own = match draft.privacy.is_private() {
        true => private(simulate, &draft.privacy, [cohort, drawn], most_updates),
        false => json!({
            "rounds": {
                "select_min": drawn,
                "select_max": drawn,
                "select_deadline_ms": PATIENCE_MS,
                "collect_max": cohort,
                "collect_deadline_ms": simulate.deadline * 1000,
                "aggregate_deadline_ms": PATIENCE_MS,
            },
            "selection": {
                "cohort": Cohort::Count(cohort),
                "over_selection": over_selection,
                "seed": simulate.seed,
            },
            "metrics": ["train_loss"],
        }),
    };
    let usual = TaskDefaults {
        architecture,
        source: simulate.data.source(),
        description: &dealt.description,
        seed: simulate.seed,
        participants: simulate.devices(),
        most_updates,
        most_examples: dealt.most_examples,
    };
    let ahead = ahead_of_rounds(&draft, drawn, Duration::from_secs(simulate.deadline));
    Ok((usual.task(input, &draft, [base, own, ahead])?, cohort))
}

/// The regions, given the task that their devices would have without them. It becomes that of a region in a round among regions.
pub(super) fn regions(simulate: &Simulate, count: u32, task: &mut TaskSpec, dealt: &DeviceData) -> Outcome<Regions> {
    let wrong = |field: &str, detail: &str| {
        let failure = Failure::new(Exit::Usage, "the task cannot be that of regions".to_owned());
        Err(failure.with_error(field, detail.to_owned()))
    };
    if let Err((field, detail)) = region::check(task) {
        return wrong(field, detail);
    }
    if task.privacy.is_private() {
        return wrong(
            "privacy",
            "the budget of a regional task ends with its round: simulate one region with --privacy",
        );
    }
    if task.secure_aggregation.enabled && count < 3 {
        return wrong(
            "secure_aggregation",
            "masks among regions need three of them: --regions 3, or --insecure-aggregation",
        );
    }
    let (rounds, regional) = (task.rounds.count, simulate.regional_rounds.unwrap_or(REGIONAL_ROUNDS));
    task.rounds.count = regional;
    let training_ms = simulate.deadline.saturating_mul(1000).saturating_mul(regional.into());
    let largest = simulate.population.div_ceil(count) as usize;
    let mut upper = task.clone();
    upper.training = TrainingPlan::default();
    upper.schedule = ScheduleSpec::default();
    upper.compression = None;
    upper.rounds = RoundsSpec {
        count: rounds,
        select_min: Some(count),
        select_max: count,
        select_deadline_ms: PATIENCE_MS,
        collect_max: Some(count),
        collect_deadline_ms: training_ms.saturating_add(PATIENCE_MS),
        aggregate_deadline_ms: PATIENCE_MS,
        ..RoundsSpec::default()
    };
    upper.selection =
        SelectionSpec { cohort: Cohort::Count(count), seed: Some(simulate.seed), ..SelectionSpec::default() };
    upper.aggregation = AggregationSpec {
        max_weight: max_weight(dealt.most_examples.saturating_mul(largest), count),
        clip_range: task.aggregation.clip_range,
        ..AggregationSpec::default()
    };
    upper.secure_aggregation = SecureAggregationSpec {
        enabled: task.secure_aggregation.enabled,
        // A tenth of few regions would be one, and one in three is too many.
        max_corrupt_fraction: if count < 10 { 0.0 } else { SecureAggregationSpec::default().max_corrupt_fraction },
        ..SecureAggregationSpec::default()
    };
    Ok(Regions { count, task: upper, links: LINKS })
}

/// Rounds and selection of a private task: metrics stay on the participants, and a sample follows from the privacy
/// settings alone. Such a round is drawn when the time of selection is over, from the devices that are there.
fn private(simulate: &Simulate, privacy: &PrivacySpec, [cohort, drawn]: [u32; 2], most: u32) -> Value {
    let deadline_ms = simulate.deadline * 1000;
    let mut rounds = json!({ "collect_deadline_ms": deadline_ms, "aggregate_deadline_ms": PATIENCE_MS });
    let more = match privacy.sampling {
        // Too few may be there for a draw, at night's end for example: it is tried again.
        Some(_) => json!({ "max_attempts": 0, "select_max": most, "select_deadline_ms": deadline_ms }),
        None => json!({
            "select_min": drawn, "select_max": drawn, "select_deadline_ms": PATIENCE_MS, "collect_max": cohort,
        }),
    };
    rounds = layered([rounds, more]);
    json!({ "rounds": rounds, "selection": privacy_input::selection(privacy, cohort), "metrics": [] })
}

/// Devices drawn for a round.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is compared below")]
fn drawn(simulate: &Simulate, cohort: u32, over_selection: f64) -> Outcome<u32> {
    if !(0.0..=10.0).contains(&over_selection) {
        return Err(Failure::new(Exit::Usage, "--over-selection must be between 0 and 10"));
    }
    // As the coordinator rounds.
    let drawn = (f64::from(cohort) * (1.0 + over_selection) - 1e-9).ceil() as u32;
    if drawn > simulate.devices() {
        let divided = simulate.regions.map_or_else(String::new, |regions| format!(" in {regions} regions"));
        let detail = format!(
            "--cohort {cohort} with --over-selection {over_selection} draws {drawn}, above --population {}{divided}",
            simulate.population
        );
        return Err(Failure::new(Exit::Usage, detail));
    }
    Ok(drawn)
}
