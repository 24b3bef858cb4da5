//! A task, and what follows from it alone.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::selection::round_up;
use crate::{
    AggregationSpec, Ahead, Analytics, Cohort, Compression, MAX_COHORT, MAX_SECURE_COHORT, MIN_SECURE_COHORT, Mode,
    ModelSpec, Personalization, PrivacyMechanism, PrivacySpec, RoundsSpec, ScheduleSpec, SecureAggregationSpec,
    SelectionSpec, Staleness, TrainingPlan, USUAL_SECURE_COHORT,
};

/// A task as an operator writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskSpec {
    /// What people call it: 1 to 64 letters, digits, `-`, `_`, `.`; unique among tasks that are not over.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// What is trained.
    #[serde(default)]
    pub model: ModelSpec,
    /// What is computed instead of a trained model: statistics, clusters or trees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analytics: Option<Analytics>,
    /// How participants train.
    #[serde(default)]
    pub training: TrainingPlan,
    /// How many rounds and how long each may take.
    #[serde(default)]
    pub rounds: RoundsSpec,
    /// When rounds open, and whether participants train in them or ahead of them.
    #[serde(default, skip_serializing_if = "ScheduleSpec::is_silent")]
    pub schedule: ScheduleSpec,
    /// Who takes part.
    #[serde(default)]
    pub selection: SelectionSpec,
    /// How updates become a new model version.
    #[serde(default)]
    pub aggregation: AggregationSpec,
    /// Whether and how updates are hidden from the coordinator.
    #[serde(default)]
    pub secure_aggregation: SecureAggregationSpec,
    /// In which form updates are uploaded. Default: a word per parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// How each participant comes by a model of its own. Without it, tensors of `model.personal` just stay at home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personalization: Option<Personalization>,
    /// What the published models must not tell about a participant.
    #[serde(default, skip_serializing_if = "PrivacySpec::is_silent")]
    pub privacy: PrivacySpec,
    /// Names of the weighted means that participants report, in the order they travel.
    #[serde(default = "default_metrics")]
    pub metrics: Vec<String>,
}

/// Metrics of the SDK's own trainer: loss and accuracy of the received model on held-out data, and the training loss.
fn default_metrics() -> Vec<String> {
    ["loss", "accuracy", "train_loss"].map(str::to_owned).to_vec()
}

/// How a cohort is drawn from those eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Participants to assign, over-selection included.
    pub cohort: u32,
    /// Masked inputs with which collection closes early.
    pub collect_max: u32,
}

impl TaskSpec {
    /// Whether participants tell their last training loss, coarsely, with each check-in.
    #[must_use]
    pub fn reports_utility(&self) -> bool {
        let selection = &self.selection;
        selection.report_utility || (selection.strategy.follows_the_loss() && !self.secure_aggregation.enabled)
    }

    /// b: updates are sums modulo 2^b.
    #[must_use]
    pub fn modulus_bits(&self) -> u8 {
        let own = self.secure_aggregation.enabled.then_some(self.secure_aggregation.modulus_bits).flatten();
        own.unwrap_or(self.aggregation.modulus_bits)
    }

    /// Each coordinate of an update is clipped to ± this.
    #[must_use]
    pub fn clip_range(&self) -> f32 {
        let own = self.secure_aggregation.enabled.then_some(self.secure_aggregation.clip_range).flatten();
        own.unwrap_or(self.aggregation.clip_range)
    }

    /// How many to draw and how many inputs to aim at, given how many are eligible.
    #[must_use]
    pub fn draw(&self, eligible: u32) -> Draw {
        let target = self.selection.cohort.target(eligible).min(self.rounds.select_max);
        let wanted = round_up(f64::from(target) * (1.0 + self.selection.over_selection));
        let cohort = wanted.max(target).min(self.rounds.select_max).min(eligible);
        // Whole groups.
        let cohort = self.group_size().map_or(cohort, |size| cohort - cohort % size);
        Draw { cohort, collect_max: self.rounds.collect_max.unwrap_or(target) }
    }

    /// s: how many participants share a session of secure aggregation, where the cohort is divided into groups.
    #[must_use]
    pub fn group_size(&self) -> Option<u32> {
        let size = self.aggregation.robust.as_ref().and_then(|robust| robust.group_size);
        size.filter(|size| self.secure_aggregation.enabled && *size > 0)
    }

    /// Fewest participants that a session of secure aggregation starts with: what `secure_aggregation.min_cohort` says. Without it
    /// [`USUAL_SECURE_COHORT`] where every cohort that is drawn has so many, and 3 where not: then a member that turns out to be none
    /// may be missing from the roster.
    #[must_use]
    pub fn session_min(&self) -> u32 {
        if let Some(least) = self.group_size().or(self.secure_aggregation.min_cohort) {
            return least;
        }
        // How many a sample has depends on chance.
        let is_usual = self.privacy.sampling.is_none() && self.draw(self.select_min()).cohort >= USUAL_SECURE_COHORT;
        if is_usual { USUAL_SECURE_COHORT } else { MIN_SECURE_COHORT }
    }

    /// Eligible participants without which no cohort is drawn.
    #[must_use]
    pub fn select_min(&self) -> u32 {
        self.rounds.select_min.unwrap_or(match self.selection.cohort {
            Cohort::Count(count) => count,
            Cohort::Fraction(_) if self.secure_aggregation.enabled => self.smallest_drawing(),
            Cohort::Fraction(_) => 2,
        })
    }

    /// Masked inputs without which a round fails.
    #[must_use]
    pub fn collect_min(&self) -> u32 {
        self.rounds.collect_min.unwrap_or(self.smallest_target().div_ceil(2))
    }

    /// Masked inputs with which collection closes early, before a cohort is drawn.
    #[must_use]
    pub fn collect_max(&self) -> u32 {
        self.rounds.collect_max.unwrap_or(self.rounds.select_max)
    }

    /// How many must be eligible for a fraction of them to make a cohort of secure aggregation.
    fn smallest_drawing(&self) -> u32 {
        let wanted = self.secure_aggregation.min_cohort.unwrap_or(MIN_SECURE_COHORT).min(MAX_SECURE_COHORT);
        (wanted..=self.rounds.select_max.max(wanted))
            .find(|&eligible| self.draw(eligible).cohort >= wanted)
            .unwrap_or(wanted)
    }

    /// Inputs a round aims at when it opens with as few participants as it may.
    fn smallest_target(&self) -> u32 {
        self.selection.cohort.target(self.select_min())
    }

    /// How participants train ahead of rounds; none if they train in them.
    #[must_use]
    pub fn ahead(&self) -> Option<Ahead> {
        let schedule = &self.schedule;
        let period = match schedule.mode {
            Mode::Sync => return None,
            Mode::Buffered => None,
            Mode::SemiSync => Some(Duration::from_millis(schedule.period_ms.unwrap_or_default())),
        };
        let concurrency = schedule.concurrency.unwrap_or_else(|| self.select_min().saturating_mul(2).min(MAX_COHORT));
        let staleness = Staleness {
            a: schedule.staleness_a.unwrap_or(1.0),
            p: schedule.staleness_p.unwrap_or(0.5),
            max: schedule.max_staleness.unwrap_or(10),
        };
        let training_deadline = Duration::from_millis(schedule.training_deadline_ms.unwrap_or(600_000));
        Some(Ahead { period, concurrency, staleness, training_deadline })
    }

    /// Whether the published figure gains anything from sampling: only where nothing about the draw can keep its release
    /// from being made, and whether somebody was drawn shows in nothing but its update. A session of secure aggregation needs so many
    /// participants, and noise that participants add tells how many they were.
    #[must_use]
    pub fn sampling_amplifies(&self) -> bool {
        let by_coordinator = self.privacy.mechanism == PrivacyMechanism::CentralGaussian;
        by_coordinator && self.privacy.sampling.is_some() && !self.secure_aggregation.enabled
    }

    /// Whether updates of one participant must be so many rounds apart that two attempts at one round are too close: no number is
    /// tried again then that somebody may have sent an update for.
    #[must_use]
    pub fn keeps_updates_apart(&self) -> bool {
        let privacy = &self.privacy;
        // Who takes part once is drawn once.
        let is_once = privacy.participations == Some(1);
        privacy.mechanism == PrivacyMechanism::BandedMatrix
            && !is_once
            && privacy.separation.is_some_and(|apart| apart > 1)
    }
}
