//! Noise vectors: drawn by the coordinator once per round, in shares by the participants, or along a tree.
//!
//! Words are integers modulo 2^b. Adding noise and reducing is post-processing of the noised integers, so wrapping may
//! cost utility but never privacy.

use rand::CryptoRng;
use rand_chacha::ChaCha20Rng;
use serde::{Deserialize, Serialize};

use crate::privacy::accountant::{SumMechanism, SumNoise};
use crate::privacy::{DiscreteGaussian, PlaceSeeds, Sigma, Skellam, Variance};

/// Smallest standard deviation, in grid units, of a participant's share of discrete Gaussian noise: for narrower shares
/// the bound on how close their sum is to a discrete Gaussian becomes useless.
pub const SHARE_SIGMA_MIN: f64 = 2.0;

/// Distribution of one party's noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseLaw {
    /// Discrete Gaussian of this standard deviation.
    DiscreteGaussian(Sigma),
    /// Skellam of this variance.
    Skellam(Variance),
}

impl NoiseLaw {
    /// The variance, up to the small difference between discrete and continuous Gaussians.
    #[must_use]
    pub fn variance(&self) -> f64 {
        match self {
            Self::DiscreteGaussian(sigma) => sigma.value() * sigma.value(),
            Self::Skellam(variance) => variance.value(),
        }
    }
}

/// Reasons noise cannot be drawn or is too small.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoiseError {
    /// Outside the samplers' range.
    #[error(transparent)]
    Sigma(#[from] super::discrete_gaussian::BadSigma),
    /// Outside the samplers' range.
    #[error(transparent)]
    Variance(#[from] super::skellam::BadVariance),
    /// The bound on a sum of discrete Gaussians is useless.
    #[error(
        "a participant's share of the noise would have a standard deviation of {sigma:.3} units; below {SHARE_SIGMA_MIN} the \
         bound on sums of discrete Gaussians is useless: {needed:.1} units in all would do (more noise, or a larger \
         modulus), or distributed_skellam"
    )]
    ShareTooSmall {
        /// Of one share, in grid units.
        sigma: f64,
        /// Sufficient standard deviation of the sum.
        needed: f64,
    },
    /// All participants could be colluders.
    #[error("noise needs at least one honest participant, but {colluders} of {smallest_cohort} may collude")]
    NobodyHonest {
        smallest_cohort: u32,
        /// How many of them may reveal their share.
        colluders: u32,
    },
    /// Less noise than promised.
    #[error(
        "{survivors} participants added noise where at least {needed} must: the release would be noised too little"
    )]
    CohortTooSmall {
        survivors: u32,
        /// The number of survivors assumed by the noise.
        needed: u32,
    },
}

/// Noise shares sufficient for the required noise without the shares of dropouts and colluders.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseShares {
    /// Noise added by each participant.
    pub share: NoiseLaw,
    /// Fewest participants in a sum.
    pub smallest_cohort: u32,
    /// How many of them may reveal their share to the coordinator.
    pub colluders: u32,
}

impl NoiseShares {
    /// Shares of discrete Gaussian noise, each of variance `total^2 / (smallest_cohort - colluders)`.
    ///
    /// # Errors
    /// [`NoiseError`]; if a share is too small, with the sufficient total.
    pub fn discrete_gaussian(total: f64, smallest_cohort: u32, colluders: u32) -> Result<Self, NoiseError> {
        let honest = honest(smallest_cohort, colluders)?;
        let sigma = total / honest.sqrt();
        if sigma < SHARE_SIGMA_MIN {
            return Err(NoiseError::ShareTooSmall { sigma, needed: SHARE_SIGMA_MIN * honest.sqrt() });
        }
        Ok(Self { share: NoiseLaw::DiscreteGaussian(Sigma::at_least(sigma)?), smallest_cohort, colluders })
    }

    /// Shares of Skellam noise.
    ///
    /// # Errors
    /// [`NoiseError`].
    pub fn skellam(total: f64, smallest_cohort: u32, colluders: u32) -> Result<Self, NoiseError> {
        let variance = total * total / honest(smallest_cohort, colluders)?;
        Ok(Self { share: NoiseLaw::Skellam(Variance::at_least(variance)?), smallest_cohort, colluders })
    }

    /// The noise that the coordinator cannot remove from a sum of this many survivors: their shares without the
    /// colluders'.
    ///
    /// # Errors
    /// [`NoiseError::CohortTooSmall`]: such a sum must not be opened.
    pub fn noise_of(&self, survivors: u32) -> Result<SumNoise, NoiseError> {
        if survivors < self.smallest_cohort {
            return Err(NoiseError::CohortTooSmall { survivors, needed: self.smallest_cohort });
        }
        let shares = survivors - self.colluders;
        Ok(match self.share {
            NoiseLaw::DiscreteGaussian(sigma) => SumNoise::DiscreteGaussianShares { sigma: sigma.value(), shares },
            NoiseLaw::Skellam(variance) => SumNoise::Skellam { variance: variance.value() * f64::from(shares) },
        })
    }

    /// The mechanism of a sum of `survivors`.
    ///
    /// # Errors
    /// [`NoiseError::CohortTooSmall`].
    pub fn mechanism(&self, survivors: u32, sensitivity: f64, dimension: u64) -> Result<SumMechanism, NoiseError> {
        Ok(SumMechanism { noise: self.noise_of(survivors)?, sensitivity, dimension })
    }
}

fn honest(smallest_cohort: u32, colluders: u32) -> Result<f64, NoiseError> {
    match smallest_cohort.checked_sub(colluders) {
        Some(honest) if honest > 0 => Ok(f64::from(honest)),
        _ => Err(NoiseError::NobodyHonest { smallest_cohort, colluders }),
    }
}

/// Draws integers from a noise law.
#[derive(Clone, Debug)]
pub enum NoiseSampler {
    DiscreteGaussian(DiscreteGaussian),
    Skellam(Skellam),
}

impl NoiseSampler {
    #[must_use]
    pub fn new(law: NoiseLaw) -> Self {
        match law {
            NoiseLaw::DiscreteGaussian(sigma) => Self::DiscreteGaussian(DiscreteGaussian::new(sigma)),
            NoiseLaw::Skellam(variance) => Self::Skellam(Skellam::new(variance)),
        }
    }

    #[inline]
    #[must_use]
    pub fn sample<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> i64 {
        match self {
            Self::DiscreteGaussian(gaussian) => gaussian.sample(rng),
            Self::Skellam(skellam) => skellam.sample(rng),
        }
    }

    /// Adds a fresh draw to every word, modulo 2^`modulus_bits` (16 to 32). The running time reveals something about
    /// the draws: never expose it.
    pub fn add_to<R: CryptoRng + ?Sized>(&self, words: &mut [u32], modulus_bits: u8, rng: &mut R) {
        for word in words {
            *word = add(*word, self.sample(rng), modulus_bits);
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "reduction modulo 2^32 is meant")]
pub(in crate::privacy) fn add(word: u32, noise: i64, modulus_bits: u8) -> u32 {
    word.wrapping_add(noise as u32) & (u32::MAX >> (32 - u32::from(modulus_bits)))
}

/// Noise of binary-tree aggregation, which makes every prefix of the sums private at a cost that grows with its
/// logarithm.
///
/// Release `t` (from 1) gets `N(t) - N(t - 1)`, where `N(t)` is the sum of the noise of the nodes that cover the first
/// `t` leaves. A node's noise is redrawn whenever needed from the seed of the leaf that completes it: each leaf
/// completes exactly one node that is ever used.
pub struct TreeNoise {
    /// The generators of the added draws, each with its sign.
    nodes: Vec<(ChaCha20Rng, i64)>,
    sampler: DiscreteGaussian,
}

impl TreeNoise {
    /// The noise of the release at the last place in `seeds`, in a tree whose nodes have noise of this standard
    /// deviation.
    #[must_use]
    pub fn new(seeds: PlaceSeeds, sigma: Sigma) -> Self {
        let t = seeds.last();
        let size = t & t.wrapping_neg();
        // Leaf t completes a new node; the nodes of the previous prefix that it covers are subtracted. A node ends at a leaf and
        // covers as many as the largest power of two that divides the leaf.
        let mut nodes = vec![(seeds.rng(t), 1)];
        let mut end = t - 1;
        while end > t - size {
            nodes.push((seeds.rng(end), -1));
            end -= end & end.wrapping_neg();
        }
        Self { nodes, sampler: DiscreteGaussian::new(sigma) }
    }

    /// Adds the noise to the words of the release's exact sum, or of the next slice of it.
    pub fn add_to(&mut self, words: &mut [u32], modulus_bits: u8) {
        for (rng, sign) in &mut self.nodes {
            for word in &mut *words {
                *word = add(*word, *sign * self.sampler.sample(rng), modulus_bits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::*;

    #[test]
    fn shares_make_up_the_total() {
        let shares = NoiseShares::discrete_gaussian(100.0, 30, 5).unwrap();
        let SumNoise::DiscreteGaussianShares { sigma, shares: counted } = shares.noise_of(30).unwrap() else {
            panic!("the wrong law");
        };
        assert_eq!(counted, 25);
        assert!(sigma * 5.0 >= 100.0 && sigma * 5.0 < 100.01, "{sigma}");
        let mechanism = shares.mechanism(40, 10.0, 1000).unwrap();
        assert!((mechanism.sigma() - sigma * 35_f64.sqrt()).abs() < 1e-9);
        let skellam = NoiseShares::skellam(100.0, 30, 5).unwrap().noise_of(31).unwrap();
        assert!(matches!(skellam, SumNoise::Skellam { variance } if (variance - 26.0 * 400.0).abs() < 1e-4));
    }

    #[test]
    fn says_what_would_do() {
        let error = NoiseShares::discrete_gaussian(7.0, 100, 0).unwrap_err();
        assert_eq!(error, NoiseError::ShareTooSmall { sigma: 0.7, needed: 20.0 });
        assert!(error.to_string().contains("20.0 units in all would do"), "{error}");
        assert!(NoiseShares::skellam(7.0, 100, 0).is_ok());
        let nobody = NoiseError::NobodyHonest { smallest_cohort: 3, colluders: 3 };
        assert_eq!(NoiseShares::skellam(7.0, 3, 3), Err(nobody));
        let shares = NoiseShares::skellam(7.0, 10, 3).unwrap();
        assert_eq!(shares.noise_of(9), Err(NoiseError::CohortTooSmall { survivors: 9, needed: 10 }));
        assert!(NoiseShares::discrete_gaussian(f64::NAN, 2, 0).is_err());
        assert!(NoiseShares::skellam(0.0, 2, 0).is_err());
    }

    #[test]
    fn shares_add_up_in_the_sum() {
        let shares = NoiseShares::discrete_gaussian(60.0, 9, 0).unwrap();
        let sampler = NoiseSampler::new(shares.share);
        let mut rng = ChaCha20Rng::seed_from_u64(4);
        let mut words = vec![3_u32; 20_000];
        (0..9).for_each(|_| sampler.add_to(&mut words, 24, &mut rng));
        assert!(words.iter().all(|&word| word < 1 << 24));
        let lifted =
            words.iter().map(|&word| if word >> 23 == 0 { f64::from(word) } else { f64::from(word) - 2f64.powi(24) });
        let variance = lifted.map(|x| (x - 3.0).powi(2)).sum::<f64>() / 20_000.0;
        // 3600, standard error 36.
        assert!((variance - 3600.0).abs() < 160.0, "{variance}");
    }

    fn lift(word: u32) -> i64 {
        i64::from(word.cast_signed())
    }

    #[test]
    fn a_trees_prefix_has_the_noise_of_its_nodes_only() {
        let noise = |seed, t, words| {
            let mut words = vec![0; words];
            TreeNoise::new(PlaceSeeds::up_to(seed, t), Sigma::at_least(1000.0).unwrap()).add_to(&mut words, 32);
            words
        };
        let mut total = vec![0_u32; 4000];
        for t in 1..=21_u32 {
            let words = noise(5, t, 4000);
            total.iter_mut().zip(&words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
            let variance = total.iter().map(|&word| (lift(word) as f64).powi(2)).sum::<f64>() / 4000.0;
            let nodes = f64::from(t.count_ones());
            // Standard error 2.2 %.
            assert!((variance / 1e6 / nodes - 1.0).abs() < 0.1, "{t}: {variance}");
        }
        let again = |seed, t| noise(seed, t, 8);
        assert_eq!(again(5, 6), again(5, 6));
        assert_ne!(again(5, 6), again(6, 6));
        assert_ne!(again(5, 6), again(5, 7));
    }
}
