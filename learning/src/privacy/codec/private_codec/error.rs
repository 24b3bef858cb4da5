//! Errors of the private codec.

use crate::privacy::mechanisms::discrete_gaussian::BadSigma;

/// Reasons a codec cannot be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateCodecError {
    /// A parameter is out of range.
    #[error("{name} must be {range}, not {value}")]
    Range { name: &'static str, range: &'static str, value: f64 },
    /// Rounding would exceed the update, or noise the modulus.
    #[error(
        "sums of {max_cohort} updates and their noise leave {units:.1} grid units for an update's length modulo \
         2^{modulus_bits}, and rounding {dimension} coordinates adds {rounding:.1}: {remedy}"
    )]
    Headroom {
        max_cohort: u32,
        modulus_bits: u8,
        dimension: u64,
        /// Length of the longest integer vector with headroom.
        units: f64,
        /// Length added by rounding.
        rounding: f64,
        /// A sufficient change.
        remedy: String,
    },
    /// The count's noise uses up all of the noise.
    #[error(
        "an adaptive clip needs a noise multiplier below {most:.3} with {count_noise:.3} of noise on the count, not {z:.3}: a \
         larger cohort would do"
    )]
    CountNoise {
        z: f64,
        count_noise: f64,
        /// Largest possible `z`.
        most: f64,
    },
    /// The noise cannot be drawn.
    #[error(transparent)]
    Sigma(#[from] BadSigma),
}

/// Reasons an update is not sent; concerns only the participant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateEncodeError {
    /// The delta belongs to another model.
    #[error("the update has {got} parameters where the task has {expected}")]
    WrongLength { expected: usize, got: usize },
    /// Training diverged; then the norm is NaN too.
    #[error("value {index} of the update is NaN or infinite; a smaller learning rate may help")]
    NotFinite {
        /// Index of the first such value in the shared layout.
        index: usize,
    },
    /// The update has zero examples.
    #[error("the update was trained on no examples")]
    NoExamples,
    /// The clipping norm is invalid.
    #[error("the clipping norm must be finite and above 0, not {0}")]
    Clip(f64),
}

/// Reasons a noised sum has no mean.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateDecodeError {
    /// The sum belongs to another task.
    #[error("the sum has {got} words modulo 2^{got_bits} where the task has {expected} modulo 2^{expected_bits}")]
    Shape { expected: usize, got: usize, expected_bits: u8, got_bits: u8 },
    /// More updates than the codec has headroom for.
    #[error("the sum holds {got} updates; at most {most} leave headroom")]
    Participants { got: u32, most: u32 },
    /// Beyond the possible sum of these participants and plausible noise.
    #[error("value {index} of the sum is beyond what {participants} updates and their noise add up to")]
    OutOfRange {
        /// Position in the encoded vector.
        index: usize,
        participants: u32,
    },
    /// The clipping norm is invalid.
    #[error("the clipping norm must be finite and above 0, not {0}")]
    Clip(f64),
}
