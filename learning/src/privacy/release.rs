//! One release as it really was, and what it costs whom.

use serde::{Deserialize, Serialize};

use super::Mechanism;
use super::accountant::gaussian;
use super::accountant::integer_noise::sum_divergence;
use super::accountant::{
    CloseCurve, Closeness, LossPair, RdpCurve, SumMechanism, SumNoise, compose, poisson_gaussian, poisson_sampled,
    tree_levels, without_replacement, zcdp,
};

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

/// What a ledger charges for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Number of the round.
    pub round: u64,
    /// Attempt within the round: each is charged.
    pub attempt: u32,
    /// The mechanism that ran.
    pub mechanism: Mechanism,
    /// What it added to what: integers on the grid. For `local`, of one participant alone.
    pub sum: SumMechanism,
    /// How the cohort was drawn.
    pub sampled: Sampled,
    /// Participants whose updates are in it; 0 only where the noise is the coordinator's.
    pub participants: u32,
    /// For a tree: which release of the present tree it is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_release: Option<u32>,
}

/// What the published figure of Poisson-sampled releases rests on. Both are bounds on what is really released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accounting {
    /// The bound for any mechanism (Zhu and Wang 2019), applied to the integers' own Rényi bound.
    #[default]
    General,
    /// Also the textbook's bound for continuous noise, plus what discrete noise differs from it by, which the figures then
    /// name ([`super::accountant::closeness`]); the lower of the two. Not for Skellam noise nor coarse grids.
    Close,
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
    pub fn of(mechanism: Mechanism) -> Option<Self> {
        match mechanism {
            Mechanism::None => Some(Self::NoMechanism),
            Mechanism::CentralGaussian | Mechanism::Tree => Some(Self::ServerTrusted),
            _ => None,
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
    /// The former by way of continuous noise, where that is close.
    close: Option<CloseCurve>,
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
        }
    }

    /// Of both.
    pub fn add(&mut self, other: &Self) {
        self.published.add(&other.published);
        self.cohort_known.add(&other.cohort_known);
        self.rho = self.rho.zip(other.rho).map(|(a, b)| a + b);
        self.close = self.close.take().zip(other.close.as_ref()).map(|(mut sum, other)| {
            sum.add(other);
            sum
        });
    }

    /// Of so many of them.
    #[must_use]
    pub fn times(&self, times: u64) -> Self {
        Self {
            published: self.published.times(times),
            cohort_known: self.cohort_known.times(times),
            rho: self.rho.map(|rho| rho * times as f64),
            close: self.close.as_ref().map(|close| close.times(times)),
        }
    }

    /// The epsilons at `delta`, for a mechanism whose coordinator has one, or has none for this reason.
    #[must_use]
    pub fn at(&self, delta: f64, server: Option<NoServerEpsilon>, accounting: Accounting) -> Epsilons {
        let concentrated = self.rho.map_or(f64::INFINITY, |rho| zcdp::epsilon(rho, delta));
        let cohort_known = self.cohort_known.epsilon(delta).0.min(concentrated);
        // Whoever knows less cannot know more.
        let mut published = self.published.epsilon(delta).0.min(cohort_known);
        let mut closeness = None;
        let close = self.close.as_ref().filter(|_| accounting == Accounting::Close);
        if let Some((epsilon, named)) = close.and_then(|close| close.epsilon(delta))
            && epsilon < published
        {
            (published, closeness) = (epsilon, Some(named));
        }
        let (server, server_reason) = match server {
            Some(reason) => (None, Some(reason)),
            None => (Some(cohort_known), None),
        };
        Epsilons { published, cohort_known, server, server_reason, closeness }
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
        } else if self.sum.dimension == 0 || (self.participants == 0 && self.mechanism != Mechanism::CentralGaussian) {
            Some("it must have coordinates and participants")
        } else if !sampled {
            Some("its cohort cannot have been drawn like that")
        } else if self.tree_release == Some(0) || (self.mechanism == Mechanism::Tree) != self.tree_release.is_some() {
            Some("a tree, and nothing else, counts its releases from 1")
        } else if self.mechanism == Mechanism::None {
            Some("it was made without a mechanism, so nothing can be charged")
        } else {
            None
        }
    }

    /// What it costs, as far as this accounting needs to know.
    #[must_use]
    pub fn cost(&self, accounting: Accounting) -> Cost {
        if let Some(t) = self.tree_release {
            return self.tree_cost(t);
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
        Cost {
            published,
            cohort_known,
            rho: sum.rho(),
            close: if accounting == Accounting::Close { self.close() } else { None },
        }
    }

    /// Seen as rounded continuous noise; only where that is worth something.
    fn close(&self) -> Option<CloseCurve> {
        let Sampled::Poisson { rate } = self.sampled else { return None };
        let tau = match self.sum.noise {
            SumNoise::DiscreteGaussian { .. } => 0.0,
            SumNoise::DiscreteGaussianShares { sigma, shares } => sum_divergence(sigma, shares),
            SumNoise::Skellam { .. } => return None,
        };
        CloseCurve::new(poisson_gaussian(rate, self.noise_multiplier()), self.sum.dimension, self.sum.sigma(), tau)
    }

    /// A participant is in one leaf, so in one node of each level: a release costs the levels that it adds.
    fn tree_cost(&self, t: u32) -> Cost {
        let levels = u64::from(tree_levels(t) - tree_levels(t - 1));
        let curve = self.sum.curve().times(levels);
        let rho = self.sum.rho().map(|rho| rho * levels as f64);
        Cost { published: curve.clone(), cohort_known: curve, rho, close: None }
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
            Sampled::Anyhow => return Some(gaussian::epsilon(self.noise_multiplier(), delta)),
            Sampled::Poisson { rate } => rate,
            Sampled::FixedSize { .. } => return None,
        };
        let pair = LossPair::poisson_gaussian(rate, self.noise_multiplier()).ok()?;
        compose(&[(&pair, 1)]).ok().map(|composed| composed.epsilon(delta)).filter(|epsilon| epsilon.is_finite())
    }
}
