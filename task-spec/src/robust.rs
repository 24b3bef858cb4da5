//! `[aggregation] robust`: how updates are combined where some of them may be hostile.
//!
//! How the rules work and how many participants each needs is `learning`'s (`learning::robust`); here is what they ask of the
//! rest of the task.

use serde::{Deserialize, Serialize};

/// Largest cohort of a task with a robust rule: inputs are kept until the last has come, and compared in pairs.
pub const MAX_ROBUST_COHORT: u32 = 1024;

/// A robust rule and what it is to stand. Everybody has the same say under it, whatever its examples: the weight that a
/// participant claims could be the attack.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RobustSpec {
    /// Which.
    pub rule: RobustRule,
    /// f/n: the part of the participants that may be hostile, above 0 and below 0.5. At least one is always stood.
    pub attackers: f64,
    /// For `norm_filter`: how many times the median norm an update may have, at least 1. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm_factor: Option<f64>,
    /// s: under secure aggregation, the cohort is divided at random into groups of this many. Each group's sum is opened,
    /// and the rule looks at the groups' means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
}

/// The rule's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum RobustRule {
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
    /// The mean of the updates whose norm is at most `norm_factor` times the median norm: helps against scaled updates alone.
    NormFilter,
}

impl RobustRule {
    /// Its name in a task file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::TrimmedMean => "trimmed_mean",
            Self::Krum => "krum",
            Self::MultiKrum => "multi_krum",
            Self::GeometricMedian => "geometric_median",
            Self::NormFilter => "norm_filter",
        }
    }
}

impl RobustSpec {
    /// f: how many of so many participants may be hostile; at least one.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a cohort")]
    pub fn attackers_among(&self, participants: u32) -> u32 {
        // Not fewer because only the binary form of a decimal fraction lies below a whole number.
        ((f64::from(participants) * self.attackers + 1e-9).floor() as u32).max(1)
    }

    /// (1 - f)^s: the part of groups of `size` that are free of attackers, where these are spread by chance.
    #[must_use]
    pub fn clean_groups(&self, size: u32) -> f64 {
        (1.0 - self.attackers).powi(i32::try_from(size).unwrap_or(i32::MAX))
    }

    /// Of `norm_filter`.
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
