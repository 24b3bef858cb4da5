//! Does a release keep the promise of its ledger? Statistics that can show that it does not.
//!
//! Accountants prove what a mechanism costs *if* it is what runs. An audit looks at what came out instead. Two kinds:
//!
//! * [`Guesses`]: canaries, which are participants that were let in or left out by fair coins, are guessed from one training
//!   run. Guessing better than the ledger's epsilon allows proves it wrong, whatever went wrong. [`Design`] says beforehand
//!   how likely such an audit is to notice.
//! * [`NoiseVariance`] and [`Correlation`]: the noise itself, seen by somebody who knows the exact sum, is as wide as the
//!   ledger says and never the same twice. They notice what is still far from a wrong guess.
//!
//! For tests of this project, and for operators who want to try their own deployment with made-up participants. Pure functions;
//! an audit that finds nothing proves nothing.

mod guesses;
mod residuals;
mod tails;

pub use guesses::{Design, Guesses};
pub use residuals::{Correlation, NoiseVariance, noise_power};

/// Why there is nothing to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// As many of one as of the other.
    #[error("{scores} scores do not belong to {canaries} canaries")]
    Lengths {
        /// Of one.
        scores: usize,
        /// Of the other.
        canaries: usize,
    },
    /// Nothing to compare.
    #[error("{0} values are too few to say anything: at least 8")]
    TooFew(usize),
    /// Nobody is guessed twice, and no more than there are.
    #[error("{guesses} guesses are more than {canaries} canaries")]
    Guesses {
        /// In and out.
        guesses: usize,
        /// How many there are.
        canaries: usize,
    },
    /// More right guesses than guesses.
    #[error("{correct} of {guesses} guesses cannot be right")]
    Correct {
        /// Right ones.
        correct: u32,
        /// In all.
        guesses: u32,
    },
    /// NaN or infinite, or a width that is not above 0.
    #[error("a value is not a number, or the noise to compare with is not above 0")]
    NotFinite,
    /// Outside its range.
    #[error("{0} must be above 0 and below 1")]
    Probability(&'static str),
}

/// Strictly between 0 and 1.
fn probability(name: &'static str, value: f64) -> Result<(), AuditError> {
    if value > 0.0 && value < 1.0 { Ok(()) } else { Err(AuditError::Probability(name)) }
}
