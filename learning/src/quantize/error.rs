//! Errors of the codec: parameters, encoding and decoding.

use super::words::{MAX_COHORT, MIN_LEVELS, half};
use crate::clip::BadClipNorm;
use crate::metrics::MAX_METRICS;
use crate::parameters::{MAX_PARAMETERS, WrongLength};

/// Reasons for rejecting a task's parameters: they are invalid or leave too little headroom for a cohort's sum.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadroomError {
    /// Zero parameters, or too many.
    #[error("a model has 1 to {MAX_PARAMETERS} shared parameters, not {0}")]
    Parameters(usize),
    /// Outside 16 to 32 bits.
    #[error("modulus_bits must be 16 to 32, not {0}")]
    ModulusBits(u8),
    /// The clipping range is invalid.
    #[error("clip_range must be a normal number above 0, not {0}")]
    ClipRange(f32),
    #[error(transparent)]
    ClipNorm(#[from] BadClipNorm),
    /// The maximum weight is 0.
    #[error("max_weight must be at least 1")]
    MaxWeight,
    #[error("max_cohort must be 1 to {MAX_COHORT}, not {0}")]
    MaxCohort(u32),
    /// More than [`MAX_METRICS`].
    #[error("{0} metrics are asked for; at most {MAX_METRICS} are possible")]
    Metrics(usize),
    /// The sum would fit only if values were rounded to almost 0.
    #[error(
        "{max_cohort} updates of weight up to {max_weight} leave {levels} levels per side of zero modulo \
         2^{modulus_bits}, fewer than {MIN_LEVELS}; this would do: {}", remedies(*.best_weight, *.best_cohort, *.best_bits)
    )]
    TooFewLevels {
        /// Remaining levels.
        levels: u32,
        modulus_bits: u8,
        max_weight: u32,
        max_cohort: u32,
        /// Largest fitting `max_weight` with the other parameters; 0 if none.
        best_weight: u32,
        /// Largest fitting `max_cohort` with the other parameters; 0 if none.
        best_cohort: u32,
        /// Smallest fitting `modulus_bits` with the other parameters, if any.
        best_bits: Option<u8>,
    },
}

impl HeadroomError {
    pub(super) fn too_few_levels(levels: u32, modulus_bits: u8, max_weight: u32, max_cohort: u32) -> Self {
        let product = u64::from(max_weight) * u64::from(max_cohort);
        let room = |bits: u8| half(bits) / MIN_LEVELS;
        Self::TooFewLevels {
            levels,
            modulus_bits,
            max_weight,
            max_cohort,
            best_weight: room(modulus_bits) / max_cohort,
            best_cohort: (room(modulus_bits) / max_weight).min(MAX_COHORT),
            best_bits: (modulus_bits..=32).find(|&bits| u64::from(room(bits)) >= product),
        }
    }
}

fn remedies(best_weight: u32, best_cohort: u32, best_bits: Option<u8>) -> String {
    let options = [
        (best_weight > 0).then(|| format!("max_weight {best_weight}")),
        (best_cohort > 0).then(|| format!("max_cohort {best_cohort}")),
        best_bits.map(|bits| format!("modulus_bits {bits}")),
    ];
    let options: Vec<String> = options.into_iter().flatten().collect();
    if options.is_empty() { "smaller max_weight and max_cohort".to_owned() } else { options.join(", or ") }
}

/// Reasons an update is not sent: the trainer's result is not an update of this task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The delta belongs to another model.
    #[error("the update does not fit the model: {0}")]
    WrongLength(#[from] WrongLength),
    /// The residual belongs to another model.
    #[error("the residual does not fit the model: {0}")]
    WrongResidual(WrongLength),
    /// Training diverged.
    #[error("value {index} of the update is NaN or infinite; a smaller learning rate may help")]
    NotFinite {
        /// Index of the first such value in the shared layout.
        index: usize,
    },
    /// The update has zero examples.
    #[error("the update was trained on no examples")]
    NoExamples,
    /// The metrics belong to another task.
    #[error("the update has {got} metrics where the task has {expected}")]
    MetricCount { expected: usize, got: usize },
    /// A measured metric is NaN or infinite.
    #[error("metric {index} is NaN or infinite; give it count 0 if it could not be measured")]
    MetricNotFinite {
        /// Its index in the task's list.
        index: usize,
    },
}

/// Reasons a sum has no mean. With honest participants, the sum was computed, unmasked or stored incorrectly; otherwise
/// a participant may have ignored the task's bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The sum belongs to another model or to other metrics.
    #[error("the sum has {got} words where the task has {expected}")]
    Length { expected: usize, got: usize },
    /// The sum has another modulus.
    #[error("the sum is modulo 2^{got}, the task modulo 2^{expected}")]
    ModulusBits { expected: u8, got: u8 },
    /// Zero updates, or more than the codec has headroom for.
    #[error("the sum holds {got} updates; 1 to {most} have a mean and leave headroom")]
    Participants { got: u32, most: u32 },
    /// A total weight beyond the possible sum of these participants.
    #[error("the sum's weight is {weight}; {participants} participants weigh {participants} to {most}")]
    Weight {
        /// Total weight in the sum.
        weight: i64,
        participants: u32,
        /// Largest possible total weight.
        most: u64,
    },
    /// A coordinate beyond the limit for the total weight.
    #[error("value {index} of the sum is beyond what its weight allows")]
    OutOfRange {
        /// Position in the shared layout.
        index: usize,
    },
    /// A metric beyond the limit for its count, or a count beyond the limit for the participants.
    #[error("metric {index} of the sum is beyond what its participants could have measured")]
    Metric { index: usize },
}
