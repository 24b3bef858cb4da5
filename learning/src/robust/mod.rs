//! Rules that combine updates so that a few hostile ones cannot steer the result.
//!
//! A rule looks at single updates (or at the means of groups, under secure aggregation), each with the same say: the weight
//! that a participant claims is not believed here, or claiming much would be the attack. Two kinds share this folder.
//! *Coordinate-wise* rules ([`coordinates`]) sort the values of each parameter. *Distance* rules ([`krum`],
//! [`geometric_median`], [`norm_filter`]) need only the inner products of the updates, a [`Gram`] matrix that whoever holds the
//! updates computes in bulk, and answer with a weight for each. Everything here is a pure function that does not depend on
//! the order of the updates, except between equals.
//!
//! Each rule stands a declared number of attackers and says how many participants it needs for that; what was asked of it is
//! never weakened in silence.

pub mod coordinates;
mod counted;
pub mod geometric_median;
mod gram;
pub mod krum;
pub mod norm_filter;
mod slice;

use task_spec::{RobustRule, RobustSpec};

use counted::{count, middle};
pub use gram::{BadGram, Gram};
pub use slice::centre;

/// A rule that cannot stand what it is asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} needs at least {needed} participants against {attackers} attackers, there are {participants}")]
pub struct TooFewParticipants {
    /// Its stable name.
    pub rule: &'static str,
    /// f.
    pub attackers: u32,
    /// Fewest that would do.
    pub needed: u64,
    /// n.
    pub participants: u32,
}

/// What a distance rule makes of the updates.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// How much of each is in the result; not negative, summing to 1.
    pub weights: Vec<f64>,
    /// How far each lies from the result, in the units of the updates.
    pub distances: Vec<f64>,
}

/// What a rule makes of updates that are all at hand.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined {
    /// The result, one value per coordinate.
    pub values: Vec<f32>,
    /// See [`anomaly_scores`].
    pub scores: Vec<f64>,
}

/// Fewest participants with which `attackers` of them can be stood.
#[must_use]
pub const fn needs(rule: RobustRule, attackers: u32) -> u64 {
    let attackers = attackers as u64;
    match rule {
        RobustRule::Krum | RobustRule::MultiKrum => 2 * attackers + 3,
        RobustRule::Median | RobustRule::TrimmedMean | RobustRule::GeometricMedian | RobustRule::NormFilter => {
            2 * attackers + 1
        }
    }
}

/// Whether `participants` are enough.
///
/// # Errors
/// [`TooFewParticipants`], with how many are needed.
pub const fn check(rule: RobustRule, participants: u32, attackers: u32) -> Result<(), TooFewParticipants> {
    let needed = needs(rule, attackers);
    if participants as u64 >= needed {
        return Ok(());
    }
    Err(TooFewParticipants { rule: rule.as_str(), attackers, needed, participants })
}

/// What a distance rule makes of updates with these inner products; nothing for a coordinate-wise rule.
///
/// # Errors
/// [`TooFewParticipants`].
pub fn judge(spec: &RobustSpec, gram: &Gram, attackers: u32) -> Result<Option<Judgement>, TooFewParticipants> {
    check(spec.rule, count(gram.len()), attackers)?;
    let attackers = attackers as usize;
    let weights = match spec.rule {
        RobustRule::Median | RobustRule::TrimmedMean => return Ok(None),
        RobustRule::Krum => krum::weights(gram, attackers, 1),
        RobustRule::MultiKrum => krum::weights(gram, attackers, gram.len() - attackers - 2),
        RobustRule::GeometricMedian => geometric_median::weights(gram, attackers),
        RobustRule::NormFilter => norm_filter::weights(gram, spec.norm_factor()),
    };
    let distances = gram.distances_from(&weights);
    Ok(Some(Judgement { weights, distances }))
}

/// Combines updates that are all in memory, such as the means of a few groups.
///
/// # Errors
/// [`TooFewParticipants`].
///
/// # Panics
/// Unless all rows have the same length.
pub fn combine(spec: &RobustSpec, rows: &[&[f32]], attackers: u32) -> Result<Combined, TooFewParticipants> {
    check(spec.rule, count(rows.len()), attackers)?;
    let mut values = vec![0.0; rows[0].len()];
    let judged = match spec.rule {
        RobustRule::Median => {
            coordinates::median(rows, &mut values);
            None
        }
        RobustRule::TrimmedMean => {
            coordinates::trimmed_mean(rows, attackers as usize, &mut values);
            None
        }
        RobustRule::Krum | RobustRule::MultiKrum | RobustRule::GeometricMedian | RobustRule::NormFilter => {
            judge(spec, &Gram::of(rows), attackers)?
        }
    };
    let distances = match judged {
        Some(Judgement { weights, distances }) => {
            coordinates::weighted_sum(rows, &weights, &mut values);
            distances
        }
        None => coordinates::distances(rows, &values),
    };
    Ok(Combined { values, scores: anomaly_scores(&distances) })
}

/// Largest anomaly score.
pub const MAX_SCORE: f64 = 1e6;

/// How unusual each update is: its distance from the result over the median of these distances. About 1 is usual, several
/// times that is worth a look; capped at [`MAX_SCORE`].
#[must_use]
pub fn anomaly_scores(distances: &[f64]) -> Vec<f64> {
    let usual = middle(distances);
    let score = |&distance: &f64| match (distance > 0.0, usual > 0.0) {
        (false, _) => 0.0,
        (true, false) => MAX_SCORE,
        (true, true) => (distance / usual).min(MAX_SCORE),
    };
    distances.iter().map(score).collect()
}

#[cfg(test)]
mod tests;
