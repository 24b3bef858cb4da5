//! Why a codec cannot be, an update cannot be encoded, or a sum cannot be decoded.

use super::words::{MAX_COHORT, MIN_LEVELS, half};
use crate::clip::BadClipNorm;
use crate::metrics::MAX_METRICS;
use crate::parameters::{MAX_PARAMETERS, WrongLength};

/// Parameters that leave no room for a cohort's sum, or are none at all; refused when a task is created.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadroomError {
    /// No parameters or too many.
    #[error("a model has 1 to {MAX_PARAMETERS} shared parameters, not {0}")]
    Parameters(usize),
    /// A modulus that no word holds, or too small for any cohort.
    #[error("modulus_bits must be 16 to 32, not {0}")]
    ModulusBits(u8),
    /// No range of values.
    #[error("clip_range must be a normal number above 0, not {0}")]
    ClipRange(f32),
    /// No norm bound.
    #[error(transparent)]
    ClipNorm(#[from] BadClipNorm),
    /// Nobody would weigh anything.
    #[error("max_weight must be at least 1")]
    MaxWeight,
    /// No cohort.
    #[error("max_cohort must be 1 to {MAX_COHORT}, not {0}")]
    MaxCohort(u32),
    /// More metrics than a task may have.
    #[error("{0} metrics are asked for; at most {MAX_METRICS} are possible")]
    Metrics(usize),
    /// The sum would fit only if values were rounded to almost nothing.
    #[error(
        "{max_cohort} updates of weight up to {max_weight} leave {levels} levels per side of zero modulo \
         2^{modulus_bits}, fewer than {MIN_LEVELS}; this would do: {}", remedies(*.best_weight, *.best_cohort, *.best_bits)
    )]
    TooFewLevels {
        /// What is left.
        levels: u32,
        /// As asked for.
        modulus_bits: u8,
        /// As asked for.
        max_weight: u32,
        /// As asked for.
        max_cohort: u32,
        /// Largest `max_weight` that would do with the rest as it is; 0 if none.
        best_weight: u32,
        /// Largest `max_cohort` that would do with the rest as it is; 0 if none.
        best_cohort: u32,
        /// Smallest `modulus_bits` that would do with the rest as it is, if any.
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

/// Why an update is not sent: what a trainer yielded is not an update of this task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A delta of another model.
    #[error("the update does not fit the model: {0}")]
    WrongLength(#[from] WrongLength),
    /// What error feedback kept is of another model.
    #[error("the residual does not fit the model: {0}")]
    WrongResidual(WrongLength),
    /// Training diverged.
    #[error("value {index} of the update is NaN or infinite; a smaller learning rate may help")]
    NotFinite {
        /// The first such position in the shared layout.
        index: usize,
    },
    /// An update of nothing.
    #[error("the update was trained on no examples")]
    NoExamples,
    /// Metrics of another task.
    #[error("the update has {got} metrics where the task has {expected}")]
    MetricCount {
        /// The task's.
        expected: usize,
        /// The update's.
        got: usize,
    },
    /// A metric that was measured and is no number.
    #[error("metric {index} is NaN or infinite; give it count 0 if it could not be measured")]
    MetricNotFinite {
        /// Its index in the task's list.
        index: usize,
    },
}

/// Why a sum has no mean. With honest parameters this means a sum that was computed, unmasked or stored wrongly, or a
/// participant that did not keep to the task's bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A sum of another model or with other metrics.
    #[error("the sum has {got} words where the task has {expected}")]
    Length {
        /// The codec's.
        expected: usize,
        /// The sum's.
        got: usize,
    },
    /// A sum in another modulus.
    #[error("the sum is modulo 2^{got}, the task modulo 2^{expected}")]
    ModulusBits {
        /// The codec's.
        expected: u8,
        /// The sum's.
        got: u8,
    },
    /// A sum of nobody, which has no mean, or of more updates than there is room for.
    #[error("the sum holds {got} updates; 1 to {most} have a mean and leave headroom")]
    Participants {
        /// The sum's.
        got: u32,
        /// The codec's.
        most: u32,
    },
    /// A total weight that these participants cannot have.
    #[error("the sum's weight is {weight}; {participants} participants weigh {participants} to {most}")]
    Weight {
        /// What the sum says.
        weight: i64,
        /// How many updates it holds.
        participants: u32,
        /// What they can weigh at most.
        most: u64,
    },
    /// A coordinate larger than the total weight allows.
    #[error("value {index} of the sum is beyond what its weight allows")]
    OutOfRange {
        /// Position in the shared layout.
        index: usize,
    },
    /// A metric larger than its count allows, or a count larger than the participants allow.
    #[error("metric {index} of the sum is beyond what its participants could have measured")]
    Metric {
        /// Its index in the task's list.
        index: usize,
    },
}
