//! What an audit reports.

use serde::Serialize;

/// What an audit has found.
#[derive(Clone, Debug, Serialize)]
pub struct AuditReport {
    /// Variance of the noise over the ledger's, and its confidence bounds.
    pub noise: NoiseRatio,
    /// Of the noise of two rounds; absent without any noise.
    pub correlation: Option<NoiseCorrelation>,
    /// Correct guesses.
    pub correct: u32,
    /// Lower bound on the epsilon of one release.
    pub epsilon_at_least: f64,
    /// Epsilon of that release by the ledger, to observers who know the cohort.
    pub epsilon: f64,
    /// Delta of both.
    pub delta: f64,
    /// What contradicts the ledger; empty for an honest task, but for the chance that `confidence` leaves.
    pub findings: Vec<Finding>,
}

/// A measured variance over the ledger's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NoiseRatio {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

/// The correlation of the noise of two rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NoiseCorrelation {
    /// From -1 to 1.
    pub coefficient: f64,
    /// Probability of at least as much by chance.
    pub p_value: f64,
}

/// A contradiction between a task and its ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The noise is narrower than the ledger charges for.
    NarrowNoise,
    /// Two rounds share noise.
    RepeatedNoise,
    /// Canaries are guessed better than the ledger's epsilon allows.
    Canaries,
}

/// Progress of an audit.
#[derive(Clone, Copy, Debug)]
pub enum AuditStage {
    /// So many participants are enrolled.
    Enrolled(u32),
    /// So many of all three rounds are complete.
    Round(u32),
}
