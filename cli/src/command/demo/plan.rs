//! What the demo asks of the federation: the task it creates, and who vanishes when.
//!
//! Everything here is a pure function of the flags; the same flags give the same task and the same drop-outs.

use client_sdk::models::Architecture;
use datasets::Dataset;
use ring::digest::{Context, SHA256};
use task_spec::Cohort;
use task_spec::{
    AggregationSpec, ModelSpec, RoundsSpec, ScheduleSpec, SecureAggregationSpec, SelectionSpec, ServerOptimizer,
    TaskSpec, TrainingPlan,
};
use task_spec::{PrivacyMechanism, PrivacySpec};

use super::codec::CodecArg;
use super::local::{self, LocalArgs};
use super::personal::Way;
use super::privacy;
use super::robust::RobustArg;
use crate::data::{DataArgs, Source};
use crate::failure::{Exit, Failure, Outcome};
use crate::task_file;

/// Name of the demo's task.
pub(super) const TASK: &str = "demo";
/// How long a phase may take; nothing waits for it unless something is broken.
const DEADLINE_MS: u64 = 3_600_000;
/// Failed attempts at one round before the task is paused.
const MAX_ATTEMPTS: u32 = 3;
/// The same where a cohort may be drawn so small that its round is given up before it begins.
const MAX_DRAWS: u32 = 100;
/// Levels an update's smallest weight keeps, at least, on either side of zero.
const LEVELS: u32 = 256;

/// How participants train; what is left out is chosen for the data and model.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TrainingArgs {
    /// Passes over the own data in a round
    #[arg(long)]
    epochs: Option<u32>,
    /// Examples in a mini-batch
    #[arg(long)]
    batch_size: Option<u32>,
    /// Learning rate
    #[arg(long)]
    lr: Option<f64>,
    /// Momentum of the local optimizer
    #[arg(long, default_value_t = 0.0)]
    momentum: f64,
    /// L2 penalty
    #[arg(long, default_value_t = 0.0)]
    weight_decay: f64,
    /// FedProx: how strongly local models are held to the received one
    #[arg(long, default_value_t = 0.0)]
    proximal_mu: f64,
    #[command(flatten)]
    local: LocalArgs,
}

impl TrainingArgs {
    /// With what suits the model where nothing is said.
    pub(crate) fn plan(&self, architecture: &Architecture) -> TrainingPlan {
        let (epochs, batch_size, lr) = match architecture {
            Architecture::Linear(_) => (1, 10, 0.01),
            Architecture::Mlp(_) => (2, 10, 0.1),
            Architecture::Cnn(_) => (2, 10, 0.05),
            _ => (1, 10, 2.0),
        };
        let plan = TrainingPlan {
            epochs: self.epochs.unwrap_or(epochs),
            steps: None,
            batch_size: self.batch_size.unwrap_or(batch_size),
            learning_rate: self.lr.unwrap_or(lr),
            momentum: self.momentum,
            weight_decay: self.weight_decay,
            proximal_mu: self.proximal_mu,
            ..TrainingPlan::default()
        };
        self.local.apply(plan)
    }
}

/// What the task is made from.
pub(super) struct TaskInput<'a> {
    pub(super) data: &'a DataArgs,
    pub(super) architecture: &'a Architecture,
    pub(super) training: TrainingPlan,
    pub(super) optimizer: ServerOptimizer,
    pub(super) description: String,
    pub(super) rounds: u32,
    /// Participants drawn for a round.
    pub(super) cohort: u32,
    /// Training examples of the participant that has most.
    pub(super) most_examples: usize,
    /// Whether updates are hidden from the coordinator.
    pub(super) secure: bool,
    /// What participants are promised, if anything.
    pub(super) privacy: Option<PrivacySpec>,
    /// In which form updates are uploaded.
    pub(super) codec: Option<&'a CodecArg>,
    /// What takes the place of the mean, if anything.
    pub(super) robust: Option<RobustArg>,
    /// How participants come by models of their own, if they do.
    pub(super) way: Option<&'a Way>,
}

impl TaskInput<'_> {
    /// The task: nobody is drawn in vain, and a round waits for everyone who was drawn and does not vanish.
    pub(super) fn spec(self) -> Outcome<TaskSpec> {
        let participants = self.data.participants;
        let selection = self.selection();
        let training = local::complete(self.training.clone(), participants, self.most_examples);
        let weight_cap = local::weight_cap(&training, max_weight(self.most_examples, participants));
        // Which cohort is waited for follows from how it is sampled.
        let is_sampled = self.privacy.as_ref().is_some_and(|privacy| privacy.sampling.is_some());
        // Whoever was in a tree once never returns, and whoever keeps a distance of rounds not at once.
        let all_return = !self.privacy.as_ref().is_some_and(|privacy| privacy.mechanism.is_correlated());
        let metrics: &[&str] = match self.way {
            _ if self.privacy.is_some() => &[],
            None => &["loss", "accuracy", "train_loss"],
            Some(_) => &["loss", "accuracy", "train_loss", "personal_loss", "personal_accuracy"],
        };
        let sizes = |error: &dyn std::fmt::Display| Failure::new(Exit::Usage, format!("the model's sizes: {error}"));
        let tensors = task_file::declarations(self.architecture).map_err(|error| sizes(&error))?;
        let parameters = tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
        let compression = self.codec.map(|codec| codec.compression(parameters)).transpose()?;
        Ok(TaskSpec {
            name: TASK.to_owned(),
            description: self.description,
            model: ModelSpec {
                architecture: Some(serde_json::to_value(self.architecture).map_err(|error| sizes(&error))?),
                tensors,
                personal: self.way.map(|way| way.personal(self.architecture)).unwrap_or_default(),
                seed: self.data.seed(),
            },
            analytics: None,
            training,
            rounds: RoundsSpec {
                count: self.rounds,
                max_attempts: if is_sampled { MAX_DRAWS } else { MAX_ATTEMPTS },
                select_min: (!is_sampled && all_return).then_some(participants),
                select_max: participants,
                select_deadline_ms: DEADLINE_MS,
                collect_min: (!is_sampled).then_some(self.robust.map_or(1, |robust| robust.collect_min(self.cohort))),
                collect_max: (!is_sampled).then_some(self.cohort),
                collect_deadline_ms: DEADLINE_MS,
                aggregate_deadline_ms: DEADLINE_MS,
            },
            selection,
            personalization: self.way.map(|way| way.method(self.architecture)),
            schedule: ScheduleSpec::default(),
            aggregation: AggregationSpec {
                optimizer: self.optimizer,
                clip_range: clip_range(self.data.data),
                clip_norm: self.codec.and_then(CodecArg::clip_norm),
                max_weight: weight_cap,
                robust: self.robust.map(|robust| robust.0),
                ..AggregationSpec::default()
            },
            secure_aggregation: SecureAggregationSpec {
                enabled: self.secure,
                share_deadline_ms: DEADLINE_MS,
                confirm_deadline_ms: DEADLINE_MS,
                unmask_deadline_ms: DEADLINE_MS,
                ..SecureAggregationSpec::default()
            },
            metrics: metrics.iter().map(|&name| name.to_owned()).collect(),
            compression,
            privacy: self.privacy.unwrap_or_default(),
        })
    }

    /// Who is drawn: repeatably, unless a promise rests on nobody knowing.
    fn selection(&self) -> SelectionSpec {
        let Some(privacy) = &self.privacy else {
            return SelectionSpec {
                cohort: Cohort::Count(self.cohort),
                seed: Some(self.data.seed()),
                ..SelectionSpec::default()
            };
        };
        let mut selection = SelectionSpec { cohort: privacy::cohort(privacy, self.cohort), ..SelectionSpec::default() };
        let limits = match privacy.mechanism {
            PrivacyMechanism::Tree => (1, 0),
            PrivacyMechanism::BandedMatrix => {
                let gap = privacy.separation.map_or(0, |separation| separation.saturating_sub(1));
                (privacy.participations.unwrap_or_default(), gap)
            }
            PrivacyMechanism::None
            | PrivacyMechanism::CentralGaussian
            | PrivacyMechanism::DistributedDiscreteGaussian
            | PrivacyMechanism::DistributedSkellam
            | PrivacyMechanism::Local => (0, 0),
        };
        (selection.require.max_participations, selection.require.min_gap_rounds) = limits;
        selection
    }
}

/// How far one coordinate moves in a round at most: generous, since a clipped update is a biased one.
pub(crate) fn clip_range(source: Source) -> f32 {
    match source {
        Source::Synthetic | Source::Text => 4.0,
        Source::Mnist => 1.0,
    }
}

/// Updates weigh as many as their examples, as far as the sum of all participants leaves room.
pub(crate) fn max_weight(most_examples: usize, participants: u32) -> u32 {
    let room = (u32::MAX >> 1) / LEVELS / participants.max(1);
    u32::try_from(most_examples).unwrap_or(u32::MAX).clamp(1, room.max(1))
}

/// The data of one participant, split in what it trains on and what it evaluates on.
pub(super) fn shards(shards: Vec<Dataset>, held_out: f64, seed: u64) -> Vec<(Dataset, Dataset)> {
    shards.into_iter().map(|shard| shard.split(held_out, seed)).collect()
}

/// At which point of a round a participant vanishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// It has its assignment.
    Assigned,
    /// It has dealt shares of its secrets (secure aggregation).
    Shared,
    /// It has the model.
    Fetched,
    /// It has trained, its update is in its journal.
    Trained,
    /// Half of its update is on the wire.
    Uploading,
    /// Its update was accepted; with secure aggregation it is missed when the included set is signed.
    Reported,
    /// It has signed the included set, and is missed when the sum is opened (secure aggregation).
    Signed,
}

impl Point {
    const ALL: [Self; 7] =
        [Self::Assigned, Self::Shared, Self::Fetched, Self::Trained, Self::Uploading, Self::Reported, Self::Signed];
}

/// Who vanishes when: each participant in each attempt at a round, with a fixed probability, at one of the points.
#[derive(Clone, Copy, Debug)]
pub(super) struct DropPlan {
    pub(super) probability: f64,
    pub(super) seed: u64,
    /// Whether rounds have the phases of secure aggregation.
    pub(super) secure: bool,
}

impl DropPlan {
    /// Where this participant vanishes, if it does. Whose updates are included is the same with and without secure
    /// aggregation, so both publish the same models.
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

    #[test]
    fn weights_leave_room_for_everybody() {
        assert_eq!(max_weight(4500, 20), 4500);
        for (examples, participants) in [(5000, 10_000), (usize::MAX, 1), (0, 7)] {
            let weight = u64::from(max_weight(examples, participants));
            assert!(weight >= 1 && weight * u64::from(participants) * u64::from(LEVELS) < 1 << 31);
        }
    }
}
