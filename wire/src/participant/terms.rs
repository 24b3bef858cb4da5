//! The terms of a secure aggregation session.

use federation::id::Digest;
use secure_agg::params::{SessionConfig, VectorShape};
use serde::{Deserialize, Serialize};

/// `secure_agg::params::SessionConfig` as JSON. Fractions are in millionths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionTerms {
    /// Number of the combination of primitives.
    pub suite: u8,
    /// Fewest participants in the cohort.
    pub min_cohort: u16,
    /// Maximum number of participants in the cohort.
    pub max_cohort: u16,
    /// γ, in millionths.
    pub max_corrupt: u32,
    /// δ, in millionths.
    pub max_dropout: u32,
    /// Fewest inputs in a released sum, in addition to the threshold.
    pub min_included: u16,
    /// Number of words in an update.
    pub words: u64,
    /// Words are modulo 2^b.
    pub modulus_bits: u8,
    /// Largest magnitude of a word.
    pub input_bound: u64,
    /// Headroom for noise in the sum.
    pub noise_margin: u64,
    /// `recipe::digest::round_digest`.
    pub application: Digest,
}

impl From<&SessionConfig> for SessionTerms {
    fn from(config: &SessionConfig) -> Self {
        Self {
            suite: config.suite,
            min_cohort: config.min_cohort,
            max_cohort: config.max_cohort,
            max_corrupt: config.max_corrupt,
            max_dropout: config.max_dropout,
            min_included: config.min_included,
            words: config.model.words,
            modulus_bits: config.model.modulus_bits,
            input_bound: config.model.input_bound,
            noise_margin: config.model.noise_margin,
            application: Digest(config.application),
        }
    }
}

impl From<&SessionTerms> for SessionConfig {
    fn from(terms: &SessionTerms) -> Self {
        Self {
            suite: terms.suite,
            min_cohort: terms.min_cohort,
            max_cohort: terms.max_cohort,
            max_corrupt: terms.max_corrupt,
            max_dropout: terms.max_dropout,
            min_included: terms.min_included,
            model: VectorShape {
                words: terms.words,
                modulus_bits: terms.modulus_bits,
                input_bound: terms.input_bound,
                noise_margin: terms.noise_margin,
            },
            scalars: VectorShape::NONE,
            application: terms.application.0,
        }
    }
}
