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
pub mod geometric_median;
mod gram;
pub mod krum;
pub mod norm_filter;
mod slice;

use serde::{Deserialize, Serialize};

pub use gram::{BadGram, Gram};
pub use slice::centre;

/// A robust rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// The median of each coordinate (Yin et al. 2018).
    Median,
    /// The mean of each coordinate without its f smallest and f largest values (Yin et al. 2018).
    TrimmedMean,
    /// The one update that is closest to its neighbours (Blanchard et al. 2017).
    Krum,
    /// The mean of the n - f - 2 updates that are (Blanchard et al. 2017; El Mhamdi et al. 2018).
    MultiKrum,
    /// The point with the least sum of distances to all updates but the f farthest (Pillutla, Kakade and Harchaoui 2019).
    GeometricMedian,
    /// The mean of the updates whose norm is at most `factor` times the median norm: helps against scaled updates alone.
    NormFilter {
        /// At least 1.
        factor: f64,
    },
}

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

impl Rule {
    /// The stable name, as in a task file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::TrimmedMean => "trimmed_mean",
            Self::Krum => "krum",
            Self::MultiKrum => "multi_krum",
            Self::GeometricMedian => "geometric_median",
            Self::NormFilter { .. } => "norm_filter",
        }
    }

    /// Fewest participants with which `attackers` of them can be stood.
    #[must_use]
    pub const fn needs(self, attackers: u32) -> u64 {
        let attackers = attackers as u64;
        match self {
            Self::Krum | Self::MultiKrum => 2 * attackers + 3,
            Self::Median | Self::TrimmedMean | Self::GeometricMedian | Self::NormFilter { .. } => 2 * attackers + 1,
        }
    }

    /// Whether `participants` are enough.
    ///
    /// # Errors
    /// [`TooFewParticipants`], with how many are needed.
    pub const fn check(self, participants: u32, attackers: u32) -> Result<(), TooFewParticipants> {
        let needed = self.needs(attackers);
        if participants as u64 >= needed {
            return Ok(());
        }
        Err(TooFewParticipants { rule: self.name(), attackers, needed, participants })
    }

    /// What a distance rule makes of updates with these inner products; nothing for a coordinate-wise rule.
    ///
    /// # Errors
    /// [`TooFewParticipants`].
    pub fn judge(self, gram: &Gram, attackers: u32) -> Result<Option<Judgement>, TooFewParticipants> {
        self.check(count(gram.len()), attackers)?;
        let attackers = attackers as usize;
        let weights = match self {
            Self::Median | Self::TrimmedMean => return Ok(None),
            Self::Krum => krum::weights(gram, attackers, 1),
            Self::MultiKrum => krum::weights(gram, attackers, gram.len() - attackers - 2),
            Self::GeometricMedian => geometric_median::weights(gram, attackers),
            Self::NormFilter { factor } => norm_filter::weights(gram, factor),
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
    pub fn combine(self, rows: &[&[f32]], attackers: u32) -> Result<Combined, TooFewParticipants> {
        self.check(count(rows.len()), attackers)?;
        let mut values = vec![0.0; rows[0].len()];
        let judged = match self {
            Self::Median | Self::TrimmedMean => None,
            _ => self.judge(&Gram::of(rows), attackers)?,
        };
        let distances = match (self, judged) {
            (_, Some(Judgement { weights, distances })) => {
                coordinates::weighted_sum(rows, &weights, &mut values);
                distances
            }
            (Self::TrimmedMean, None) => {
                coordinates::trimmed_mean(rows, attackers as usize, &mut values);
                coordinates::distances(rows, &values)
            }
            (_, None) => {
                coordinates::median(rows, &mut values);
                coordinates::distances(rows, &values)
            }
        };
        Ok(Combined { values, scores: anomaly_scores(&distances) })
    }
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

/// The upper median; 0 of none.
fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn count(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
