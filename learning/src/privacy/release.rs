//! One release as it really was, and what it costs whom.

use serde::{Deserialize, Serialize};
use task_spec::{PrivacyAccounting, PrivacyMechanism};

use super::accountant::integer_noise::sum_divergence;
use super::accountant::{
    CloseCurve, Closeness, Gaussians, RdpCurve, SumMechanism, SumNoise, Textbook, poisson_sampled, tree_levels,
    without_replacement, zcdp,
};
use super::banded::Bands;

/// How the cohort of a release was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Sampled {
    /// In no way that anything can be gained from.
    Anyhow,
    /// Everybody enrolled independently with this probability. Neighbours: one participant more or less.
    Poisson {
        /// Above 0, at most 1.
        rate: f64,
    },
    /// So many out of so many, uniformly. Neighbours: one participant replaced by another.
    FixedSize {
        /// How many were drawn.
        cohort: u32,
        /// Out of how many.
        population: u32,
    },
}

impl Sampled {
    /// Whether the published figure gains from nobody knowing who was drawn, nor how many; not where everybody is.
    #[must_use]
    pub fn is_secret(self) -> bool {
        match self {
            Self::Anyhow => false,
            Self::Poisson { rate } => rate < 1.0,
            Self::FixedSize { cohort, population } => cohort < population,
        }
    }
}

/// What a ledger charges for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Number of the round.
    pub round: u64,
    /// Attempt within the round: each is charged.
    pub attempt: u32,
    /// The mechanism that ran.
    pub mechanism: PrivacyMechanism,
    /// What it added to what: integers on the grid. For `local`, of one participant alone.
    pub sum: SumMechanism,
    /// How the cohort was drawn.
    pub sampled: Sampled,
    /// Participants whose updates are in it; 0 only where the noise is the coordinator's.
    pub participants: u32,
    /// For a tree: which release of the present tree it is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_release: Option<u32>,
    /// For a banded matrix: where it stands. `sum` says what its noise is made of: vectors of that standard deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<Bands>,
}

/// What the figures of one row rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// [`PrivacyAccounting::General`].
    General,
    /// For `published` under Poisson sampling, Rényi divergences of continuous noise too. Rows that name a closeness and no
    /// accounting were made so.
    Renyi,
    /// [`PrivacyAccounting::Pld`].
    LossDistribution,
}

impl From<PrivacyAccounting> for Bound {
    fn from(accounting: PrivacyAccounting) -> Self {
        match accounting {
            PrivacyAccounting::General => Self::General,
            PrivacyAccounting::Pld => Self::LossDistribution,
        }
    }
}

/// Why the coordinator has no epsilon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoServerEpsilon {
    /// The coordinator adds the noise: it is trusted with what was there before.
    ServerTrusted,
    /// There is no noise.
    NoMechanism,
}

impl NoServerEpsilon {
    /// For a mechanism, if it has none.
    #[must_use]
    pub fn of(mechanism: PrivacyMechanism) -> Option<Self> {
        match mechanism {
            PrivacyMechanism::None => Some(Self::NoMechanism),
            PrivacyMechanism::CentralGaussian | PrivacyMechanism::Tree | PrivacyMechanism::BandedMatrix => {
                Some(Self::ServerTrusted)
            }
            PrivacyMechanism::DistributedDiscreteGaussian
            | PrivacyMechanism::DistributedSkellam
            | PrivacyMechanism::Local => None,
        }
    }
}

/// A release that cannot have been.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("release of round {round}, attempt {attempt}: {problem}")]
pub struct BadRelease {
    /// The release.
    pub round: u64,
    /// The release.
    pub attempt: u32,
    /// What is wrong.
    pub problem: &'static str,
}

/// What several releases cost, as bounds that add up.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// To those who see the models alone.
    pub published: RdpCurve,
    /// To those who know who took part.
    pub cohort_known: RdpCurve,
    /// zCDP of the latter, where it has one.
    pub rho: Option<f64>,
    /// `published` under Poisson sampling by way of continuous noise, where that is close.
    close: Option<CloseCurve>,
    /// The same of `cohort_known`.
    close_known: Option<CloseCurve>,
}

impl Cost {
    /// Of nothing.
    #[must_use]
    pub fn zero() -> Self {
        Self {
            published: RdpCurve::zero(),
            cohort_known: RdpCurve::zero(),
            rho: Some(0.0),
            close: Some(CloseCurve::zero()),
            close_known: Some(CloseCurve::zero()),
        }
    }

    /// Of both.
    pub fn add(&mut self, other: &Self) {
        self.published.add(&other.published);
        self.cohort_known.add(&other.cohort_known);
        self.rho = self.rho.zip(other.rho).map(|(a, b)| a + b);
        for (sum, other) in [(&mut self.close, &other.close), (&mut self.close_known, &other.close_known)] {
            *sum = sum.take().zip(other.as_ref()).map(|(mut sum, other)| {
                sum.add(other);
                sum
            });
        }
    }

    /// Of so many of them.
    #[must_use]
    pub fn times(&self, times: u64) -> Self {
        Self {
            published: self.published.times(times),
            cohort_known: self.cohort_known.times(times),
            rho: self.rho.map(|rho| rho * times as f64),
            close: self.close.as_ref().map(|close| close.times(times)),
            close_known: self.close_known.as_ref().map(|close| close.times(times)),
        }
    }

    /// The epsilons at `delta`, for a mechanism whose coordinator has one, or has none for this reason.
    #[must_use]
    pub fn at(&self, delta: f64, server: Option<NoServerEpsilon>, accounting: PrivacyAccounting) -> Epsilons {
        self.by(delta, server, accounting.into())
    }

    /// The same, as rows of any age were charged.
    pub(super) fn by(&self, delta: f64, server: Option<NoServerEpsilon>, bound: Bound) -> Epsilons {
        let concentrated = self.rho.map_or(f64::INFINITY, |rho| zcdp::epsilon(rho, delta));
        let (textbook, is_known_close) = match bound {
            Bound::General => (None, false),
            Bound::Renyi => (Some(Textbook::Renyi), false),
            Bound::LossDistribution => (Some(Textbook::LossDistribution), true),
        };
        let lower = |figure: (f64, Option<Closeness>), close: Option<&CloseCurve>| {
            let by_continuous = close.zip(textbook).and_then(|(close, textbook)| close.epsilon(delta, textbook));
            match by_continuous {
                Some((epsilon, closeness)) if epsilon < figure.0 => (epsilon, Some(closeness)),
                _ => figure,
            }
        };
        let known = (self.cohort_known.epsilon(delta).0.min(concentrated), None);
        let known = lower(known, self.close_known.as_ref().filter(|_| is_known_close));
        let general = (self.published.epsilon(delta).0, None);
        // Whoever knows less cannot know more.
        let published = lower(if general.0 < known.0 { general } else { known }, self.close.as_ref());
        let (server, server_reason) = match server {
            Some(reason) => (None, Some(reason)),
            None => (Some(known.0), None),
        };
        Epsilons {
            published: published.0,
            cohort_known: known.0,
            server,
            server_reason,
            closeness: published.1,
            cohort_closeness: known.1,
        }
    }
}

/// Three figures, never one for another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epsilons {
    /// Of those who see the published models and do not know who took part.
    pub published: f64,
    /// Of those who also see who took part.
    pub cohort_known: f64,
    /// Of the coordinator itself.
    pub server: Option<f64>,
    /// Why it has none.
    pub server_reason: Option<NoServerEpsilon>,
    /// What `published` owes to discrete noise being close to continuous noise, where it rests on that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closeness: Option<Closeness>,
    /// The same of `cohort_known`, and with it of `server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort_closeness: Option<Closeness>,
}

impl Epsilons {
    /// What `published` rests on.
    #[must_use]
    pub fn rests_on(&self) -> PrivacyAccounting {
        if self.closeness.is_some() { PrivacyAccounting::Pld } else { PrivacyAccounting::General }
    }
}

impl Release {
    /// Checks that the accounts can say anything about it.
    ///
    /// # Errors
    /// [`BadRelease`].
    pub fn check(&self) -> Result<(), BadRelease> {
        let problem = self.problem();
        problem.map_or(Ok(()), |problem| Err(BadRelease { round: self.round, attempt: self.attempt, problem }))
    }

    fn problem(&self) -> Option<&'static str> {
        let noise = match self.sum.noise {
            SumNoise::DiscreteGaussian { sigma } => sigma,
            SumNoise::DiscreteGaussianShares { sigma, shares } => sigma * f64::from(shares.min(1)),
            SumNoise::Skellam { variance } => variance,
        };
        let sampled = match self.sampled {
            Sampled::Anyhow => true,
            Sampled::Poisson { rate } => rate > 0.0 && rate <= 1.0,
            Sampled::FixedSize { cohort, population } => cohort > 0 && cohort <= population,
        };
        if !(noise.is_finite() && noise > 0.0) {
            Some("there is no noise in it, so no epsilon")
        } else if !(self.sum.sensitivity.is_finite() && self.sum.sensitivity > 0.0) {
            Some("its sensitivity must be finite and above 0")
        } else if self.sum.dimension == 0
            || (self.participants == 0 && self.mechanism != PrivacyMechanism::CentralGaussian)
        {
            Some("it must have coordinates and participants")
        } else if !sampled {
            Some("its cohort cannot have been drawn like that")
        } else if self.tree_release == Some(0)
            || (self.mechanism == PrivacyMechanism::Tree) != self.tree_release.is_some()
        {
            Some("a tree, and nothing else, counts its releases from 1")
        } else if (self.mechanism == PrivacyMechanism::BandedMatrix) != self.bands.is_some_and(|bands| bands.is_sane())
        {
            Some("a banded matrix, and nothing else, has bands and a place in them after those before it")
        } else if self.bands.is_some() && !matches!(self.sum.noise, SumNoise::DiscreteGaussian { .. }) {
            Some("a banded matrix has discrete Gaussian noise")
        } else if self.mechanism == PrivacyMechanism::None {
            Some("it was made without a mechanism, so nothing can be charged")
        } else {
            None
        }
    }

    /// What it costs, as far as this accounting needs to know.
    #[must_use]
    pub fn cost(&self, accounting: PrivacyAccounting) -> Cost {
        if let Some(t) = self.tree_release {
            return self.tree_cost(tree_levels(t) - tree_levels(t - 1), 1, accounting);
        }
        if let Some(bands) = self.bands {
            return self.banded_cost(bands, accounting);
        }
        let sum = match self.sampled {
            // Replacing one takes its update out and puts another in.
            Sampled::FixedSize { .. } => SumMechanism { sensitivity: 2.0 * self.sum.sensitivity, ..self.sum },
            Sampled::Anyhow | Sampled::Poisson { .. } => self.sum,
        };
        let cohort_known = sum.curve();
        let published = match self.sampled {
            Sampled::Anyhow => cohort_known.clone(),
            Sampled::Poisson { rate } => poisson_sampled(rate, |order| sum.bound(order)),
            Sampled::FixedSize { cohort, population } => {
                without_replacement(f64::from(cohort) / f64::from(population), |order| sum.bound(order))
            }
        };
        let close = |rate| sum_close(&sum, rate, 1, 1).filter(|_| accounting == PrivacyAccounting::Pld);
        let sampled_close = match self.sampled {
            Sampled::Poisson { rate } => close(rate),
            Sampled::Anyhow | Sampled::FixedSize { .. } => None,
        };
        Cost { published, cohort_known, rho: sum.rho(), close: sampled_close, close_known: close(1.0) }
    }

    /// What the first so many such releases of a task cost together; `one` is what the first alone does.
    pub(super) fn whole(&self, one: &Cost, releases: u32, accounting: PrivacyAccounting) -> Cost {
        match (self.tree_release, self.bands) {
            (Some(_), _) => self.tree_cost(tree_levels(releases), releases, accounting),
            (None, Some(bands)) => self.banded_cost(bands.whole(releases), accounting),
            (None, None) => one.times(releases.into()),
        }
    }

    /// What this one and as many more that follow it cost together that there are `count`; `one` is what it costs alone.
    pub(super) fn series(&self, one: &Cost, count: u32, accounting: PrivacyAccounting) -> Cost {
        if count == 0 {
            return Cost::zero();
        }
        match (self.tree_release, self.bands) {
            (Some(t), _) => {
                let last = t.saturating_add(count - 1);
                self.tree_cost(tree_levels(last) - tree_levels(t - 1), count, accounting)
            }
            (None, Some(bands)) => self.banded_cost(bands.extended(count), accounting),
            (None, None) => one.times(count.into()),
        }
    }

    /// One Gaussian whose sensitivity is what a participant can move all rows of the matrix by that are released with it.
    fn banded_cost(&self, bands: Bands, accounting: PrivacyAccounting) -> Cost {
        let weight = bands.weight();
        if weight == 0.0 {
            return Cost::zero();
        }
        let sum = SumMechanism { sensitivity: self.sum.sensitivity * weight.sqrt(), ..self.sum };
        let curve = sum.curve();
        let close = sum_close(&sum, 1.0, 1, bands.vectors()).filter(|_| accounting == PrivacyAccounting::Pld);
        Cost { published: curve.clone(), cohort_known: curve, rho: sum.rho(), close: None, close_known: close }
    }

    /// A participant is in one leaf, so in one node of each level: releases cost the levels that they add, and each of them
    /// has the noise of one node more.
    fn tree_cost(&self, levels: u32, nodes: u32, accounting: PrivacyAccounting) -> Cost {
        let curve = self.sum.curve().times(levels.into());
        let rho = self.sum.rho().map(|rho| rho * f64::from(levels));
        let close =
            sum_close(&self.sum, 1.0, levels.into(), nodes.into()).filter(|_| accounting == PrivacyAccounting::Pld);
        Cost { published: curve.clone(), cohort_known: curve, rho, close: None, close_known: close }
    }

    /// The same as a participant charges it to itself: it knows that it took part, so sampling hides nothing from whoever else
    /// does.
    #[must_use]
    pub fn without_sampling(self) -> Self {
        Self { sampled: Sampled::Anyhow, ..self }
    }

    /// Standard deviation of the noise over the sensitivity.
    #[must_use]
    pub fn noise_multiplier(&self) -> f64 {
        self.sum.sigma() / self.sum.sensitivity
    }

    /// What the tighter accountant says of the textbook release with continuous noise, once, at `delta`; for comparison,
    /// since it is not what was released. Nothing where there is no such release.
    #[must_use]
    pub fn textbook_pld(&self, delta: f64) -> Option<f64> {
        let rate = match self.sampled {
            Sampled::Anyhow => 1.0,
            Sampled::Poisson { rate } => rate,
            Sampled::FixedSize { .. } => return None,
        };
        Gaussians::new(rate, self.noise_multiplier(), 1).epsilon(delta)
    }
}

/// `times` releases of a participant drawn with this probability, with the noise of so many sums, seen as rounded continuous
/// noise; nothing where that is not proven to be close.
fn sum_close(sum: &SumMechanism, rate: f64, times: u64, sums: u64) -> Option<CloseCurve> {
    let tau = match sum.noise {
        SumNoise::DiscreteGaussian { .. } => 0.0,
        SumNoise::DiscreteGaussianShares { sigma, shares } => sum_divergence(sigma, shares),
        SumNoise::Skellam { .. } => return None,
    };
    let gaussians = Gaussians::new(rate, sum.sigma() / sum.sensitivity, times);
    CloseCurve::new(gaussians, sum.dimension.saturating_mul(sums), sum.sigma(), tau)
}
