//! `[aggregation] robust`: combination of updates if some of them may be hostile.
//!
//! `learning::robust` implements the rules and defines the number of participants that each needs. This module checks their requirements on
//! the rest of the task.

use serde::{Deserialize, Serialize};

use crate::named_enum;

/// Largest cohort of a task with a robust rule: inputs are kept until the last has come, and compared in pairs.
pub const MAX_ROBUST_COHORT: u32 = 1024;

/// A robust rule and the attackers it must tolerate. All updates have equal weight, whatever their number of examples,
/// since an attacker could claim any weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RobustSpec {
    pub rule: RobustRule,
    /// f/n: the share of participants that may be hostile, above 0 and below 0.5. At least one attacker is always
    /// tolerated.
    pub attackers: f64,
    /// For `norm_filter`: maximum ratio of an update's norm to the median norm, at least 1. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm_factor: Option<f64>,
    /// s: with secure aggregation, the cohort is divided at random into groups of this size. Each group's sum is
    /// opened, and the rule works on the groups' means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
}

named_enum! {
    /// The rule's name.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum RobustRule {
        /// The median of each coordinate (Yin et al. 2018).
        Median = "median",
        /// The mean of each coordinate without its f smallest and f largest values (Yin et al. 2018).
        TrimmedMean = "trimmed_mean",
        /// The one update that is closest to its neighbours (Blanchard et al. 2017).
        Krum = "krum",
        /// The mean of the n - f - 2 updates that are (Blanchard et al. 2017; El Mhamdi et al. 2018).
        MultiKrum = "multi_krum",
        /// The point with the least sum of distances to all updates but the f farthest (Pillutla, Kakade and Harchaoui 2019).
        GeometricMedian = "geometric_median",
        /// The mean of the updates whose norm is at most `norm_factor` times the median norm: helps against scaled updates alone.
        NormFilter = "norm_filter",
    }
}

impl RobustSpec {
    /// f: the number of hostile participants to tolerate among this many; at least one.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a cohort")]
    pub fn attackers_among(&self, participants: u32) -> u32 {
        // Corrects for decimal fractions whose binary form is slightly below a whole number.
        ((f64::from(participants) * self.attackers + 1e-9).floor() as u32).max(1)
    }

    /// (1 - f)^s: the expected share of groups of `size` without attackers, if these are spread at random.
    #[must_use]
    pub fn clean_groups(&self, size: u32) -> f64 {
        (1.0 - self.attackers).powi(i32::try_from(size).unwrap_or(i32::MAX))
    }

    /// Of `norm_filter`; 2 by default.
    #[must_use]
    pub fn norm_factor(&self) -> f64 {
        self.norm_factor.unwrap_or(2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attackers_are_whole_and_never_none() {
        let among = |attackers, participants| {
            RobustSpec { rule: RobustRule::Median, attackers, norm_factor: None, group_size: None }
                .attackers_among(participants)
        };
        assert_eq!([3, 5, 9, 10, 14, 15].map(|n| among(0.2, n)), [1, 1, 1, 2, 2, 3]);
        assert_eq!(among(0.07, 100), 7);
        assert_eq!(among(0.29, 100), 29, "0.29 * 100 is a hair below 29 in binary");
    }
}
