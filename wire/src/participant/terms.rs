//! The terms of a secure aggregation session.

use federation::id::Digest;
use secure_agg::params::{SessionConfig, VectorShape};
use serde::{Deserialize, Serialize};

/// A [`SessionConfig`] as JSON. Fractions are in millionths.
///
/// The two are apart because they change for different reasons: this is a body that peers of other versions read; the
/// configuration is what a session's id is derived from, in the protocol's own encoding, and has a second vector that no
/// task uses.
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
    /// Fewest members of the fixed batch that every member must state with its keys; 0 for none. Not part of the
    /// configuration: each member checks the batches that the others state.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub batch_size: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(size: &u16) -> bool {
    *size == 0
}

impl SessionTerms {
    /// The terms of a session with this configuration and the task's [`batch size`](task_spec::TaskSpec::batch_size).
    #[must_use]
    pub fn new(config: &SessionConfig, batch_size: Option<u32>) -> Self {
        let batch_size = batch_size.map_or(0, |size| u16::try_from(size).unwrap_or(u16::MAX));
        Self { batch_size, ..Self::from(config) }
    }
}

/// Converts in both directions: `same` fields are the configuration's own, `model` fields those of its model vector.
macro_rules! translate {
    (same: $($same:ident),+; model: $($model:ident),+) => {
        impl From<&SessionConfig> for SessionTerms {
            /// Sets the batch size to 0, since a configuration has none.
            fn from(config: &SessionConfig) -> Self {
                let application = Digest(config.application);
                Self { $($same: config.$same,)+ $($model: config.model.$model,)+ application, batch_size: 0 }
            }
        }

        impl From<&SessionTerms> for SessionConfig {
            fn from(terms: &SessionTerms) -> Self {
                let model = VectorShape { $($model: terms.$model),+ };
                Self { $($same: terms.$same,)+ model, scalars: VectorShape::NONE, application: terms.application.0 }
            }
        }
    };
}

translate!(
    same: suite, min_cohort, max_cohort, max_corrupt, max_dropout, min_included;
    model: words, modulus_bits, input_bound, noise_margin
);
