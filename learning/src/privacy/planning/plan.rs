//! Plans the privacy cost of a task before training: the noise for a budget, or the budget for a noise level.

use task_spec::{NOISE_RANGE, NoisedBy, PrivacyAccounting, PrivacyMechanism};

pub use super::draws::{largest_draw, smallest_draw};
pub use super::planned::{Plan, PlanError, Textbook};
pub use super::warnings::{NOISE_TO_SIGNAL_MAX, promise_warnings};
use crate::privacy::accountant::{Gaussians, SumMechanism, SumNoise, poisson_gaussian, tree_levels};
use crate::privacy::codec::private_codec::CLIP_UNITS_MIN;
use crate::privacy::mechanisms::banded::{BANDS_MAX, BandedMatrix, Bands, coarse};
use crate::privacy::mechanisms::noise::{NoiseError, NoiseShares};
use crate::privacy::release::{Cost, Epsilons, NoServerEpsilon, Release, Sampled};
use crate::privacy::{PrivateCodec, PrivateCodecError, PrivateCodecParams, SamplingRate};

/// Headroom, in standard deviations, where the modulus is too small for certainty.
pub(super) const WRAP_SIGMAS: f64 = 4.0;
/// Maximum number of rounds of a plan.
pub const ROUNDS_MAX: u32 = 1_000_000;

/// Input of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanRequest {
    /// The mechanism; `none` cannot be planned.
    pub mechanism: PrivacyMechanism,
    /// Number of enrolled participants.
    pub population: u32,
    /// Expected number of participants per round.
    pub cohort: u32,
    /// Rounds, 1 to [`ROUNDS_MAX`].
    pub rounds: u32,
    /// Above 0, below 1.
    pub delta: f64,
    /// The given quantity; the other one is computed.
    pub goal: Goal,
    /// How cohorts are drawn.
    pub sampling: PlanSampling,
    /// Shared parameters of the model.
    pub parameters: u64,
    /// Bits of the modulus, 16 to 32.
    pub modulus_bits: u8,
    /// Fewest survivors in a sum, if participants add the noise; at most `cohort`.
    pub smallest_cohort: u32,
    /// How many of them may reveal their share to the coordinator.
    pub colluders: u32,
    /// Maximum number of rounds per participant; `None`: all. With a banded matrix it may exceed `rounds`, to allow for later rounds.
    /// Releases with noise of the cohort cost this many.
    pub participations: Option<u32>,
    /// With a banded matrix: fewest rounds between two participations of a participant; `None`: as many as `rounds`. The costs of other
    /// mechanisms are independent of it.
    pub separation: Option<u32>,
    /// Whether the clipping norm adapts, for which some of the noise is used.
    pub adaptive: bool,
    /// Cap on the weight of an update, in examples; 1 makes the mean unweighted.
    pub max_weight: u32,
    /// Expected weight of a participant, over `max_weight`.
    pub expected_weight: f64,
    /// The accounting method behind the figures.
    pub accounting: PrivacyAccounting,
}

/// The quantity that is given; the plan computes the other one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The published epsilon; the plan finds the least sufficient noise.
    Epsilon(f64),
    /// The noise multiplier; the plan computes epsilon.
    Noise(f64),
}

/// How cohorts are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlanSampling {
    /// Each enrolled participant independently with this probability.
    Poisson(SamplingRate),
    /// Exactly `cohort` out of `population`, uniformly.
    FixedSize,
    /// Arbitrarily, without amplification.
    Anyhow,
}

/// Computes a plan.
///
/// # Errors
/// Any [`PlanError`], with a sufficient value.
pub fn plan(request: &PlanRequest) -> Result<Plan, PlanError> {
    request.check()?;
    let noise_multiplier = match request.goal {
        Goal::Noise(z) => z,
        Goal::Epsilon(epsilon) => request.solve(epsilon)?,
    };
    let codec = request.codec(noise_multiplier)?;
    let release = request.release(&codec)?;
    let epsilon = request.epsilons(&release);
    let noise_to_signal = request.noise_to_signal(&release, &codec);
    let mut plan = Plan {
        noise_multiplier,
        epsilon,
        accountant: request.textbook(noise_multiplier),
        noise_to_signal,
        noise_on_sums: request.noise_on_sums(noise_to_signal),
        release,
        warnings: vec![],
    };
    plan.warnings = request.warnings(&plan, &codec);
    Ok(plan)
}

impl PlanRequest {
    /// Published epsilon after increasing numbers of rounds with this noise: at most `points` values, the last one
    /// included.
    ///
    /// # Errors
    /// Any [`PlanError`].
    pub fn curve(&self, noise_multiplier: f64, points: u32) -> Result<Vec<(u32, Epsilons)>, PlanError> {
        self.check()?;
        let release = self.release(&self.codec(noise_multiplier)?)?;
        let points = points.clamp(1, self.rounds);
        let at = |point: u32| u32::try_from(u64::from(self.rounds) * u64::from(point) / u64::from(points));
        let cost = release.cost(self.accounting);
        let epsilons = |rounds: u32| (rounds, self.epsilons_of(&release, &cost, rounds));
        Ok((1..=points).filter_map(|point| at(point).ok()).map(epsilons).collect())
    }

    /// The smallest cohort whose published epsilon is at most `epsilon` if the noise on the *mean* stays as in `plan`:
    /// a larger cohort allows more noise on the sum. `None` if the whole population does not suffice.
    ///
    /// # Errors
    /// Any [`PlanError`].
    pub fn cohort_for(&self, plan: &Plan, epsilon: f64) -> Result<Option<u32>, PlanError> {
        self.check()?;
        let published = |cohort: u32| {
            let request = self.with_cohort(cohort).filter(|request| request.check_turns().is_ok())?;
            let z = plan.noise_multiplier * f64::from(cohort) / f64::from(self.cohort);
            if NOISE_RANGE.contains(&z) { request.published(z).ok() } else { None }
        };
        // A larger cohort without a plan is too large for one sum, or for the available noise.
        let most = least(self.cohort, self.population, |cohort| published(cohort).is_none()) - 1;
        let enough = |cohort: u32| published(cohort).is_some_and(|published| published <= epsilon);
        Ok(Some(least(0, most, enough)).filter(|cohort| *cohort <= most))
    }

    /// The same request for another cohort, with the same shares of dropouts and colluders.
    pub(super) fn with_cohort(&self, cohort: u32) -> Option<Self> {
        let share = f64::from(cohort) / f64::from(self.cohort);
        let scaled = |count: u32| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a cohort")]
            let scaled = (f64::from(count) * share).floor() as u32;
            scaled
        };
        let (smallest_cohort, colluders) = (scaled(self.smallest_cohort).max(1), scaled(self.colluders));
        let sampling = match self.sampling {
            PlanSampling::Poisson(_) => {
                PlanSampling::Poisson(SamplingRate::new(f64::from(cohort) / f64::from(self.population)).ok()?)
            }
            PlanSampling::FixedSize => PlanSampling::FixedSize,
            PlanSampling::Anyhow => PlanSampling::Anyhow,
        };
        Some(Self { cohort, smallest_cohort, colluders, sampling, ..*self })
    }

    pub(in crate::privacy) fn check(&self) -> Result<(), PlanError> {
        let cohort = f64::from(self.cohort);
        let goal = match self.goal {
            Goal::Epsilon(epsilon) => ("epsilon", "finite and above 0", epsilon, epsilon.is_finite() && epsilon > 0.0),
            Goal::Noise(z) => ("noise", "a multiplier between 0.01 and 10000", z, NOISE_RANGE.contains(&z)),
        };
        let delta = self.delta;
        let smallest = (1..=self.cohort).contains(&self.smallest_cohort);
        let most_participations = if self.mechanism == PrivacyMechanism::BandedMatrix { u32::MAX } else { self.rounds };
        let checks = [
            ("population", "at least 1", f64::from(self.population), self.population > 0),
            ("cohort", "at least 1 and at most the population", cohort, (1..=self.population).contains(&self.cohort)),
            ("rounds", "1 to 1000000", f64::from(self.rounds), (1..=ROUNDS_MAX).contains(&self.rounds)),
            ("delta", "above 0 and below 1", delta, delta > 0.0 && delta < 1.0),
            goal,
            ("parameters", "1 to 2^28", self.parameters as f64, (1..=1 << 28).contains(&self.parameters)),
            ("smallest_cohort", "at least 1 and at most the cohort", f64::from(self.smallest_cohort), smallest),
            (
                "separation",
                "at least 1",
                f64::from(self.separation.unwrap_or(1)),
                self.separation.is_none_or(|rounds| rounds > 0),
            ),
            (
                "participations",
                "at least 1 and at most the rounds",
                f64::from(self.participations.unwrap_or(1)),
                self.participations.is_none_or(|times| (1..=most_participations).contains(&times)),
            ),
        ];
        match checks.into_iter().find(|(.., holds)| !holds) {
            Some((name, range, value, _)) => Err(PlanError::Range { name, range, value }),
            None if self.mechanism == PrivacyMechanism::None => Err(PlanError::NoMechanism),
            None => self.check_turns(),
        }
    }

    /// The largest cohort for a sum's headroom.
    #[must_use]
    pub fn largest_cohort(&self) -> u32 {
        match self.sampling {
            PlanSampling::Poisson(rate) => largest_draw(self.population, rate).max(self.cohort),
            PlanSampling::FixedSize | PlanSampling::Anyhow => self.cohort,
        }
    }

    /// The codec of both sides for this noise multiplier.
    ///
    /// # Errors
    /// [`PlanError::Codec`].
    pub fn codec(&self, noise_multiplier: f64) -> Result<PrivateCodec, PlanError> {
        let max_cohort = self.largest_cohort();
        let honest = f64::from(self.smallest_cohort.saturating_sub(self.colluders).max(1));
        let noise_ceiling = match self.mechanism {
            PrivacyMechanism::Tree => (2.0 * f64::from(tree_levels(self.rounds))).sqrt(),
            // Rounding to the grid adds a twelfth to the variance of each place's noise.
            PrivacyMechanism::BandedMatrix => {
                let least = noise_multiplier * CLIP_UNITS_MIN;
                (self.matrix().release_variance(self.rounds) * (1.0 + 1.0 / (12.0 * least * least))).sqrt()
            }
            PrivacyMechanism::Local => f64::from(max_cohort).sqrt(),
            PrivacyMechanism::DistributedDiscreteGaussian | PrivacyMechanism::DistributedSkellam => {
                (f64::from(max_cohort) / honest).sqrt().max(1.0)
            }
            PrivacyMechanism::None | PrivacyMechanism::CentralGaussian => 1.0,
        };
        let params = PrivateCodecParams {
            parameters: usize::try_from(self.parameters).unwrap_or(usize::MAX),
            modulus_bits: self.modulus_bits,
            max_cohort,
            noise_multiplier,
            noise_ceiling,
            rotate: self.mechanism.needs_secure_aggregation(),
            wrap_sigmas: None,
            // The paper's choice.
            count_noise: self.adaptive.then_some(f64::from(self.cohort) / 20.0),
            max_weight: self.max_weight,
            expected_cohort: f64::from(self.cohort),
            expected_weight: self.expected_weight,
        };
        // Full headroom if there is enough; otherwise, if rotated, headroom for likely sums.
        match PrivateCodec::new(params) {
            Err(PrivateCodecError::Headroom { .. }) if params.rotate => {
                Ok(PrivateCodec::new(PrivateCodecParams { wrap_sigmas: Some(WRAP_SIGMAS), ..params })?)
            }
            other => Ok(other?),
        }
    }

    /// Noise added by each participant, if any: a share, or all of it under local privacy.
    ///
    /// # Errors
    /// [`PlanError::Noise`].
    pub fn shares(&self, codec: &PrivateCodec) -> Result<Option<NoiseShares>, PlanError> {
        let total = codec.sigma().value();
        Ok(match self.mechanism {
            PrivacyMechanism::DistributedDiscreteGaussian => {
                Some(NoiseShares::discrete_gaussian(total, self.smallest_cohort, self.colluders)?)
            }
            PrivacyMechanism::DistributedSkellam => {
                Some(NoiseShares::skellam(total, self.smallest_cohort, self.colluders)?)
            }
            PrivacyMechanism::Local => Some(NoiseShares::discrete_gaussian(total, 1, 0)?),
            PrivacyMechanism::None
            | PrivacyMechanism::CentralGaussian
            | PrivacyMechanism::Tree
            | PrivacyMechanism::BandedMatrix => None,
        })
    }

    /// Number of bands of a banded matrix: the separation of participations, up to the useful maximum.
    #[must_use]
    pub fn bands(&self) -> u32 {
        self.separation.unwrap_or(self.rounds).min(self.rounds).clamp(1, BANDS_MAX)
    }

    fn matrix(&self) -> BandedMatrix {
        BandedMatrix::new(self.bands())
    }

    /// Upper bound on the variance of the noise in one release, relative to the base noise; for a tree, the average.
    fn release_variance(&self) -> f64 {
        match self.mechanism {
            // The increment of a release has two nodes on average.
            PrivacyMechanism::Tree => 2.0,
            PrivacyMechanism::BandedMatrix => self.matrix().release_variance(self.rounds),
            PrivacyMechanism::None
            | PrivacyMechanism::CentralGaussian
            | PrivacyMechanism::DistributedDiscreteGaussian
            | PrivacyMechanism::DistributedSkellam
            | PrivacyMechanism::Local => 1.0,
        }
    }

    /// The same for the sum of all releases so far, after each round.
    fn prefix_variances(&self) -> Box<dyn Iterator<Item = f64>> {
        match self.mechanism {
            PrivacyMechanism::Tree => Box::new((1..=self.rounds).map(|t| f64::from(t.count_ones()))),
            PrivacyMechanism::BandedMatrix => Box::new(self.matrix().prefix_variances(self.rounds)),
            PrivacyMechanism::None
            | PrivacyMechanism::CentralGaussian
            | PrivacyMechanism::DistributedDiscreteGaussian
            | PrivacyMechanism::DistributedSkellam
            | PrivacyMechanism::Local => Box::new((1..=self.rounds).map(f64::from)),
        }
    }

    /// Length of the noise on the sum of all rounds' means over the clipping norm.
    pub(super) fn noise_on_last_sum(&self, noise_to_signal: f64) -> f64 {
        noise_to_signal * (self.prefix_variances().last().unwrap_or(1.0) / self.release_variance()).sqrt()
    }

    /// The same for the sums so far, as root mean square over the rounds.
    fn noise_on_sums(&self, noise_to_signal: f64) -> f64 {
        let mean = self.prefix_variances().sum::<f64>() / f64::from(self.rounds);
        noise_to_signal * (mean / self.release_variance()).sqrt()
    }

    /// The release that a round with this codec plans for: with the smallest cohort, and the first of a tree. The
    /// actual release records who survived and can only cost less.
    ///
    /// # Errors
    /// [`PlanError::Noise`].
    pub fn release(&self, codec: &PrivateCodec) -> Result<Release, PlanError> {
        let survivors = match self.mechanism.noised_by() {
            NoisedBy::EachParticipant => 1,
            NoisedBy::Nobody | NoisedBy::Coordinator | NoisedBy::CoordinatorOverRounds | NoisedBy::Cohort => {
                self.smallest_cohort
            }
        };
        let is_banded = self.mechanism == PrivacyMechanism::BandedMatrix;
        let noise = match self.shares(codec)? {
            Some(shares) => shares.noise_of(survivors)?,
            None if is_banded => SumNoise::DiscreteGaussian { sigma: coarse(codec.sigma()).map_err(NoiseError::from)? },
            None => SumNoise::DiscreteGaussian { sigma: codec.sigma().value() },
        };
        // Without a declared maximum, later rounds are possible.
        let participations = self.participations.unwrap_or(u32::MAX);
        let bands = Bands { bands: self.bands(), participations, after: 0, place: 1 };
        let sampled = match self.sampling {
            PlanSampling::Poisson(rate) => Sampled::Poisson { rate: rate.value() },
            PlanSampling::FixedSize => Sampled::FixedSize { cohort: self.cohort, population: self.population },
            PlanSampling::Anyhow => Sampled::Anyhow,
        };
        let tree = self.mechanism == PrivacyMechanism::Tree;
        // Participants' noise reveals how many there were, and secure aggregation needs a minimum: whether a round
        // completes depends on the draw, so nothing may rely on the draw being secret.
        let sampled = if self.mechanism.is_noised_by_participants() { Sampled::Anyhow } else { sampled };
        Ok(Release {
            round: 1,
            attempt: 0,
            mechanism: self.mechanism,
            sum: SumMechanism { noise, sensitivity: codec.sensitivity(), dimension: codec.dimension() },
            sampled: if self.mechanism.is_correlated() { Sampled::Anyhow } else { sampled },
            participants: survivors,
            tree_release: tree.then_some(1),
            bands: is_banded.then_some(bands),
            participations: self.participations.filter(|_| self.mechanism.noised_by() == NoisedBy::Cohort),
        })
    }

    fn published(&self, noise_multiplier: f64) -> Result<f64, PlanError> {
        let release = self.release(&self.codec(noise_multiplier)?)?;
        Ok(self.epsilons(&release).published)
    }

    /// The epsilons of all rounds. A participant charges itself whole columns of a banded matrix, even the last one, so
    /// these must fit the plan.
    fn epsilons(&self, release: &Release) -> Epsilons {
        let rounds = release.bands.map_or(self.rounds, |bands| self.rounds.next_multiple_of(bands.bands));
        self.epsilons_of(release, &release.cost(self.accounting), rounds)
    }

    /// A tree costs its levels, a banded matrix a participant's columns, every other mechanism a fixed cost per round.
    /// An observer who knows the cohorts counts a participant's own rounds only.
    fn epsilons_of(&self, release: &Release, cost: &Cost, rounds: u32) -> Epsilons {
        let server = NoServerEpsilon::of(self.mechanism);
        let all = release.whole(cost, rounds, self.accounting).at(self.delta, server, self.accounting);
        if self.mechanism.is_correlated() {
            return all;
        }
        let own = cost.times(u64::from(self.participations.unwrap_or(rounds).min(rounds))).at(
            self.delta,
            server,
            self.accounting,
        );
        // An observer with less knowledge cannot learn more.
        if own.cohort_known < all.published {
            return Epsilons { published: own.cohort_known, closeness: own.cohort_closeness, ..own };
        }
        Epsilons { published: all.published, closeness: all.closeness, ..own }
    }

    /// The least multiplier for the published epsilon, by bisection, rounded up.
    fn solve(&self, wanted: f64) -> Result<f64, PlanError> {
        let enough = |z: f64| self.published(z).is_ok_and(|epsilon| epsilon <= wanted);
        let (mut low, mut high) = (*NOISE_RANGE.start(), 1.0);
        // A multiplier too small for the mechanism is treated as too costly.
        while !enough(high) {
            low = high;
            high *= 2.0;
            if high > *NOISE_RANGE.end() {
                return Err(PlanError::Unreachable { wanted, most: low, best: self.published(low)? });
            }
        }
        while high - low > 1e-6 * high {
            let middle = 0.5 * (low + high);
            if enough(middle) { high = middle } else { low = middle }
        }
        Ok(high)
    }

    fn textbook(&self, z: f64) -> Textbook {
        let rate = match self.sampling {
            PlanSampling::Poisson(rate) => rate.value(),
            PlanSampling::FixedSize | PlanSampling::Anyhow => f64::from(self.cohort) / f64::from(self.population),
        };
        let rdp = poisson_gaussian(rate, z).times(u64::from(self.rounds)).epsilon(self.delta).0;
        Textbook { rdp, pld: Gaussians::new(rate, z, self.rounds.into()).epsilon(self.delta) }
    }

    /// `|noise on the mean| / S`: sigma sqrt(d) / (cohort * expected weight * units of S), where the mean has a fixed
    /// denominator.
    fn noise_to_signal(&self, release: &Release, codec: &PrivateCodec) -> f64 {
        let added = match self.mechanism {
            // The noise of all participants adds up.
            PrivacyMechanism::Local => release.sum.sigma() * f64::from(self.cohort).sqrt(),
            PrivacyMechanism::Tree | PrivacyMechanism::BandedMatrix => {
                release.sum.sigma() * self.release_variance().sqrt()
            }
            PrivacyMechanism::None
            | PrivacyMechanism::CentralGaussian
            | PrivacyMechanism::DistributedDiscreteGaussian
            | PrivacyMechanism::DistributedSkellam => codec.sigma().value(),
        };
        let denominator = f64::from(self.cohort) * self.expected_weight;
        added * (self.parameters as f64).sqrt() / (denominator * codec.scale(1.0))
    }
}

/// The least number above `low`, at most `high`, with `holds`, given that `holds` is monotone; `high + 1` if `holds` is always false.
fn least(mut low: u32, high: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let mut high = high.saturating_add(1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}
