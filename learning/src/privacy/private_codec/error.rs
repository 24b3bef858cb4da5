//! Why there is no codec, no update, no mean.

use super::super::discrete_gaussian::BadSigma;

/// Why a codec cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateCodecError {
    /// Something out of its range.
    #[error("{name} must be {range}, not {value}")]
    Range {
        /// Which parameter.
        name: &'static str,
        /// What it must be.
        range: &'static str,
        /// What it is.
        value: f64,
    },
    /// Rounding would drown the update, or the noise the modulus.
    #[error(
        "sums of {max_cohort} updates and their noise leave {units:.1} grid units for an update's length modulo \
         2^{modulus_bits}, and rounding {dimension} coordinates adds {rounding:.1}: {remedy}"
    )]
    Headroom {
        /// As asked for.
        max_cohort: u32,
        /// As asked for.
        modulus_bits: u8,
        /// Coordinates, padding included.
        dimension: u64,
        /// Longest integer vector that leaves headroom.
        units: f64,
        /// What rounding adds to it.
        rounding: f64,
        /// What would do.
        remedy: String,
    },
    /// The count's noise takes up everything.
    #[error(
        "an adaptive clip needs a noise multiplier below {most:.3} with {count_noise:.3} of noise on the count, not {z:.3}: a \
         larger cohort would do"
    )]
    CountNoise {
        /// As asked for.
        z: f64,
        /// As asked for.
        count_noise: f64,
        /// Largest multiplier.
        most: f64,
    },
    /// Noise that cannot be drawn.
    #[error(transparent)]
    Sigma(#[from] BadSigma),
}

/// Why an update is not sent: a local matter of the participant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateEncodeError {
    /// A delta of another model.
    #[error("the update has {got} parameters where the task has {expected}")]
    WrongLength {
        /// The task's.
        expected: usize,
        /// The update's.
        got: usize,
    },
    /// Training diverged; the norm is not a number either.
    #[error("value {index} of the update is NaN or infinite; a smaller learning rate may help")]
    NotFinite {
        /// The first such position in the shared layout.
        index: usize,
    },
    /// An update of nothing.
    #[error("the update was trained on no examples")]
    NoExamples,
    /// No bound to clip to.
    #[error("the clipping norm must be finite and above 0, not {0}")]
    Clip(f64),
}

/// Why a noised sum has no mean.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateDecodeError {
    /// A sum of another task.
    #[error("the sum has {got} words modulo 2^{got_bits} where the task has {expected} modulo 2^{expected_bits}")]
    Shape {
        /// The codec's words.
        expected: usize,
        /// The sum's.
        got: usize,
        /// The codec's modulus.
        expected_bits: u8,
        /// The sum's.
        got_bits: u8,
    },
    /// More updates than there is room for.
    #[error("the sum holds {got} updates; at most {most} leave headroom")]
    Participants {
        /// The sum's.
        got: u32,
        /// The codec's.
        most: u32,
    },
    /// Beyond what these participants and any plausible noise add up to.
    #[error("value {index} of the sum is beyond what {participants} updates and their noise add up to")]
    OutOfRange {
        /// Position in the encoded vector.
        index: usize,
        /// How many there were.
        participants: u32,
    },
    /// No bound that was clipped to.
    #[error("the clipping norm must be finite and above 0, not {0}")]
    Clip(f64),
}
