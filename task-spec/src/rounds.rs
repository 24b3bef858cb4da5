//! `[rounds]` of a task, and how many participants a round has.

use serde::{Deserialize, Serialize};

/// How many rounds, and the limits of each phase. What is left out is derived from the cohort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundsSpec {
    /// The task is complete after so many rounds.
    pub count: u32,
    /// The task is paused after so many failed attempts at one round; 0 to keep trying.
    pub max_attempts: u32,
    /// Eligible participants needed before a cohort is drawn. Default: the cohort's count, or 2 for a fraction.
    pub select_min: Option<u32>,
    /// Largest cohort, over-selection included.
    pub select_max: u32,
    /// How long to wait for participants.
    pub select_deadline_ms: u64,
    /// Masked inputs without which the round fails. Default: half of the smallest target.
    pub collect_min: Option<u32>,
    /// Masked inputs with which collection closes early. Default: the target, over-selection not counted.
    pub collect_max: Option<u32>,
    /// How long participants may train and upload.
    pub collect_deadline_ms: u64,
    /// How long summing and publishing may take.
    pub aggregate_deadline_ms: u64,
}

impl Default for RoundsSpec {
    fn default() -> Self {
        Self {
            count: 10,
            max_attempts: 0,
            select_min: None,
            select_max: 1024,
            select_deadline_ms: 600_000,
            collect_min: None,
            collect_max: None,
            collect_deadline_ms: 600_000,
            aggregate_deadline_ms: 600_000,
        }
    }
}
