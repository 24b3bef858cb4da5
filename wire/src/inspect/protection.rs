//! Parties that can read the updates of a task.

use serde::{Deserialize, Serialize};

/// Who can read an update of a task. Secure aggregation hides each update inside each opened sum. The sums of different
/// rounds and tasks can be subtracted from each other, and only noise or fixed batches bound what that reveals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "updates", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Protection {
    /// Secure aggregation is off: the coordinator and its operator can read every update.
    ReadableByCoordinator,
    /// Secure aggregation is on: each update is hidden inside each opened sum.
    HiddenInSums {
        /// Issuer of the members' certificates.
        certified_by: CertifiedBy,
        /// γ: fraction of a cohort, or of one of its groups, that may collude with the coordinator.
        max_corrupt_fraction: f64,
        /// Number of members of the smallest cohort, or group, that may collude with the coordinator: ⌊γn⌋.
        tolerated_colluders: u32,
        /// Fewest updates in an opened sum.
        smallest_sum: u32,
        /// Bound on what the difference of several opened sums reveals.
        across_rounds: AcrossRounds,
    },
}

task_spec::named_enum! {
    /// Issuer of the certificates of a coordinator's participants.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum CertifiedBy {
        /// The coordinator's own authority: the coordinator can invent members.
        Coordinator = "coordinator",
        /// An external authority, which signs the requests that the coordinator forwards.
        ExternalSigner = "external_signer",
        /// An external authority, which issues certificates to devices directly.
        ExternalAuthority = "external_authority",
    }
}

/// Bound on what the difference of sums of several rounds or tasks reveals about one participant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AcrossRounds {
    /// The noise of `[privacy]`.
    Noise {
        /// Epsilon spent so far, for observers who know every cohort; absent if the ledger cannot be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epsilon: Option<f64>,
        /// Epsilon spent so far, for the coordinator. Absent if the coordinator adds the noise, and so sees sums without
        /// noise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server_epsilon: Option<f64>,
    },
    /// Fixed batches: in sessions that members joined with their batch, each difference of sums is a combination of sums over at
    /// least `size` members.
    Batches { size: u32 },
    /// Nothing. The difference of two sums whose cohorts differ in one member can reveal that member's update.
    NotProtected,
}

impl Protection {
    /// Whether secure aggregation is on.
    #[must_use]
    pub const fn hides_updates(&self) -> bool {
        match self {
            Self::HiddenInSums { .. } => true,
            Self::ReadableByCoordinator => false,
        }
    }

    /// Statements about the task's protection, one per line.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::ReadableByCoordinator => {
                vec!["readable by the coordinator and its operator: secure aggregation is off".to_owned()]
            }
            Self::HiddenInSums {
                certified_by,
                max_corrupt_fraction,
                tolerated_colluders,
                smallest_sum,
                across_rounds,
            } => vec![
                format!("each hidden inside each opened sum, of at least {smallest_sum} updates"),
                format!(
                    "while at most {} % of the cohort or group collude with the coordinator ({tolerated_colluders} in the smallest)",
                    percent(*max_corrupt_fraction)
                ),
                format!("members certified by {}", certified_by.words()),
                format!("across rounds: {across_rounds}"),
            ],
        }
    }
}

impl CertifiedBy {
    /// The issuer in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Coordinator => "the coordinator's own authority, which can invent members",
            Self::ExternalSigner => "an external authority, which signs what the coordinator forwards",
            Self::ExternalAuthority => "an external authority",
        }
    }
}

impl std::fmt::Display for AcrossRounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Noise { epsilon: None, .. } => write!(f, "noise (the privacy ledger cannot be read)"),
            Self::Noise { epsilon: Some(epsilon), server_epsilon: Some(server) } => {
                write!(f, "noise (ε {epsilon:.4} so far, {server:.4} for the coordinator)")
            }
            Self::Noise { epsilon: Some(epsilon), server_epsilon: None } => {
                write!(f, "noise (ε {epsilon:.4} so far; the coordinator adds it, and sees sums without it)")
            }
            Self::Batches { size } => write!(f, "batches of {size}"),
            Self::NotProtected => write!(f, "not protected"),
        }
    }
}

/// A fraction in percent, to two decimals at most.
fn percent(fraction: f64) -> f64 {
    (fraction * 1e4).round() / 100.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sums(across_rounds: AcrossRounds) -> Protection {
        Protection::HiddenInSums {
            certified_by: CertifiedBy::Coordinator,
            max_corrupt_fraction: 0.1,
            tolerated_colluders: 1,
            smallest_sum: 6,
            across_rounds,
        }
    }

    #[test]
    fn protection_is_written_as_documented() {
        let plaintext = serde_json::to_value(Protection::ReadableByCoordinator).unwrap();
        assert_eq!(plaintext, json!({ "updates": "readable_by_coordinator" }));
        let hidden = serde_json::to_value(sums(AcrossRounds::Batches { size: 8 })).unwrap();
        let expected = json!({
            "updates": "hidden_in_sums", "certified_by": "coordinator", "max_corrupt_fraction": 0.1,
            "tolerated_colluders": 1, "smallest_sum": 6, "across_rounds": { "kind": "batches", "size": 8 },
        });
        assert_eq!(hidden, expected);
        assert_eq!(serde_json::from_value::<Protection>(expected).unwrap(), sums(AcrossRounds::Batches { size: 8 }));
    }

    #[test]
    fn words_name_issuer_colluders_and_rounds() {
        let words = sums(AcrossRounds::NotProtected).lines();
        let expected = [
            "each hidden inside each opened sum, of at least 6 updates",
            "while at most 10 % of the cohort or group collude with the coordinator (1 in the smallest)",
            "members certified by the coordinator's own authority, which can invent members",
            "across rounds: not protected",
        ];
        assert_eq!(words, expected);
        let last = |across| sums(across).lines().pop().unwrap();
        assert_eq!(last(AcrossRounds::Batches { size: 8 }), "across rounds: batches of 8");
        let noise = AcrossRounds::Noise { epsilon: Some(2.4), server_epsilon: Some(3.1) };
        assert_eq!(last(noise), "across rounds: noise (ε 2.4000 so far, 3.1000 for the coordinator)");
        let central = AcrossRounds::Noise { epsilon: Some(2.4), server_epsilon: None };
        assert!(last(central).ends_with("(ε 2.4000 so far; the coordinator adds it, and sees sums without it)"));
        assert!(Protection::ReadableByCoordinator.lines()[0].contains("readable by the coordinator"));
    }
}
