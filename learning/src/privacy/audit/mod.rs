//! Statistical audits, able to show that a release breaks the guarantee of its ledger.
//!
//! Accountants prove the cost of a mechanism *if* it is the one executed. An audit examines the output instead. Two kinds:
//!
//! * [`Guesses`]: canaries, that is participants included or excluded by fair coins, are guessed from one training run. Guessing better
//!   than the ledger's epsilon allows disproves it, for any cause. [`Design`] computes beforehand how likely such an audit is to succeed.
//! * [`NoiseVariance`] and [`Correlation`]: given the exact sum, they test whether the noise is as wide as the ledger claims and never
//!   repeats. They detect defects long before guesses do.
//!
//! For tests of this project, and for operators who audit their own deployment with synthetic participants. Pure functions. An audit
//! without findings is not a proof.

mod guesses;
mod residuals;
mod tails;

pub use guesses::{Design, Guesses};
pub use residuals::{Correlation, NoiseVariance, noise_power};

/// Reasons for a missing result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The numbers of scores and canaries differ.
    #[error("{scores} scores do not belong to {canaries} canaries")]
    Lengths { scores: usize, canaries: usize },
    /// Too few values to compare.
    #[error("{0} values are too few to say anything: at least 8")]
    TooFew(usize),
    /// More guesses than canaries.
    #[error("{guesses} guesses are more than {canaries} canaries")]
    Guesses {
        guesses: usize,
        /// How many there are.
        canaries: usize,
    },
    /// More correct guesses than guesses.
    #[error("{correct} of {guesses} guesses cannot be correct")]
    Correct { correct: u32, guesses: u32 },
    /// A value is NaN or infinite, or a width is not above 0.
    #[error("a value is not a number, or the noise to compare with is not above 0")]
    NotFinite,
    /// Outside its range.
    #[error("{0} must be above 0 and below 1")]
    Probability(&'static str),
}

/// Checks that the value lies strictly between 0 and 1.
fn probability(name: &'static str, value: f64) -> Result<(), AuditError> {
    if value > 0.0 && value < 1.0 { Ok(()) } else { Err(AuditError::Probability(name)) }
}
