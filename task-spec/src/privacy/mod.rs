//! `[privacy]` of a task: mechanism, budget and sampling.
//!
//! `learning` computes the cost.

mod check;
mod turns;

pub use check::{NOISE_RANGE, SAMPLING_RATE_MIN};
pub use turns::{TooFewTurns, Turns};

use serde::{Deserialize, Serialize};

use crate::named_enum;

/// What the participants' updates are hidden behind, and for how long. Without a mechanism nothing is promised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacySpec {
    pub mechanism: PrivacyMechanism,
    /// Standard deviation of the noise over the sensitivity. Default: computed when the task is created, such that
    /// `rounds` rounds cost `epsilon`; the task then shows the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// The budget: the task stops before its ledger exceeds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// Probability with which the guarantee may fail, above 0 and below 1; usually below one over the population.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// Number of rounds that `epsilon` must last for, if the noise is computed. Default: `rounds.count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Bound on the L2 norm of updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<Clip>,
    /// How cohorts are drawn. Default: as in `selection`, without amplification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Size of the population for sampling: the participants that enrolled first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub population: Option<u32>,
    /// With `banded_matrix` and the distributed mechanisms: maximum number of participations of one participant;
    /// `selection.require.max_participations` must agree. Default: as many as `separation` allows; one in each round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participations: Option<u32>,
    /// With `participations` or `banded_matrix`: minimum number of rounds from one participation of a participant to its
    /// next; `selection.require.min_gap_rounds`, the rounds in between, is one less. Default for a single participation in
    /// a banded matrix: `rounds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separation: Option<u32>,
    /// Cap on the weight of an update, in examples. Default: all participants weigh the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_weight: Option<u32>,
    /// Expected weight of a participant, over `max_weight`: above 0, at most 1. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_weight: Option<f64>,
    /// The view whose epsilon is held against the budget.
    pub against: PrivacyView,
    /// The accounting method behind the figures.
    pub accounting: PrivacyAccounting,
    /// The implementation that draws the coordinator's noise.
    #[serde(skip_serializing_if = "PrivacySampler::is_exact")]
    pub sampler: PrivacySampler,
    /// What happens when the budget is used up.
    pub on_budget_end: OnBudgetEnd,
}

named_enum! {
    /// How noise gets into what is released.
    #[derive(Default)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum PrivacyMechanism {
        /// It does not.
        #[default]
        None = "none",
        /// The coordinator adds it to each round's sum.
        CentralGaussian = "central_gaussian",
        /// Every participant adds a share, so that the coordinator sees no sum without it.
        DistributedDiscreteGaussian = "distributed_discrete_gaussian",
        /// The same with Skellam noise, whose shares may be small.
        DistributedSkellam = "distributed_skellam",
        /// The coordinator adds it along a tree over rounds; a participant takes part once.
        Tree = "tree",
        /// The coordinator adds noise that later noise takes back, along a banded matrix over rounds; a participant takes part so
        /// often at most, and so many rounds apart at least.
        BandedMatrix = "banded_matrix",
        /// Every participant adds all that its own update needs.
        Local = "local",
    }
}

/// The parties that add a mechanism's noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoisedBy {
    /// No noise, and no guarantee.
    Nobody,
    /// The coordinator, for each round by itself.
    Coordinator,
    /// The coordinator, with noise correlated over rounds.
    CoordinatorOverRounds,
    /// The participants of a sum together: a share does not hide the update it was added to.
    Cohort,
    /// Each participant adds the full noise of its own update.
    EachParticipant,
}

impl PrivacyMechanism {
    /// The parties that add the mechanism's noise.
    #[must_use]
    pub fn noised_by(self) -> NoisedBy {
        match self {
            Self::None => NoisedBy::Nobody,
            Self::CentralGaussian => NoisedBy::Coordinator,
            Self::Tree | Self::BandedMatrix => NoisedBy::CoordinatorOverRounds,
            Self::DistributedDiscreteGaussian | Self::DistributedSkellam => NoisedBy::Cohort,
            Self::Local => NoisedBy::EachParticipant,
        }
    }

    /// Whether its noise is correlated over rounds. The guarantee then holds for any order of participants, and limits the number of their
    /// participations.
    #[must_use]
    pub fn is_correlated(self) -> bool {
        self.noised_by() == NoisedBy::CoordinatorOverRounds
    }

    /// Whether its guarantee can rest on a maximum number of participations that the task chooses.
    #[must_use]
    pub fn counts_participations(self) -> bool {
        match self {
            Self::BandedMatrix | Self::DistributedDiscreteGaussian | Self::DistributedSkellam => true,
            Self::None | Self::CentralGaussian | Self::Tree | Self::Local => false,
        }
    }

    /// Whether participants add noise to their updates.
    #[must_use]
    pub fn is_noised_by_participants(self) -> bool {
        matches!(self.noised_by(), NoisedBy::Cohort | NoisedBy::EachParticipant)
    }

    /// Whether its guarantee requires that single updates stay hidden.
    #[must_use]
    pub fn needs_secure_aggregation(self) -> bool {
        self.noised_by() == NoisedBy::Cohort
    }

    /// The reason OpenDP cannot draw its noise, if there is one.
    fn no_opendp(self) -> Option<&'static str> {
        match self {
            Self::CentralGaussian => None,
            Self::None => Some("is \"opendp\", and there is no noise to draw: choose mechanism \"central_gaussian\""),
            Self::Tree | Self::BandedMatrix => Some(
                "cannot be \"opendp\" with a tree or a banded matrix, whose later releases take back noise that earlier ones \
                 added, so that it is drawn again from a seed; OpenDP takes none: leave it out, or use central_gaussian",
            ),
            Self::DistributedDiscreteGaussian | Self::DistributedSkellam | Self::Local => Some(
                "cannot be \"opendp\" where participants add the noise: it is about the coordinator's. Leave it out, or use \
                 central_gaussian",
            ),
        }
    }
}

/// Bound on updates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Clip {
    /// The same in every round.
    Fixed(f64),
    /// Follows a quantile of the norms, which is estimated within the same sum.
    Adaptive(AdaptiveClip),
}

impl Clip {
    /// The bound on the private form of a contribution to an analysis.
    pub const WHOLE: Self = Self::Fixed(1.0);

    /// The norm of the first round.
    #[must_use]
    pub fn initial(&self) -> f64 {
        match self {
            Self::Fixed(norm) => *norm,
            Self::Adaptive(adaptive) => adaptive.initial,
        }
    }
}

/// Adaptation of the norm (Andrew, Thakkar, McMahan and Ramaswamy 2021).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdaptiveClip {
    /// Target share of updates within the norm, above 0 and below 1. Default: half.
    #[serde(default = "half")]
    pub quantile: f64,
    /// The norm of the first round.
    pub initial: f64,
    /// Adaptation rate, above 0 and at most 1. Default: the paper's 0.2.
    #[serde(default = "fifth")]
    pub learning_rate: f64,
}

fn half() -> f64 {
    0.5
}

fn fifth() -> f64 {
    0.2
}

/// How cohorts are drawn from the population, before checking availability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Sampling {
    /// Each enrolled participant independently with this probability.
    Poisson(f64),
    /// A fixed number of participants, uniformly.
    FixedSize(u32),
}

/// The observer against whom an epsilon holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PrivacyView {
    /// Observers of the published models who do not know the cohorts.
    #[default]
    Published,
    /// Observers who also know the cohorts, such as a viewer of the round API.
    CohortKnown,
    /// The coordinator itself.
    Server,
}

/// The accounting method behind the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PrivacyAccounting {
    /// Rényi bounds of the discrete noise; under sampling, the bound for any mechanism.
    General,
    /// The privacy loss distribution of continuous noise, plus the proven difference of discrete noise; `general` where
    /// no bound is proven. `close` is an older name.
    #[default]
    #[serde(alias = "close")]
    Pld,
}

/// The implementation that draws the coordinator's noise. The distribution is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PrivacySampler {
    /// This project's, exact and fast.
    #[default]
    Exact,
    /// The measurement of the OpenDP library, in coordinators built with it; only for `central_gaussian`.
    #[serde(rename = "opendp")]
    OpenDp,
}

impl PrivacySampler {
    /// Whether it is the default. The default is not serialized, so that versions without samplers can read the task.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        *self == Self::Exact
    }
}

/// What a task does when its budget is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OnBudgetEnd {
    /// Waits for an operator, as `BUDGET_EXHAUSTED`.
    #[default]
    Pause,
    /// Completes with the last model version.
    Complete,
}

impl PrivacySpec {
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.mechanism != PrivacyMechanism::None
    }

    /// Minimum number of rounds between two participations, and maximum number of participations (0: unlimited). The guarantee requires
    /// selection to respect both.
    #[must_use]
    pub fn limits(&self) -> (u32, u32) {
        match self.mechanism {
            PrivacyMechanism::Tree => (0, 1),
            PrivacyMechanism::BandedMatrix
            | PrivacyMechanism::DistributedDiscreteGaussian
            | PrivacyMechanism::DistributedSkellam => {
                let gap = self.separation.map_or(0, |separation| separation.saturating_sub(1));
                (gap, self.participations.unwrap_or_default())
            }
            PrivacyMechanism::None | PrivacyMechanism::CentralGaussian | PrivacyMechanism::Local => (0, 0),
        }
    }

    /// Sets the missing distance between participations to the longest one, `longest` rounds, if the noise needs a distance.
    pub fn complete(&mut self, longest: u32) {
        if self.mechanism == PrivacyMechanism::BandedMatrix && self.participations != Some(1) {
            self.separation = self.separation.or(Some(longest));
        }
    }

    /// Whether all settings are absent.
    pub(crate) fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}
