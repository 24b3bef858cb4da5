//! `[privacy]` of a task: which noise, which budget, and what cohorts are drawn from.
//!
//! What it costs is `learning`'s to say.

mod check;

pub use check::{NOISE_RANGE, SAMPLING_RATE_MIN};

use serde::{Deserialize, Serialize};

/// What the participants' updates are hidden behind, and for how long. Without a mechanism nothing is promised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrivacySpec {
    /// How noise gets in.
    pub mechanism: PrivacyMechanism,
    /// Standard deviation of the noise over the most that one participant changes. Left out: solved for when the task is
    /// created, so that `rounds` rounds cost `epsilon`; the task shows the solution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// The budget: the task stops before its ledger says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// The probability with which the promise may fail, above 0 and below 1; usually below one over the population.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// Rounds that `epsilon` is to last for, where the noise is solved for. Default: `rounds.count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// The L2 norm that updates are scaled down to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<Clip>,
    /// How cohorts are drawn. Left out: as `selection` says; nothing is assumed of it, and nothing is gained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// How many participants sampling draws from: those that enrolled first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub population: Option<u32>,
    /// With `banded_matrix`: in how many rounds one participant takes part at most, as `selection.require.max_participations`
    /// says too. Left out: in as many as `separation` allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participations: Option<u32>,
    /// With `banded_matrix`: how many rounds are from one participation of a participant to its next, at least; the
    /// `selection.require.min_gap_rounds` between them are one less. Left out, where there is one participation: as many as `rounds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separation: Option<u32>,
    /// More examples than these do not weigh more. Left out: everybody weighs the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_weight: Option<u32>,
    /// What a participant is expected to weigh, over `max_weight`: above 0, at most 1. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_weight: Option<f64>,
    /// Whose epsilon the budget is held against.
    pub against: PrivacyView,
    /// What the figures rest on.
    pub accounting: PrivacyAccounting,
    /// Whose code draws the coordinator's noise.
    #[serde(skip_serializing_if = "PrivacySampler::is_exact")]
    pub sampler: PrivacySampler,
    /// What to do when the budget ends.
    pub on_budget_end: OnBudgetEnd,
}

/// How noise gets into what is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PrivacyMechanism {
    /// It does not.
    #[default]
    None,
    /// The coordinator adds it to each round's sum.
    CentralGaussian,
    /// Every participant adds a share, so that the coordinator sees no sum without it.
    DistributedDiscreteGaussian,
    /// The same with Skellam noise, whose shares may be small.
    DistributedSkellam,
    /// The coordinator adds it along a tree over rounds; a participant takes part once.
    Tree,
    /// The coordinator adds noise that later noise takes back, along a banded matrix over rounds; a participant takes part so
    /// often at most, and so many rounds apart at least.
    BandedMatrix,
    /// Every participant adds all that its own update needs.
    Local,
}

impl PrivacyMechanism {
    /// Every mechanism.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::CentralGaussian,
        Self::DistributedDiscreteGaussian,
        Self::DistributedSkellam,
        Self::Tree,
        Self::BandedMatrix,
        Self::Local,
    ];

    /// Its name in task files and ledgers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::CentralGaussian => "central_gaussian",
            Self::DistributedDiscreteGaussian => "distributed_discrete_gaussian",
            Self::DistributedSkellam => "distributed_skellam",
            Self::Tree => "tree",
            Self::BandedMatrix => "banded_matrix",
            Self::Local => "local",
        }
    }

    /// Whether its noise is correlated over rounds, so that its promise is for any order of participants and limits how often
    /// each of them takes part.
    #[must_use]
    pub fn is_correlated(self) -> bool {
        matches!(self, Self::Tree | Self::BandedMatrix)
    }

    /// Whether participants add noise to what they send.
    #[must_use]
    pub fn is_noised_by_participants(self) -> bool {
        matches!(self, Self::DistributedDiscreteGaussian | Self::DistributedSkellam | Self::Local)
    }

    /// Whether its promise rests on no single update being seen.
    #[must_use]
    pub fn needs_secure_aggregation(self) -> bool {
        matches!(self, Self::DistributedDiscreteGaussian | Self::DistributedSkellam)
    }
}

/// What updates are scaled down to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Clip {
    /// The same in every round.
    Fixed(f64),
    /// Following a quantile of the norms, which is estimated within the same sum.
    Adaptive(AdaptiveClip),
}

impl Clip {
    /// The norm of the first round.
    #[must_use]
    pub fn initial(&self) -> f64 {
        match self {
            Self::Fixed(norm) => *norm,
            Self::Adaptive(adaptive) => adaptive.initial,
        }
    }
}

/// How the norm adapts (Andrew, Thakkar, McMahan and Ramaswamy 2021).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdaptiveClip {
    /// The part of updates that should be within the norm, above 0 and below 1. Default: half.
    #[serde(default = "half")]
    pub quantile: f64,
    /// The norm of the first round.
    pub initial: f64,
    /// How fast it moves, above 0 and at most 1. Default: the paper's 0.2.
    #[serde(default = "fifth")]
    pub learning_rate: f64,
}

fn half() -> f64 {
    0.5
}

fn fifth() -> f64 {
    0.2
}

/// How cohorts are drawn from the population, before anybody's availability is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Sampling {
    /// Everybody with this probability, independently.
    Poisson(f64),
    /// So many of them, uniformly.
    FixedSize(u32),
}

/// Whose epsilon is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PrivacyView {
    /// Of those who see the published models and do not know who took part.
    #[default]
    Published,
    /// Of those who also see who took part, such as a viewer of the round API.
    CohortKnown,
    /// Of the coordinator itself.
    Server,
}

/// What the figures rest on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PrivacyAccounting {
    /// Rényi bounds of the discrete noise; under sampling, the bound for any mechanism.
    General,
    /// The privacy loss distribution of continuous noise, plus what discrete noise is proven to differ from it by; where
    /// nothing is proven, the former. `close` is an older name.
    #[default]
    #[serde(alias = "close")]
    Pld,
}

/// Whose code draws the coordinator's noise. The distribution is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum PrivacySampler {
    /// This project's, exact and fast.
    #[default]
    Exact,
    /// The measurement of the OpenDP library, in coordinators that were built with it; `central_gaussian` alone.
    #[serde(rename = "opendp")]
    OpenDp,
}

impl PrivacySampler {
    /// Whether it is the one of tasks that name none. It is not written, so whoever knows no samplers reads such a task.
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
    /// Is done, with the last model version.
    Complete,
}

impl PrivacySpec {
    /// Whether a mechanism is at work.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.mechanism != PrivacyMechanism::None
    }

    /// Fewest rounds that each participant sits out after taking part, and most rounds that it takes part in (0: any number): what
    /// the promise holds selection to.
    #[must_use]
    pub fn limits(&self) -> (u32, u32) {
        match self.mechanism {
            PrivacyMechanism::Tree => (0, 1),
            PrivacyMechanism::BandedMatrix => {
                let gap = self.separation.map_or(0, |separation| separation.saturating_sub(1));
                (gap, self.participations.unwrap_or_default())
            }
            PrivacyMechanism::None
            | PrivacyMechanism::CentralGaussian
            | PrivacyMechanism::DistributedDiscreteGaussian
            | PrivacyMechanism::DistributedSkellam
            | PrivacyMechanism::Local => (0, 0),
        }
    }

    /// With noise that needs a distance between participations of one participant: takes the longest one, `longest` rounds, where
    /// none was given.
    pub fn complete(&mut self, longest: u32) {
        if self.mechanism == PrivacyMechanism::BandedMatrix && self.participations != Some(1) {
            self.separation = self.separation.or(Some(longest));
        }
    }

    /// Whether nothing at all was written.
    pub(crate) fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}
