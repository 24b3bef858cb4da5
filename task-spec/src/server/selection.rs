//! `[selection]` of a task: the size of a round's cohort, eligibility, and selection.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Criterion, EXAMPLES};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SelectionSpec {
    /// Target number of inputs per round.
    pub cohort: Cohort,
    /// Additional participants to draw, relative to the target, to compensate for dropouts: 0.2 draws 12 for a target
    /// of 10.
    pub over_selection: f64,
    /// How participants are chosen among those eligible.
    pub strategy: Strategy,
    pub require: Requirements,
    /// Criteria that a device checks itself: it answers yes or no, without a reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_device: Vec<Criterion>,
    /// Makes the draw repeatable, for experiments. Default: a random draw.
    pub seed: Option<u64>,
    /// Asks participants to report their last training loss at each check-in, quantized to 32 levels. Strategies that
    /// follow the loss need it, and secure aggregation hides it. Without secure aggregation such a strategy implies it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub report_utility: bool,
}

impl Default for SelectionSpec {
    fn default() -> Self {
        Self {
            cohort: Cohort::Count(10),
            over_selection: 0.0,
            strategy: Strategy::Uniform,
            require: Requirements::default(),
            on_device: Vec::new(),
            seed: None,
            report_utility: false,
        }
    }
}

/// How participants are chosen among those eligible: `"uniform"`, `"round_robin"`, `{ stratified = { label = "region" }
/// }`, `{ power_of_choice = { candidates = 30 } }`, `{ oort = {} }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Strategy {
    /// Every subset is equally likely.
    #[default]
    Uniform,
    /// The participants that have waited longest.
    RoundRobin,
    /// A quota for each value of a label.
    Stratified(Stratified),
    /// Among a random sample, the participants with the highest loss.
    PowerOfChoice(PowerOfChoice),
    /// The participants whose data still improves the model and that are fast.
    Oort(Oort),
}

impl Strategy {
    /// Whether it needs participants' losses.
    #[must_use]
    pub fn follows_the_loss(&self) -> bool {
        matches!(self, Self::PowerOfChoice(_) | Self::Oort(_))
    }

    /// Whether its draw may be treated as random sampling that amplifies privacy: only if it does not depend on participants' behaviour or
    /// properties.
    #[must_use]
    pub fn allows_amplification(&self) -> bool {
        matches!(self, Self::Uniform)
    }

    /// Stable name, as in a task file.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::RoundRobin => "round_robin",
            Self::Stratified(_) => "stratified",
            Self::PowerOfChoice(_) => "power_of_choice",
            Self::Oort(_) => "oort",
        }
    }
}

/// Target size of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Cohort {
    /// This number of participants.
    Count(u32),
    /// Share of the eligible participants that are checked in, in (0, 1].
    Fraction(f64),
}

impl Cohort {
    /// Target number of inputs, given the number of eligible participants; at least 1 if there are any.
    #[must_use]
    pub fn target(&self, eligible: u32) -> u32 {
        match *self {
            Self::Count(count) => count.min(eligible),
            Self::Fraction(fraction) => round_up(f64::from(eligible) * fraction).max(1).min(eligible),
        }
    }
}

/// Rounds a number of participants up, except if only the binary form of a decimal fraction puts it above a whole
/// number, as in 0.07 * 100.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is meant")]
pub(crate) fn round_up(participants: f64) -> u32 {
    (participants - 1e-9).ceil() as u32
}

/// Requirements for a participant to be drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Requirements {
    /// Labels that it must carry, with these values.
    pub labels: BTreeMap<String, String>,
    /// Minimum number of training examples. Participants that do not report theirs are asked with a criterion
    /// ([`Self::on_device`]).
    pub min_examples: u64,
    /// Minimum time between the starts of two participations, in milliseconds.
    pub min_gap_ms: u64,
    /// Rounds to skip after taking part.
    pub min_gap_rounds: u32,
    /// Maximum number of rounds of this task to take part in; 0 for no limit.
    pub max_participations: u32,
}

impl Requirements {
    /// The criterion for devices that do not report their number of examples; `None` if any number suffices.
    #[must_use]
    pub fn on_device(&self) -> Option<Criterion> {
        #[expect(clippy::cast_precision_loss, reason = "a limit; exact up to 2^53")]
        let at_least = Some(self.min_examples as f64);
        (self.min_examples > 0).then(|| Criterion { attribute: EXAMPLES.to_owned(), at_least, ..Criterion::default() })
    }
}

/// Cho, Wang and Joshi 2020 ("Client Selection in Federated Learning"), the variant π_rpow-d that needs no extra
/// exchange: draws `candidates` with probability proportional to their training examples, and takes those with the
/// highest last known loss. An unknown loss counts as the highest, so everybody is tried once. A participant that does
/// not report its number of examples, as before its first loss, counts as the mean of those that do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PowerOfChoice {
    /// d: size of the first draw, at least the cohort. A larger value prefers high losses more strongly.
    pub candidates: u32,
}

/// Candidates with the same value of a label form a stratum (those without the label, another). Each stratum has a
/// quota; within it every subset is equally likely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stratified {
    /// Name of the label, as given at enrolment.
    pub label: String,
    #[serde(default)]
    pub quotas: Quotas,
}

/// How a cohort is divided among strata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Quotas {
    /// In proportion to the eligible candidates, to within one participant (largest remainders).
    #[default]
    Proportional,
    /// The same for each stratum, as long as it has candidates.
    Equal,
}

/// Guided participant selection (Lai, Zhu, Madhyastha and Chowdhury, OSDI 2021, algorithm 1).
///
/// Part of the cohort explores: participants that were never drawn. The rest exploits: a random choice among the known
/// participants with the highest utility. Utility is statistical, |B|·sqrt(mean loss²), clipped against outliers and
/// scaled to [0, 1], plus a bonus for a participation long ago, all times (T/t)^α for a participant whose duration t
/// exceeds the preferred duration T.
///
/// Differences from the paper: a participant reports one coarse mean loss, so |B| times that replaces the root mean
/// square; T is a percentile of known durations, as in the authors' code, so it needs no unit; and participants that
/// were drawn often enough are skipped only while others are available, so that a small federation does not run dry.
/// Participants that were drawn but reported no loss, because they failed or have none, are taken before those.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Oort {
    /// ε of the first round: the share of the cohort that explores, in [0, 1].
    pub exploration: f64,
    /// ε is multiplied by this each round, in (0, 1].
    pub exploration_decay: f64,
    /// Lower bound on ε, in [0, `exploration`].
    pub exploration_min: f64,
    /// α: penalty for slow participants; 0 for none.
    pub alpha: f64,
    /// W, in rounds: T is relaxed if the last W rounds gained less than the W before.
    pub pacer_window: u32,
    /// T of the first round, as a percentile of the durations of eligible participants, 1 to 100; at 100 nobody is too
    /// slow.
    pub pacer_start: u32,
    /// Percentile points by which T is relaxed each time.
    pub pacer_step: u32,
    /// Utilities are clipped to this quantile of all utilities, in (0, 1].
    pub clip_quantile: f64,
    /// The draw is random among participants with at least this share of the utility at the cohort's boundary, in (0,
    /// 1].
    pub cutoff: f64,
    /// Number of participations after which a participant is skipped while others are available; 0 for no limit.
    pub blacklist_after: u32,
}

impl Default for Oort {
    fn default() -> Self {
        Self {
            exploration: 0.9,
            exploration_decay: 0.98,
            exploration_min: 0.2,
            alpha: 2.0,
            pacer_window: 20,
            pacer_start: 30,
            pacer_step: 5,
            clip_quantile: 0.95,
            cutoff: 0.95,
            blacklist_after: 10,
        }
    }
}
