//! Robust aggregation rules, which limit the influence of a few hostile updates.
//!
//! A rule looks at single updates (or at the means of groups, under secure aggregation) with equal weight: a claimed
//! weight is ignored, since an attacker could claim a large one. There are two kinds. *Coordinate-wise* rules
//! ([`coordinates`]) sort the values of each parameter. *Distance* rules ([`krum`], [`geometric_median`],
//! [`norm_filter`]) need only the inner products of the updates, a [`Gram`] matrix computed in bulk, and return a
//! weight for each update. Everything here is a pure function that does not depend on the order of the updates, except
//! for ties.
//!
//! Each rule tolerates a declared number of attackers and states how many participants it needs for that; it never
//! silently tolerates fewer.

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

/// A rule cannot tolerate this many attackers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} needs at least {needed} participants against {attackers} attackers, there are {participants}")]
pub struct TooFewParticipants {
    pub rule: &'static str,
    pub attackers: u32,
    pub needed: u64,
    pub participants: u32,
}

/// The result of a distance rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Weight of each update in the result; non-negative, summing to 1.
    pub weights: Vec<f64>,
    /// Distance of each update from the result, in the units of the updates.
    pub distances: Vec<f64>,
}

/// The result of a rule on updates in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined {
    /// One value per coordinate.
    pub values: Vec<f32>,
    pub scores: Vec<f64>,
}

/// Fewest participants with which the rule tolerates `attackers` of them.
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

/// # Errors
/// [`TooFewParticipants`] if the rule needs more.
pub const fn check(rule: RobustRule, participants: u32, attackers: u32) -> Result<(), TooFewParticipants> {
    let needed = needs(rule, attackers);
    if participants as u64 >= needed {
        return Ok(());
    }
    Err(TooFewParticipants { rule: rule.as_str(), attackers, needed, participants })
}

/// Applies a distance rule to updates with these inner products; `None` for a coordinate-wise rule.
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

/// Combines updates in memory, such as the means of a few groups.
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

/// Anomaly score of each update: its distance from the result over the median of these distances. About 1 is normal,
/// several times that is suspicious; capped at [`MAX_SCORE`].
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
