//! The demo's plan: its task, and which participant drops out when.
//!
//! Everything here is a pure function of the command line and the task file; the same ones give the same task and drop-outs.

use std::time::Duration;

use client_sdk::models::Architecture;
use datasets::Dataset;
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use task_spec::{Cohort, MIN_SECURE_COHORT, TaskSpec};

use crate::data::DataArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::privacy_input;
use crate::task_input::{TaskDefaults, TaskInput, ahead_of_rounds};

/// Name of the demo's task, unless a task file has another.
const TASK: &str = "demo";
/// Default number of rounds.
const ROUNDS: u32 = 10;
/// Maximum duration of a training.
const TRAINING: Duration = Duration::from_secs(3600);
/// Maximum duration of a phase; only reached if something is broken.
const DEADLINE_MS: u64 = 3_600_000;
/// Failed attempts at one round before the task is paused.
const MAX_ATTEMPTS: u32 = 3;
/// The same, if a drawn cohort may be too small to begin a round.
const MAX_DRAWS: u32 = 100;
/// Inputs of the plan.
pub(super) struct Plan<'a> {
    pub(super) data: &'a DataArgs,
    /// Participants drawn for a round, if `--cohort` is given.
    pub(super) cohort: Option<u32>,
    /// The task's own settings.
    pub(super) input: &'a TaskInput,
}

/// The task as far as it follows from the arguments, before any data is loaded.
pub(super) struct Draft {
    pub(super) spec: TaskSpec,
    /// Participants drawn for a round.
    pub(super) drawn: u32,
    implied: Value,
}

impl Plan<'_> {
    /// The part of the task that can be checked before any data is loaded.
    pub(super) fn draft(&self) -> Outcome<Draft> {
        let participants = self.data.participants;
        let implied = base();
        let spec = self.input.draft(&implied)?;
        let drawn = self.drawn(&spec)?;
        let (spec, implied) = privacy_input::complete(self.input, implied, spec, drawn, participants)?;
        Ok(Draft { spec, drawn, implied })
    }

    /// Participants drawn for a round.
    fn drawn(&self, spec: &TaskSpec) -> Outcome<u32> {
        let participants = self.data.participants;
        let drawn = match self.input.cohort(spec, participants).or(self.cohort) {
            Some(cohort) if cohort > participants => {
                let detail = format!("--cohort {cohort} is above --participants {participants}");
                return Err(Failure::new(Exit::Usage, detail));
            }
            Some(cohort) => cohort,
            None if spec.ahead().is_some() => (participants / 3).max(MIN_SECURE_COHORT).min(participants),
            None => participants,
        };
        if spec.secure_aggregation.enabled && drawn < MIN_SECURE_COHORT {
            let detail = format!(
                "secure aggregation takes at least {MIN_SECURE_COHORT} participants a round, this demo draws {drawn}: draw more, or \
                 let the coordinator read updates (--insecure-aggregation)"
            );
            return Err(Failure::new(Exit::Usage, detail));
        }
        Ok(drawn)
    }

    /// The task: a round waits for all drawn participants that do not drop out.
    pub(super) fn spec(
        &self,
        architecture: &Architecture,
        description: &str,
        most_examples: usize,
    ) -> Outcome<TaskSpec> {
        let Draft { spec: draft, drawn, implied } = self.draft()?;
        let usual = TaskDefaults {
            architecture,
            source: self.data.source()?,
            description,
            seed: self.data.seed(),
            participants: self.data.participants,
            most_updates: self.data.participants,
            most_examples,
        };
        let phases = json!({
            "secure_aggregation": {
                "share_deadline_ms": DEADLINE_MS,
                "confirm_deadline_ms": DEADLINE_MS,
                "unmask_deadline_ms": DEADLINE_MS,
            },
            "metrics": metrics(&draft),
        });
        let ahead = ahead_of_rounds(&draft, drawn, TRAINING);
        usual.task(
            self.input,
            &draft,
            [implied, phases, self.rounds(&draft, drawn), self.selection(&draft, drawn), ahead],
        )
    }

    fn rounds(&self, draft: &TaskSpec, drawn: u32) -> Value {
        let participants = self.data.participants;
        // The minimum cohort follows from the sampling.
        let is_sampled = draft.privacy.sampling.is_some();
        // A tree allows one participation each, a banded matrix forbids consecutive ones, and counted ones run out.
        let all_return = !draft.privacy.mechanism.is_correlated() && draft.privacy.participations.is_none();
        // Enough updates for a robust rule, if possible.
        let collect_min = if draft.aggregation.robust.is_some() { drawn - drawn / 4 } else { 1 };
        json!({ "rounds": {
            "max_attempts": if is_sampled { MAX_DRAWS } else { MAX_ATTEMPTS },
            "select_min": (!is_sampled && all_return).then_some(participants),
            "select_max": participants,
            "select_deadline_ms": DEADLINE_MS,
            "collect_min": (!is_sampled).then_some(collect_min),
            "collect_max": (!is_sampled).then_some(drawn),
            "collect_deadline_ms": DEADLINE_MS,
            "aggregate_deadline_ms": DEADLINE_MS,
        }})
    }

    /// Seeded selection, unless privacy relies on a secret draw.
    fn selection(&self, draft: &TaskSpec, drawn: u32) -> Value {
        let privacy = &draft.privacy;
        if !privacy.is_private() {
            return json!({ "selection": { "cohort": Cohort::Count(drawn), "seed": self.data.seed() } });
        }
        json!({ "selection": privacy_input::selection(privacy, drawn) })
    }
}

/// A minimal valid task.
pub(super) fn base() -> Value {
    json!({ "name": TASK, "rounds": { "count": ROUNDS } })
}

/// The metrics that participants report; empty in private tasks.
fn metrics(draft: &TaskSpec) -> &'static [&'static str] {
    match &draft.personalization {
        _ if draft.privacy.is_private() => &[],
        None => &["loss", "accuracy", "train_loss"],
        Some(_) => &["loss", "accuracy", "train_loss", "personal_loss", "personal_accuracy"],
    }
}

/// Splits a participant's data into training and held-out parts.
pub(super) fn shards(shards: Vec<Dataset>, held_out: f64, seed: u64) -> Vec<(Dataset, Dataset)> {
    shards.into_iter().map(|shard| shard.split(held_out, seed)).collect()
}

/// The points of a round at which a participant may drop out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// After the assignment.
    Assigned,
    /// After dealing shares (secure aggregation).
    Shared,
    /// After fetching the model.
    Fetched,
    /// After training; the update is in the journal.
    Trained,
    /// After sending half of the update.
    Uploading,
    /// After the update was accepted; with secure aggregation, before signing the included set.
    Reported,
    /// After signing the included set, before opening the sum (secure aggregation).
    Signed,
}

impl Point {
    const ALL: [Self; 7] =
        [Self::Assigned, Self::Shared, Self::Fetched, Self::Trained, Self::Uploading, Self::Reported, Self::Signed];
}

/// Plan of dropouts: each participant drops out of each attempt with a fixed probability, at one of the points.
#[derive(Clone, Copy, Debug)]
pub(super) struct DropPlan {
    pub(super) probability: f64,
    pub(super) seed: u64,
    /// Whether rounds have the phases of secure aggregation.
    pub(super) secure: bool,
}

impl DropPlan {
    /// The point at which this participant drops out, if it does. The included updates are the same with and without
    /// secure aggregation, so both publish the same models.
    pub(super) fn point(&self, round: u32, attempt: u32, participant: u32) -> Option<Point> {
        let mut context = Context::new(&SHA256);
        context.update(b"tributary demo drop");
        context.update(&self.seed.to_le_bytes());
        for number in [round, attempt, participant] {
            context.update(&number.to_le_bytes());
        }
        let digest = context.finish();
        let (words, _) = digest.as_ref().as_chunks::<4>();
        let [chance, point, ..] = words else { return None };
        let chance = f64::from(u32::from_le_bytes(*chance)) / (f64::from(u32::MAX) + 1.0);
        let point = Point::ALL[u32::from_le_bytes(*point) as usize % Point::ALL.len()];
        let point = match point {
            Point::Shared if !self.secure => Point::Assigned,
            Point::Signed if !self.secure => Point::Reported,
            point => point,
        };
        (chance < self.probability).then_some(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_vanishes_follows_from_the_seed_and_happens_as_often_as_asked() {
        for secure in [false, true] {
            follows_from_the_seed(DropPlan { probability: 0.3, seed: 42, secure });
        }
    }

    fn follows_from_the_seed(plan: DropPlan) {
        let all: Vec<_> = (1..=50)
            .flat_map(|round| (0..40).map(move |participant| (round, participant)))
            .map(|(round, participant)| plan.point(round, 1, participant))
            .collect();
        let again: Vec<_> =
            (1..=50).flat_map(|round| (0..40).map(move |participant| plan.point(round, 1, participant))).collect();
        assert_eq!(all, again);
        let dropped = all.iter().flatten().count();
        assert!((500..700).contains(&dropped), "{dropped} of 2000");
        for point in Point::ALL {
            let is_there = plan.secure || !matches!(point, Point::Shared | Point::Signed);
            let found = all.iter().flatten().filter(|found| **found == point).count();
            assert_eq!(found > 50, is_there, "{point:?}: {found}");
        }
        let other = DropPlan { seed: 43, ..plan };
        assert_ne!(
            (0..40).map(|p| plan.point(1, 1, p)).collect::<Vec<_>>(),
            (0..40).map(|p| other.point(1, 1, p)).collect::<Vec<_>>()
        );
        assert_ne!(
            (0..40).map(|p| plan.point(1, 1, p)).collect::<Vec<_>>(),
            (0..40).map(|p| plan.point(1, 2, p)).collect::<Vec<_>>()
        );
        let never = DropPlan { probability: 0.0, seed: 1, ..plan };
        assert!((0..1000).all(|participant| never.point(1, 1, participant).is_none()));
    }
}
