//! Deliberate faults, for audits that must catch them. Test-only: not there unless the feature `deliberate-faults` is on,
//! which nothing but tests turns on.

mod words;

/// What a participant does wrong in rounds with a privacy mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Sends its update however long it is.
    NoClipping,
    /// Adds no share of noise.
    NoNoise,
    /// Adds noise of half the standard deviation.
    HalfNoise,
}
