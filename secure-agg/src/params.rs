//! The parameters of a session: the task's configuration, and the derived values for n participants. Validated once.
//!
//! All are integers, with fractions in millionths, so the coordinator and every participant compute the same values. A participant
//! recomputes all of them and refuses to take part below its own [`Policy`].

mod degree;

use thiserror::Error;
use tls_codec::{Serialize as _, TlsDeserializeBytes, TlsSerialize, TlsSize};

use crate::crypto::suite::SUITE_CHACHA20;
use crate::crypto::transcript::{Digest, Transcript};
use crate::mask::MAX_WORDS;
use crate::modular::Modulus;
use crate::participants::MAX_COHORT;

/// Minimum size of any session: with two participants, each would learn the other's input from the sum.
pub const MIN_COHORT: u16 = 3;
/// Fewest inputs in an opened sum by default. From a sum of two, each of the two participants computes the other's input.
/// Larger cohorts need no larger number: the threshold leaves at least two inputs besides those of tolerated colluders.
pub const USUAL_MIN_INCLUDED: u16 = 3;
/// The fraction 1 in millionths.
pub const MILLION: u32 = 1_000_000;
/// Maximum number of participants with a complete mask graph (specification §2.3).
pub const COMPLETE_MASKS_MAX: u16 = 128;

/// Shape of a vector: number of words, modulus, and bound on each word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct VectorShape {
    /// Number of words; 0 without such a vector.
    pub words: u64,
    /// b, in 16..=32: words are modulo 2^b.
    pub modulus_bits: u8,
    /// Largest magnitude of a word of one input, read as a signed number: weight cap times quantized clip range.
    pub input_bound: u64,
    /// Headroom for noise in the sum, in units of a word: `z·σ·sqrt(n)`, 0 without noise. If participants add the
    /// noise, a word of an input may exceed its bound by as much.
    pub noise_margin: u64,
}

/// The session settings of a task. Their digest is part of the session id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct SessionConfig {
    /// The combination of primitives; this version has only [`SUITE_CHACHA20`].
    pub suite: u8,
    /// Minimum number of participants of a session, at least [`MIN_COHORT`].
    pub min_cohort: u16,
    /// Maximum number of participants in a session, at most [`MAX_COHORT`].
    pub max_cohort: u16,
    /// γ in millionths: the maximum fraction of the cohort in collusion with the coordinator.
    pub max_corrupt: u32,
    /// δ in millionths: the maximum fraction of dropouts in the cohort.
    pub max_dropout: u32,
    /// Fewest inputs in a released sum, in addition to the threshold: usually [`USUAL_MIN_INCLUDED`], or more if the
    /// privacy mechanism requires it.
    pub min_included: u16,
    /// The model update, with its weight.
    pub model: VectorShape,
    pub scalars: VectorShape,
    /// Digest of settings of other crates: quantization scale, clip norm, privacy mechanism and budget.
    pub application: Digest,
}

/// The minimum requirements of one participant. It leaves a session with a configuration below any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub min_cohort: u16,
    /// Required tolerance of colluding participants, in millionths of the cohort.
    pub min_tolerated_corrupt: u32,
    /// Required number of tolerated colluders at any size: floor(γn) of the smallest cohort.
    pub min_tolerated_colluders: u16,
    /// Fewest inputs in a released sum, including those required by the threshold.
    pub min_included: u16,
}

/// Reasons a configuration is invalid, with a valid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidConfig {
    /// This version does not have the suite.
    #[error("suite {suite} is unknown: only suite {SUITE_CHACHA20} exists")]
    Suite { suite: u8 },
    /// The cohort's bounds are out of order or out of range.
    #[error("a cohort of {min}..={max} was asked for: {MIN_COHORT} ≤ minimum ≤ maximum ≤ {MAX_COHORT} is required")]
    Cohort { min: u16, max: u16 },
    /// γ is more than half of the cohort.
    #[error("max_corrupt must be at most 500000 millionths, {millionths} were asked for")]
    Corrupt { millionths: u32 },
    /// With this γ, so many dropouts would leave fewer participants than the threshold.
    #[error(
        "max_dropout of {millionths} millionths leaves {left} of {cohort} participants, below the threshold of {threshold}: at most {largest} millionths would work"
    )]
    Dropout {
        millionths: u32,
        /// The cohort size at which it fails.
        cohort: u16,
        left: u16,
        threshold: u16,
        /// The largest valid δ for every cohort size of this configuration.
        largest: u32,
    },
    /// More inputs are required than may remain.
    #[error(
        "a sum must contain at least {min_included} inputs, and the allowed dropouts leave {left} in a cohort of {cohort}: \
         allow fewer dropouts or start with more participants"
    )]
    Included {
        min_included: u16,
        /// The smallest cohort.
        cohort: u16,
        /// Survivors of that cohort.
        left: u16,
    },
    /// A fixed batch is only partly in the roster.
    #[error("the batch of entry {entry} is not whole in the roster")]
    Batch {
        /// Position of one of its members.
        entry: u16,
    },
    /// The model is empty, or a vector is longer than a mask plan.
    #[error("a vector of {words} words was asked for: the model needs at least one, none may exceed {MAX_WORDS}")]
    Words { words: u64 },
    /// This version does not have the modulus.
    #[error("a modulus of 2^{bits} is not supported: the number of bits must be between 16 and 32")]
    Modulus { bits: u8 },
    /// The sum of a full cohort could wrap.
    #[error(
        "{cohort} inputs of magnitude up to {input_bound} plus {noise_margin} for noise do not fit modulo 2^{bits}: at most {largest} per input would"
    )]
    Headroom {
        /// The largest cohort.
        cohort: u16,
        input_bound: u64,
        /// Headroom for noise.
        noise_margin: u64,
        bits: u8,
        /// The largest valid bound per input, or 0.
        largest: u64,
    },
}

/// The derived parameters of a session of n participants. Only [`SessionConfig::params`] creates them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    participants: u16,
    threshold: u16,
    out_degree: u16,
    min_out: u16,
    min_survivors: u16,
}

impl SessionConfig {
    /// Checks everything independent of the number of participants.
    ///
    /// # Errors
    /// [`InvalidConfig`], with the largest valid value, if any.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        if self.suite != SUITE_CHACHA20 {
            return Err(InvalidConfig::Suite { suite: self.suite });
        }
        if self.min_cohort < MIN_COHORT || self.max_cohort < self.min_cohort || self.max_cohort > MAX_COHORT {
            return Err(InvalidConfig::Cohort { min: self.min_cohort, max: self.max_cohort });
        }
        // Beyond half, small cohorts would need more shares than there are holders.
        if self.max_corrupt > MILLION / 2 {
            return Err(InvalidConfig::Corrupt { millionths: self.max_corrupt });
        }
        self.check_dropout()?;
        if self.model.words == 0 {
            return Err(InvalidConfig::Words { words: 0 });
        }
        self.model.validate(self.max_cohort)?;
        self.scalars.validate(self.max_cohort)
    }

    /// t, k_m, t_m and the required survivors for `participants`, which is at least the minimum.
    ///
    /// # Errors
    /// [`InvalidConfig`] if the configuration is invalid or `participants` is outside its cohort bounds.
    pub fn params(&self, participants: u16) -> Result<Params, InvalidConfig> {
        self.validate()?;
        if participants < self.min_cohort || participants > self.max_cohort {
            return Err(InvalidConfig::Cohort { min: participants, max: self.max_cohort });
        }
        let threshold = self.threshold(participants);
        let corrupt = fraction_of(self.max_corrupt, participants);
        let dropouts = fraction_of(self.max_dropout, participants);
        // If the cohort is too small or too lossy for a sparse graph, the graph is complete and only the threshold
        // protects it.
        let complete = (participants - 1, threshold - 1);
        let (out_degree, min_out) = if participants <= COMPLETE_MASKS_MAX {
            complete
        } else {
            degree::sparse(participants, corrupt, dropouts).unwrap_or(complete)
        };
        let min_survivors = threshold.max(self.min_included);
        Ok(Params { participants, threshold, out_degree, min_out, min_survivors })
    }

    /// Maximum number of colluders in the smallest cohort.
    #[must_use]
    pub fn tolerated_colluders(&self) -> u16 {
        // γ is the same for all sizes, so the smallest cohort tolerates the fewest colluders.
        fraction_of(self.max_corrupt, self.min_cohort)
    }

    /// Fewest inputs in any opened sum of a session with this configuration: those of its smallest cohort.
    #[must_use]
    pub fn smallest_sum(&self) -> u16 {
        self.threshold(self.min_cohort).max(self.min_included)
    }

    /// `SHA-256(enc(P) || enc("cfg") || enc(this) || u32be(t) || u32be(k_m) || u32be(t_m))`.
    pub(crate) fn digest(&self, params: &Params) -> Digest {
        let bytes = self.tls_serialize_detached().expect("a configuration has a fixed size");
        Transcript::labelled("cfg")
            .enc(&bytes)
            .u32(params.threshold.into())
            .u32(params.out_degree.into())
            .u32(params.min_out.into())
            .finish()
    }

    /// floor((n + floor(γn))/2) + 1: two sets of t holders each have more than floor(γn) members in common.
    fn threshold(&self, participants: u16) -> u16 {
        participants.saturating_add(fraction_of(self.max_corrupt, participants)) / 2 + 1
    }

    fn check_dropout(&self) -> Result<(), InvalidConfig> {
        let sizes = self.min_cohort..=self.max_cohort;
        // floor(δn) ≤ n - t for every n; floor(δn) ≤ s holds up to δ = ceil((s + 1)/n) - 1, in millionths.
        let limit = |n: u16| (u32::from(n - self.threshold(n)) + 1) * MILLION;
        let largest = sizes.clone().map(|n| limit(n).div_ceil(u32::from(n)) - 1).min().unwrap_or(0);
        for cohort in sizes {
            let left = cohort - fraction_of(self.max_dropout.min(MILLION), cohort);
            let threshold = self.threshold(cohort);
            if left < threshold {
                let millionths = self.max_dropout;
                return Err(InvalidConfig::Dropout { millionths, cohort, left, threshold, largest });
            }
            if left < self.min_included {
                return Err(InvalidConfig::Included { min_included: self.min_included, cohort, left });
            }
        }
        Ok(())
    }
}

impl VectorShape {
    /// A vector without words, for sessions that sum one vector only.
    pub const NONE: Self = Self { words: 0, modulus_bits: Modulus::MAX_BITS, input_bound: 0, noise_margin: 0 };

    /// # Errors
    /// [`InvalidConfig::Modulus`] if b is not in 16..=32.
    pub const fn modulus(&self) -> Result<Modulus, InvalidConfig> {
        match Modulus::new(self.modulus_bits) {
            Ok(modulus) => Ok(modulus),
            Err(_) => Err(InvalidConfig::Modulus { bits: self.modulus_bits }),
        }
    }

    /// Checks that n·bound + margin ≤ 2^(b-1) - 1, so that the sum of a full cohort cannot wrap.
    fn validate(&self, cohort: u16) -> Result<(), InvalidConfig> {
        let modulus = self.modulus()?;
        if self.words > MAX_WORDS {
            return Err(InvalidConfig::Words { words: self.words });
        }
        let top = u128::from(modulus.max_word() >> 1);
        let (bound, margin) = (u128::from(self.input_bound), u128::from(self.noise_margin));
        if u128::from(cohort) * bound + margin > top {
            let largest = u64::try_from(top.saturating_sub(margin) / u128::from(cohort)).unwrap_or(u64::MAX);
            return Err(InvalidConfig::Headroom {
                cohort,
                input_bound: self.input_bound,
                noise_margin: self.noise_margin,
                bits: self.modulus_bits,
                largest,
            });
        }
        Ok(())
    }
}

impl Params {
    /// n: the size of the roster.
    #[must_use]
    pub const fn participants(&self) -> u16 {
        self.participants
    }

    /// t: the number of shares that restore a seed, of signatures that agree on the survivors, and of participants in
    /// each phase.
    #[must_use]
    pub const fn threshold(&self) -> u16 {
        self.threshold
    }

    /// k_m: the number of mask neighbours drawn by each participant.
    #[must_use]
    pub const fn out_degree(&self) -> u16 {
        self.out_degree
    }

    /// t_m: the required number of remaining neighbours among those drawn by a participant.
    #[must_use]
    pub const fn min_out(&self) -> u16 {
        self.min_out
    }

    /// Fewest inputs in the sum: the threshold, or more if the privacy mechanism needs more.
    #[must_use]
    pub const fn min_survivors(&self) -> u16 {
        self.min_survivors
    }

    /// Whether the mask graph is complete.
    #[must_use]
    pub const fn masks_are_complete(&self) -> bool {
        self.out_degree == self.participants - 1
    }
}

/// floor(fraction · n).
pub(crate) fn fraction_of(millionths: u32, n: u16) -> u16 {
    let product = u64::from(millionths) * u64::from(n) / u64::from(MILLION);
    u16::try_from(product).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SessionConfig {
        SessionConfig {
            suite: SUITE_CHACHA20,
            min_cohort: 3,
            max_cohort: 1000,
            max_corrupt: 100_000,
            max_dropout: 300_000,
            min_included: 0,
            model: VectorShape { words: 10, modulus_bits: 32, input_bound: 1 << 20, noise_margin: 0 },
            scalars: VectorShape::NONE,
            application: [0; 32],
        }
    }

    #[test]
    fn thresholds_are_those_of_the_specification() {
        for (n, row) in [(100, [53, 56, 61, 67]), (500, [263, 276, 301, 333]), (1000, [526, 551, 601, 666])] {
            for (max_corrupt, expected) in [50_000, 100_000, 200_000, 330_000].into_iter().zip(row) {
                let config = SessionConfig { max_corrupt, max_dropout: 0, ..config() };
                assert_eq!(config.params(n).unwrap().threshold(), expected, "n = {n}, γ = {max_corrupt}");
            }
        }
    }

    #[test]
    fn nobody_can_hold_both_kinds_of_share_in_any_configuration() {
        for n in 3..=MAX_COHORT {
            for max_corrupt in [0, 1, 50_000, 100_000, 333_333, 500_000] {
                let config = SessionConfig { max_corrupt, ..config() };
                assert!(2 * config.threshold(n) > n + fraction_of(max_corrupt, n), "n = {n}, γ = {max_corrupt}");
                assert!(config.threshold(n) <= n, "n = {n}, γ = {max_corrupt}");
            }
        }
    }

    /// A member knows its own input, and colluders know all of theirs.
    #[test]
    fn every_sum_has_two_unknown_inputs() {
        for n in 3..=MAX_COHORT {
            for max_corrupt in [0, 1, 50_000, 100_000, 333_333, 333_334, 500_000] {
                let config = SessionConfig { max_corrupt, min_cohort: n, max_cohort: n, max_dropout: 0, ..config() };
                let config = SessionConfig { min_included: USUAL_MIN_INCLUDED, ..config };
                let least = config.params(n).unwrap().min_survivors();
                assert_eq!(least, config.smallest_sum());
                let known = fraction_of(max_corrupt, n).max(1);
                assert!(least >= known + 2, "n = {n}, γ = {max_corrupt}");
            }
        }
        let three = SessionConfig { max_cohort: 3, max_dropout: 0, ..config() };
        assert_eq!(three.smallest_sum(), 2, "the threshold alone allows a sum of two");
    }

    #[test]
    fn too_many_dropouts_are_refused_with_the_largest_that_work() {
        let refused = SessionConfig { min_cohort: 100, max_cohort: 100, max_dropout: 450_000, ..config() };
        let error = refused.validate().unwrap_err();
        let InvalidConfig::Dropout { largest, left: 55, threshold: 56, cohort: 100, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(largest, 449_999);
        SessionConfig { max_dropout: largest, ..refused.clone() }.validate().unwrap();
        assert!(SessionConfig { max_dropout: largest + 1, ..refused.clone() }.validate().is_err());
        assert!(SessionConfig { max_dropout: u32::MAX, ..refused }.validate().is_err());
    }

    #[test]
    fn headroom_is_tight() {
        let shape = |input_bound| VectorShape { words: 1, modulus_bits: 20, input_bound, noise_margin: 287 };
        let with = |bound| SessionConfig { model: shape(bound), ..config() }.validate();
        assert_eq!(with(524), Ok(()));
        let Err(InvalidConfig::Headroom { largest: 524, .. }) = with(525) else { panic!("525 must be refused") };
        let margin = VectorShape { noise_margin: 288, ..shape(524) };
        assert!(SessionConfig { model: margin, ..config() }.validate().is_err());
    }

    #[test]
    fn every_other_limit_is_enforced() {
        let refused = [
            SessionConfig { suite: 0, ..config() },
            SessionConfig { min_cohort: 2, ..config() },
            SessionConfig { max_cohort: 1025, ..config() },
            SessionConfig { max_cohort: 2, ..config() },
            SessionConfig { max_corrupt: 500_001, ..config() },
            SessionConfig { min_included: 3, min_cohort: 4, max_dropout: 400_000, max_cohort: 5, ..config() },
            SessionConfig { model: VectorShape::NONE, ..config() },
            SessionConfig { model: VectorShape { words: MAX_WORDS + 1, ..config().model }, ..config() },
            SessionConfig { scalars: VectorShape { modulus_bits: 15, ..VectorShape::NONE }, ..config() },
        ];
        for (number, config) in refused.iter().enumerate() {
            let fine = number == 5;
            assert_eq!(config.validate().is_ok(), fine, "{config:?}");
        }
        assert!(SessionConfig { min_included: 4, ..refused[5].clone() }.validate().is_err());
        assert!(config().params(2).is_err());
        assert!(config().params(1001).is_err());
    }

    #[test]
    fn the_digest_covers_every_field_and_what_follows_from_them() {
        let base = config();
        let params = base.params(100).unwrap();
        let digest = base.digest(&params);
        let others = [
            SessionConfig { min_cohort: 4, ..base.clone() },
            SessionConfig { max_cohort: 999, ..base.clone() },
            SessionConfig { max_corrupt: 100_001, ..base.clone() },
            SessionConfig { max_dropout: 300_001, ..base.clone() },
            SessionConfig { min_included: 1, ..base.clone() },
            SessionConfig { model: VectorShape { input_bound: 1, ..base.model }, ..base.clone() },
            SessionConfig { scalars: VectorShape { modulus_bits: 31, ..base.scalars }, ..base.clone() },
            SessionConfig { application: [1; 32], ..base.clone() },
        ];
        for other in &others {
            assert_ne!(other.digest(&params), digest, "{other:?}");
        }
        assert_ne!(base.digest(&base.params(101).unwrap()), digest);
    }
}
