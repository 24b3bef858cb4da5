//! A task specification, and its derived values.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::server::selection::round_up;
use crate::{
    AggregationSpec, Ahead, Analytics, Cohort, Compression, Criterion, MAX_COHORT, MAX_SECURE_COHORT,
    MIN_SECURE_COHORT, Mode, ModelSpec, NoisedBy, Personalization, PrivacySpec, Retain, RoundsSpec, ScheduleSpec,
    SecureAggregationSpec, SelectionSpec, Staleness, TABLE_VERSION, TableSpec, TrainingPlan, USUAL_SECURE_COHORT,
};

/// A task as the operator writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskSpec {
    /// Display name: 1 to 64 letters, digits, `-`, `_`, `.`; unique among tasks that are not over.
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub model: ModelSpec,
    /// The analysis to compute instead of training a model: statistics, clusters, trees, or the evaluation of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analytics: Option<Analytics>,
    #[serde(default)]
    pub training: TrainingPlan,
    /// Number of rounds, and the limits of each phase.
    #[serde(default)]
    pub rounds: RoundsSpec,
    /// When rounds open, and whether participants train within them or ahead of them.
    #[serde(default, skip_serializing_if = "ScheduleSpec::is_silent")]
    pub schedule: ScheduleSpec,
    #[serde(default)]
    pub selection: SelectionSpec,
    /// How updates become a new model version.
    #[serde(default)]
    pub aggregation: AggregationSpec,
    /// Whether and how updates are hidden from the coordinator.
    #[serde(default)]
    pub secure_aggregation: SecureAggregationSpec,
    /// The codec of uploads. Default: one word per parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// How each participant obtains a personalized model. Default: tensors of `model.personal` stay local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub personalization: Option<Personalization>,
    /// The privacy guarantee of the published models.
    #[serde(default, skip_serializing_if = "PrivacySpec::is_silent")]
    pub privacy: PrivacySpec,
    /// Names of the weighted means that participants report, in order.
    #[serde(default = "default_metrics")]
    pub metrics: Vec<String>,
    /// Which model versions stay stored. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<Retain>,
}

/// Metrics of the SDK's own trainer: loss and accuracy of the received model on held-out data, and the training loss.
fn default_metrics() -> Vec<String> {
    ["loss", "accuracy", "train_loss"].map(str::to_owned).to_vec()
}

/// Size of a draw from the eligible participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Participants to assign, over-selection included.
    pub cohort: u32,
    /// Number of masked inputs at which collection closes early.
    pub collect_max: u32,
}

impl TaskSpec {
    /// All criteria for devices: those of the operator, and that their SDK computes the model's graph and reads its table.
    pub fn on_device(&self) -> impl Iterator<Item = Criterion> {
        let operators = self.selection.on_device.iter().cloned();
        operators.chain(self.model.on_device()).chain(self.table_rules())
    }

    /// The criterion that a device's SDK reads the table, if older ones would misread it.
    #[must_use]
    pub fn table_rules(&self) -> Option<Criterion> {
        self.needs_latest_table().then(|| Criterion {
            attribute: TABLE_VERSION.to_owned(),
            at_least: Some(TableSpec::LATEST.into()),
            ..Criterion::default()
        })
    }

    /// Whether SDKs that lack the latest rules for tables would misread the task.
    #[must_use]
    pub fn needs_latest_table(&self) -> bool {
        let is_newer = |table: &TableSpec| match &self.analytics {
            Some(analytics) if !analytics.is_evaluation() => {
                table.has_holes() || analytics.statistics().is_some_and(|count| table.counts_words(count))
            }
            Some(_) | None => table.has_holes() || table.predicts_number() || self.model.has_other_loss(),
        };
        self.analytics.as_ref().is_some_and(Analytics::counts_missing)
            || self.model.table.as_ref().is_some_and(is_newer)
    }

    /// Whether the task is an analysis of rows, without a model.
    #[must_use]
    pub fn analyses_rows(&self) -> bool {
        self.analytics.as_ref().is_some_and(|analytics| !analytics.is_evaluation())
    }

    /// Whether participants report their last training loss, quantized, at each check-in.
    #[must_use]
    pub fn reports_utility(&self) -> bool {
        let selection = &self.selection;
        selection.report_utility || (selection.strategy.follows_the_loss() && !self.secure_aggregation.enabled)
    }

    /// b: sums are modulo 2^b.
    #[must_use]
    pub fn modulus_bits(&self) -> u8 {
        let own = self.secure_aggregation.enabled.then_some(self.secure_aggregation.modulus_bits).flatten();
        own.unwrap_or(self.aggregation.modulus_bits)
    }

    /// Coordinates of an update are clipped to ± this.
    #[must_use]
    pub fn clip_range(&self) -> f32 {
        let own = self.secure_aggregation.enabled.then_some(self.secure_aggregation.clip_range).flatten();
        own.unwrap_or(self.aggregation.clip_range)
    }

    /// Number of participants to draw and target number of inputs, given the number of eligible participants.
    #[must_use]
    pub fn draw(&self, eligible: u32) -> Draw {
        let target = self.selection.cohort.target(eligible).min(self.rounds.select_max);
        let wanted = round_up(f64::from(target) * (1.0 + self.selection.over_selection));
        let cohort = wanted.max(target).min(self.rounds.select_max).min(eligible);
        // A whole number of groups, or of batches.
        let unit = self.group_size().or(self.batch_size());
        let cohort = unit.map_or(cohort, |size| cohort - cohort % size);
        Draw { cohort, collect_max: self.rounds.collect_max.unwrap_or(target) }
    }

    /// s: size of the groups that share a secure aggregation session, if the cohort is divided.
    #[must_use]
    pub fn group_size(&self) -> Option<u32> {
        let size = self.aggregation.robust.as_ref().and_then(|robust| robust.group_size);
        size.filter(|size| self.secure_aggregation.enabled && *size > 0)
    }

    /// T: fewest members of the fixed batch that each participant must belong to, if the task has batches.
    #[must_use]
    pub fn batch_size(&self) -> Option<u32> {
        let secure = &self.secure_aggregation;
        secure.batch_size.filter(|size| secure.enabled && *size > 0)
    }

    /// Fewest participants with which a secure aggregation session starts: `secure_aggregation.min_cohort`. The default
    /// is [`USUAL_SECURE_COHORT`] if every cohort has at least that many, and 3 otherwise, or 4 if one of three may drop
    /// out; a member that fails to advertise may then be missing from the roster.
    #[must_use]
    pub fn session_min(&self) -> u32 {
        if let Some(least) = self.group_size().or(self.secure_aggregation.min_cohort) {
            return least;
        }
        // The size of a sample depends on chance.
        let drawn = self.draw(self.select_min()).cohort;
        let is_usual = self.privacy.sampling.is_none() && drawn >= USUAL_SECURE_COHORT;
        if is_usual { USUAL_SECURE_COHORT } else { self.smallest_cohort().min(drawn.max(MIN_SECURE_COHORT)) }
    }

    /// Eligible participants required before a cohort is drawn.
    #[must_use]
    pub fn select_min(&self) -> u32 {
        self.rounds.select_min.unwrap_or(match self.selection.cohort {
            Cohort::Count(count) => count,
            Cohort::Fraction(_) if self.secure_aggregation.enabled => self.smallest_drawing(),
            Cohort::Fraction(_) => 2,
        })
    }

    /// Fewest masked inputs for a successful round.
    #[must_use]
    pub fn collect_min(&self) -> u32 {
        self.rounds.collect_min.unwrap_or(self.smallest_target().div_ceil(2))
    }

    /// Number of masked inputs at which collection closes early, before a cohort is drawn.
    #[must_use]
    pub fn collect_max(&self) -> u32 {
        self.rounds.collect_max.unwrap_or(self.rounds.select_max)
    }

    /// Smallest cohort that keeps three updates for its sum when as many members drop out as the task allows.
    fn smallest_cohort(&self) -> u32 {
        let one_of_three = self.secure_aggregation.max_dropout_millionths() > 333_333;
        if one_of_three { MIN_SECURE_COHORT + 1 } else { MIN_SECURE_COHORT }
    }

    /// Number of eligible participants of which a fraction makes a cohort of secure aggregation.
    fn smallest_drawing(&self) -> u32 {
        let wanted = self.secure_aggregation.min_cohort.unwrap_or(self.smallest_cohort()).min(MAX_SECURE_COHORT);
        (wanted..=self.rounds.select_max.max(wanted))
            .find(|&eligible| self.draw(eligible).cohort >= wanted)
            .unwrap_or(wanted)
    }

    /// Target number of inputs of a round that opens with as few participants as possible.
    fn smallest_target(&self) -> u32 {
        self.selection.cohort.target(self.select_min())
    }

    /// Parameters of training ahead of rounds; `None` if participants train within them.
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

    /// Whether the published figure may use amplification by sampling: only if the draw cannot prevent a release, and being drawn is
    /// visible only in the update. A secure aggregation session needs a minimum number of participants, and noise added by participants
    /// reveals how many there were.
    #[must_use]
    pub fn sampling_amplifies(&self) -> bool {
        let by_coordinator = self.privacy.mechanism.noised_by() == NoisedBy::Coordinator;
        by_coordinator && self.privacy.sampling.is_some() && !self.secure_aggregation.enabled
    }

    /// Whether the minimum distance of participations excludes two attempts at the same round number. A number for which an update may have
    /// been sent is then not retried.
    #[must_use]
    pub fn keeps_updates_apart(&self) -> bool {
        let privacy = &self.privacy;
        // A participant of a single round is drawn once.
        let is_once = privacy.participations == Some(1);
        privacy.mechanism.counts_participations() && !is_once && privacy.separation.is_some_and(|apart| apart > 1)
    }
}
