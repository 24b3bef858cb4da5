//! Robust aggregation rules, limiting the influence of a few hostile updates.
//!
//! A rule looks at single updates (or at the means of groups, under secure aggregation) with equal weight: a claimed weight is ignored,
//! since an attacker could claim a large one. There are two kinds. *Coordinate-wise* rules ([`coordinates`]) sort the values of each
//! parameter. *Distance* rules ([`krum`], [`geometric_median`], [`norm_filter`]) need only the inner products of the updates, a [`Gram`]
//! matrix computed in bulk, and return a weight for each update. All functions here are pure and, except for ties, independent of the order
//! of the updates.
//!
//! Each rule tolerates a declared number of attackers and states the number of participants needed for that. It does not silently tolerate
//! fewer.

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

/// Fewest participants for tolerating `attackers` of them with the rule.
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

/// How a rule combines updates.
#[derive(Clone, Copy, Debug)]
pub enum Method {
    /// Each coordinate by itself.
    Coordinates(CoordinateRule),
    /// By the distances between whole updates.
    Distances(Weigh),
}

/// The value taken by a coordinate-wise rule from those of a coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinateRule {
    Median,
    /// The mean without the f smallest and the f largest.
    TrimmedMean,
}

/// The weight of each update in the result, given the inner products of all and the number of attackers: non-negative,
/// summing to 1.
pub type Weigh = fn(&RobustSpec, &Gram, usize) -> Vec<f64>;

/// How this rule combines updates.
#[must_use]
pub const fn method(rule: RobustRule) -> Method {
    match rule {
        RobustRule::Median => Method::Coordinates(CoordinateRule::Median),
        RobustRule::TrimmedMean => Method::Coordinates(CoordinateRule::TrimmedMean),
        RobustRule::Krum => Method::Distances(|_, gram, attackers| krum::weights(gram, attackers, 1)),
        RobustRule::MultiKrum => {
            Method::Distances(|_, gram, attackers| krum::weights(gram, attackers, gram.len() - attackers - 2))
        }
        RobustRule::GeometricMedian => {
            Method::Distances(|_, gram, attackers| geometric_median::weights(gram, attackers))
        }
        RobustRule::NormFilter => Method::Distances(|spec, gram, _| norm_filter::weights(gram, spec.norm_factor())),
    }
}

/// Applies a distance rule to updates with these inner products.
///
/// # Errors
/// [`TooFewParticipants`].
pub fn judge(spec: &RobustSpec, weigh: Weigh, gram: &Gram, attackers: u32) -> Result<Judgement, TooFewParticipants> {
    check(spec.rule, count(gram.len()), attackers)?;
    let weights = weigh(spec, gram, attackers as usize);
    let distances = gram.distances_from(&weights);
    Ok(Judgement { weights, distances })
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
    let distances = match method(spec.rule) {
        Method::Coordinates(rule) => {
            match rule {
                CoordinateRule::Median => coordinates::median(rows, &mut values),
                CoordinateRule::TrimmedMean => coordinates::trimmed_mean(rows, attackers as usize, &mut values),
            }
            coordinates::distances(rows, &values)
        }
        Method::Distances(weigh) => {
            let Judgement { weights, distances } = judge(spec, weigh, &Gram::of(rows), attackers)?;
            coordinates::weighted_sum(rows, &weights, &mut values);
            distances
        }
    };
    Ok(Combined { values, scores: anomaly_scores(&distances) })
}

/// Largest anomaly score that is reported.
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
