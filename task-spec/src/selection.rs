//! `[selection]` of a task: how many participants a round has, who may be among them, and how they are chosen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Criterion, EXAMPLES};

/// Who takes part in a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SelectionSpec {
    /// How many inputs a round aims at.
    pub cohort: Cohort,
    /// Additional participants to draw, as a part of the target, against dropouts: 0.2 draws 12 for a target of 10.
    pub over_selection: f64,
    /// How they are chosen.
    pub strategy: Strategy,
    /// What they must fulfil.
    pub require: Requirements,
    /// What a device decides about itself: it answers yes or no, and why stays there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_device: Vec<Criterion>,
    /// Makes the draw repeatable, for experiments; without it the draw is random.
    pub seed: Option<u64>,
    /// Asks participants to tell their last training loss, coarsely, in 32 levels, with each check-in: what
    /// a strategy that follows the loss needs and secure aggregation hides. Without secure aggregation such a strategy asks
    /// for it by itself.
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

/// How participants are chosen among those eligible: `"uniform"`, `"round_robin"`, `{ stratified = { label = "region" } }`,
/// `{ power_of_choice = { candidates = 30 } }`, `{ oort = {} }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Strategy {
    /// Every subset is equally likely.
    #[default]
    Uniform,
    /// Whoever waited longest.
    RoundRobin,
    /// A share for each value of a label.
    Stratified(Stratified),
    /// Of a random few, those with the highest loss.
    PowerOfChoice(PowerOfChoice),
    /// Those whose data still teaches the model and who are fast.
    Oort(Oort),
}

impl Strategy {
    /// Whether it needs to know participants' losses.
    #[must_use]
    pub fn follows_the_loss(&self) -> bool {
        matches!(self, Self::PowerOfChoice(_) | Self::Oort(_))
    }

    /// Whether a draw by it may count as random sampling that amplifies privacy: only if it depends on nothing that
    /// participants did or are.
    #[must_use]
    pub fn allows_amplification(&self) -> bool {
        matches!(self, Self::Uniform)
    }

    /// The stable name, as in a task file.
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

/// How many participants a round aims at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Cohort {
    /// So many.
    Count(u32),
    /// This part of the eligible participants that are checked in, in (0, 1].
    Fraction(f64),
}

impl Cohort {
    /// How many inputs the round aims at, given how many are eligible; at least 1 if anybody is.
    #[must_use]
    pub fn target(&self, eligible: u32) -> u32 {
        match *self {
            Self::Count(count) => count.min(eligible),
            Self::Fraction(fraction) => round_up(f64::from(eligible) * fraction).max(1).min(eligible),
        }
    }
}

/// Rounds a number of participants up, but not when only the binary form of a decimal fraction lifts it above a whole
/// number, as in 0.07 * 100.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is meant")]
pub(crate) fn round_up(participants: f64) -> u32 {
    (participants - 1e-9).ceil() as u32
}

/// What a participant must fulfil to be drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Requirements {
    /// Labels it must carry, each with this value.
    pub labels: BTreeMap<String, String>,
    /// Training examples it must offer, at least. Asked as a criterion ([`Self::on_device`]) of whoever does not say how many it has.
    pub min_examples: u64,
    /// Time between the starts of two participations, in milliseconds.
    pub min_gap_ms: u64,
    /// Rounds to sit out after taking part.
    pub min_gap_rounds: u32,
    /// Most rounds of this task it may take part in; 0 for no cap.
    pub max_participations: u32,
}

impl Requirements {
    /// What a device is asked that does not say how many examples it has; none if any number will do.
    #[must_use]
    pub fn on_device(&self) -> Option<Criterion> {
        #[expect(clippy::cast_precision_loss, reason = "a limit; exact up to 2^53")]
        let at_least = Some(self.min_examples as f64);
        (self.min_examples > 0).then(|| Criterion { attribute: EXAMPLES.to_owned(), at_least, ..Criterion::default() })
    }
}

/// Cho, Wang and Joshi 2020 ("Client Selection in Federated Learning"), the variant π_rpow-d that needs no extra exchange:
/// `candidates` are drawn with a probability in proportion to their training examples, and of those the ones with the
/// highest last known loss are taken. A loss that nobody knows counts as the highest, so everybody is tried once; who does not say
/// how many examples it has, as before its first loss, counts as the mean of those who do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PowerOfChoice {
    /// d: how many are drawn first, at least the cohort. The more, the stronger the preference for high losses.
    pub candidates: u32,
}

/// Candidates with the same value of a label make a stratum (those without the label, one more). Each stratum has a quota;
/// within it every subset is equally likely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stratified {
    /// Name of the label, as given at enrolment.
    pub label: String,
    /// How the cohort is divided.
    #[serde(default)]
    pub quotas: Quotas,
}

/// How a cohort is divided among strata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Quotas {
    /// As the eligible candidates are, to within one participant (largest remainders).
    #[default]
    Proportional,
    /// The same for each stratum, as long as it has candidates left.
    Equal,
}

/// Guided participant selection (Lai, Zhu, Madhyastha and Chowdhury, OSDI 2021, algorithm 1).
///
/// Part of the cohort explores: participants that were never drawn. The rest exploits: of those known, the ones with the
/// highest utility, with chance among them. Utility is statistical, |B|·sqrt(mean loss²), clipped against outliers and
/// scaled to [0, 1], plus a bonus for a participation long ago, all times (T/t)^α for a participant that takes t, more than
/// the preferred duration T.
///
/// Where this departs from the paper: a participant volunteers one coarse mean loss, so |B| times that stands for the root
/// mean square; T is a percentile of known durations, as in the authors' code, so it needs no unit; and participants that
/// were drawn often enough are passed over only while there are others, so that a small federation does not run dry; before
/// them, those that were drawn and told no loss: they failed, or have nothing to go by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Oort {
    /// ε of the first round: the part of the cohort that explores, in [0, 1].
    pub exploration: f64,
    /// ε is multiplied with this each round, in (0, 1].
    pub exploration_decay: f64,
    /// ε does not fall below this, in [0, `exploration`].
    pub exploration_min: f64,
    /// α: how hard slow participants are held back; 0 not at all.
    pub alpha: f64,
    /// W, in rounds: T is relaxed when the last W rounds gained less than the W before.
    pub pacer_window: u32,
    /// T of the first round, as a percentile of the durations of those eligible, 1 to 100; at 100 nobody is too slow.
    pub pacer_start: u32,
    /// Percentile points by which T is relaxed each time.
    pub pacer_step: u32,
    /// Utilities are clipped to this quantile of all of them, in (0, 1].
    pub clip_quantile: f64,
    /// Chance decides among those with at least this part of the utility that just makes the cohort, in (0, 1].
    pub cutoff: f64,
    /// Participations after which a participant is passed over while others are there; 0 for no such limit.
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
