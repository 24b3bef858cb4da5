//! Deliberate faults, which audits must detect. Only with the feature `deliberate-faults`, which only tests enable.

mod words;

/// A participant's fault in rounds with a privacy mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Sends its update unclipped.
    NoClipping,
    /// Adds no share of noise.
    NoNoise,
    /// Adds noise of half the standard deviation.
    HalfNoise,
}
