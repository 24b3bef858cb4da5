//! A release as it happened, and its cost to different observers.

use serde::{Deserialize, Serialize};
use task_spec::{NoisedBy, PrivacyAccounting, PrivacyMechanism, PrivacyView};

use super::accountant::integer_noise::sum_divergence;
use super::accountant::{
    CloseCurve, Closeness, Gaussians, RdpCurve, SumMechanism, SumNoise, Textbook, poisson_sampled, tree_levels,
    without_replacement, zcdp,
};
use super::mechanisms::banded::Bands;

/// How the cohort of a release was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Sampled {
    /// Arbitrarily, without amplification.
    Anyhow,
    /// Each enrolled participant independently with this probability. Neighbours: one participant more or less.
    Poisson {
        /// Above 0, at most 1.
        rate: f64,
    },
    /// A fixed number, uniformly. Neighbours: one participant replaced by another.
    FixedSize {
        cohort: u32,
        /// Number of enrolled participants.
        population: u32,
    },
}

impl Sampled {
    /// Whether the published figure benefits from the secrecy of the cohort and its size; false if all are drawn.
    #[must_use]
    pub fn is_secret(self) -> bool {
        match self {
            Self::Anyhow => false,
            Self::Poisson { rate } => rate < 1.0,
            Self::FixedSize { cohort, population } => cohort < population,
        }
    }
}

/// The unit charged by a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Number of the round.
    pub round: u64,
    /// Attempt within the round; each one is charged.
    pub attempt: u32,
    pub mechanism: PrivacyMechanism,
    /// Noise and sensitivity on the integer grid. For `local`, of one participant alone.
    pub sum: SumMechanism,
    /// How the cohort was drawn.
    pub sampled: Sampled,
    /// Number of participants in the sum; 0 only if the coordinator adds the noise.
    pub participants: u32,
    /// For a tree: index of this release in the current tree, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_release: Option<u32>,
    /// For a banded matrix: the position. `sum` then describes its base noise: vectors of that standard deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<Bands>,
    /// For noise of the cohort: maximum number of a ledger's releases with one participant; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participations: Option<u32>,
}

/// The method behind the figures of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    General,
    /// `published` under Poisson sampling also uses Rényi divergences of continuous noise. Rows with a closeness but no
    /// accounting were charged so.
    Renyi,
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

/// Reasons for a missing epsilon against the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoServerEpsilon {
    /// The coordinator adds the noise, so it is trusted with the exact sum.
    ServerTrusted,
    /// The task has no noise.
    NoMechanism,
}

impl NoServerEpsilon {
    /// The reason for this mechanism, if any.
    #[must_use]
    pub fn of(mechanism: PrivacyMechanism) -> Option<Self> {
        match mechanism.noised_by() {
            NoisedBy::Nobody => Some(Self::NoMechanism),
            NoisedBy::Coordinator | NoisedBy::CoordinatorOverRounds => Some(Self::ServerTrusted),
            NoisedBy::Cohort | NoisedBy::EachParticipant => None,
        }
    }
}

/// A release whose settings contradict each other.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("release of round {round}, attempt {attempt}: {problem}")]
pub struct BadRelease {
    pub round: u64,
    pub attempt: u32,
    pub problem: &'static str,
}

/// Cost of several releases, as additive bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// To observers of the models alone.
    pub published: RdpCurve,
    /// To observers who also know the cohorts.
    pub cohort_known: RdpCurve,
    /// zCDP of `cohort_known`, if it has one.
    pub rho: Option<f64>,
    /// `published` under Poisson sampling via continuous noise, where that is close enough.
    pub(super) close: Option<CloseCurve>,
    /// As `close`, for `cohort_known`.
    pub(super) close_known: Option<CloseCurve>,
}

impl Cost {
    /// The cost of zero releases.
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

    /// The cost of `times` repetitions.
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

    /// The epsilons at `delta`; `server` is the reason for a missing epsilon against the coordinator, if so.
    #[must_use]
    pub fn at(&self, delta: f64, server: Option<NoServerEpsilon>, accounting: PrivacyAccounting) -> Epsilons {
        self.by(delta, server, accounting.into())
    }

    /// The same by a given method, for rows of any version.
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
        // An observer with less knowledge cannot learn more.
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

/// Three separate figures for different observers; never substitute one for another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epsilons {
    /// Against observers of the published models who do not know the cohorts.
    pub published: f64,
    /// Against observers who also know the cohorts.
    pub cohort_known: f64,
    /// Against the coordinator itself.
    pub server: Option<f64>,
    /// Reason for the missing `server`.
    pub server_reason: Option<NoServerEpsilon>,
    /// The part of `published` due to discrete noise being close to continuous noise, if it relies on that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closeness: Option<Closeness>,
    /// As `closeness`, for `cohort_known` and so for `server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort_closeness: Option<Closeness>,
}

impl Epsilons {
    /// The figure limited by a budget for this view; infinite if it is missing.
    #[must_use]
    pub fn against(&self, view: PrivacyView) -> f64 {
        match view {
            PrivacyView::Published => self.published,
            PrivacyView::CohortKnown => self.cohort_known,
            PrivacyView::Server => self.server.unwrap_or(f64::INFINITY),
        }
    }
}

impl Epsilons {
    /// The accounting behind `published`.
    #[must_use]
    pub fn rests_on(&self) -> PrivacyAccounting {
        if self.closeness.is_some() { PrivacyAccounting::Pld } else { PrivacyAccounting::General }
    }
}

impl Release {
    /// Checks that accountants can handle the release.
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
            || (self.participants == 0 && self.mechanism.noised_by() != NoisedBy::Coordinator)
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
        } else if self.participations.is_some_and(|most| most == 0 || self.mechanism.noised_by() != NoisedBy::Cohort) {
            Some("noise of the cohort, and nothing else, counts participations, and allows one at least")
        } else if self.participations.is_some() && self.sampled != Sampled::Anyhow {
            Some("participations are counted where draws gain nothing")
        } else if self.mechanism == PrivacyMechanism::None {
            Some("it was made without a mechanism, so nothing can be charged")
        } else {
            None
        }
    }

    /// The cost, with as many bounds as this accounting needs.
    #[must_use]
    pub fn cost(&self, accounting: PrivacyAccounting) -> Cost {
        if let Some(t) = self.tree_release {
            return self.tree_cost(tree_levels(t) - tree_levels(t - 1), 1, accounting);
        }
        if let Some(bands) = self.bands {
            return self.banded_cost(bands, accounting);
        }
        let sum = match self.sampled {
            // A replacement removes one update and adds another.
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

    /// Cost of the first `releases` such releases of a task to one participant; `one` is the cost of the first alone.
    pub(super) fn whole(&self, one: &Cost, releases: u32, accounting: PrivacyAccounting) -> Cost {
        match (self.tree_release, self.bands) {
            (Some(_), _) => self.tree_cost(tree_levels(releases), releases, accounting),
            (None, Some(bands)) => self.banded_cost(bands.whole(releases), accounting),
            (None, None) => one.times(self.participations.map_or(releases, |most| most.min(releases)).into()),
        }
    }

    /// Cost of this release and its successors, `count` in total; `one` is the cost of this one alone.
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

    /// One Gaussian whose sensitivity is the maximum change by one participant of all rows released with it.
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

    /// A participant is in one leaf, and so in one node per level: releases cost the levels that they add, each with
    /// the noise of one node.
    fn tree_cost(&self, levels: u32, nodes: u32, accounting: PrivacyAccounting) -> Cost {
        let curve = self.sum.curve().times(levels.into());
        let rho = self.sum.rho().map(|rho| rho * f64::from(levels));
        let close =
            sum_close(&self.sum, 1.0, levels.into(), nodes.into()).filter(|_| accounting == PrivacyAccounting::Pld);
        Cost { published: curve.clone(), cohort_known: curve, rho, close: None, close_known: close }
    }

    /// The release as a participant charges it to itself: it knows that it took part, so sampling hides nothing from
    /// other participants.
    #[must_use]
    pub fn without_sampling(self) -> Self {
        Self { sampled: Sampled::Anyhow, ..self }
    }

    /// Standard deviation of the noise over the sensitivity.
    #[must_use]
    pub fn noise_multiplier(&self) -> f64 {
        self.sum.sigma() / self.sum.sensitivity
    }

    /// For comparison: epsilon at `delta` of one textbook release with continuous noise by the tighter accountant, not of the actual
    /// release. `None` if there is no such release.
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

/// `times` releases to a participant drawn with this probability, with the noise of this many sums, treated as rounded
/// continuous noise; `None` if that is not proven close.
fn sum_close(sum: &SumMechanism, rate: f64, times: u64, sums: u64) -> Option<CloseCurve> {
    let tau = match sum.noise {
        SumNoise::DiscreteGaussian { .. } => 0.0,
        SumNoise::DiscreteGaussianShares { sigma, shares } => sum_divergence(sigma, shares),
        SumNoise::Skellam { .. } => return None,
    };
    let gaussians = Gaussians::new(rate, sum.sigma() / sum.sensitivity, times);
    CloseCurve::new(gaussians, sum.dimension.saturating_mul(sums), sum.sigma(), tau)
}
