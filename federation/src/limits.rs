//! What each phase of a round needs and how long it may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_spec::TaskSpec;

/// What one phase needs and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseLimits {
    /// With fewer than this at the deadline the round fails.
    pub min: u32,
    /// With this many the phase closes before its deadline.
    pub max: u32,
    /// From the phase's start.
    pub deadline_ms: u64,
}

impl PhaseLimits {
    /// The deadline as a duration.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }
}

/// The limits of every phase, fixed when the round opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundLimits {
    /// Counts eligible participants that are checked in.
    pub select: PhaseLimits,
    /// Counts masked inputs. `max` is lowered to the target when a cohort is drawn.
    pub collect: PhaseLimits,
    /// Time for summing and publishing.
    pub aggregate_deadline_ms: u64,
    /// How many participants can be in the cohort, where the task samples; each of them is waited for until the selection's
    /// deadline. Those who were drawn when the round opened; or, where [`TaskSpec::sampling_amplifies`], all from whom it will be
    /// drawn when the selection closes.
    ///
    /// [`TaskSpec::sampling_amplifies`]: task_spec::TaskSpec::sampling_amplifies
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<u32>,
    /// What most of the cohort's lines take for a round trip, in milliseconds, where that has moved the deadlines of its phases:
    /// [`crate::line`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<u32>,
    /// The phases of secure aggregation, where the task has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<SecureLimits>,
    /// How the cohort is divided, where each group has a session of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupLimits>,
}

impl RoundLimits {
    /// What each phase of a round of the task needs.
    #[must_use]
    pub fn of(task: &TaskSpec) -> Self {
        let rounds = &task.rounds;
        Self {
            select: PhaseLimits {
                min: task.select_min(),
                max: rounds.select_max,
                deadline_ms: rounds.select_deadline_ms,
            },
            collect: PhaseLimits {
                min: task.collect_min(),
                max: task.collect_max(),
                deadline_ms: rounds.collect_deadline_ms,
            },
            aggregate_deadline_ms: rounds.aggregate_deadline_ms,
            sampled: None,
            round_trip_ms: None,
            secure: task.secure_aggregation.enabled.then_some(SecureLimits {
                threshold: 0,
                share_deadline_ms: task.secure_aggregation.share_deadline_ms,
                confirm_deadline_ms: task.secure_aggregation.confirm_deadline_ms,
                unmask_deadline_ms: task.secure_aggregation.unmask_deadline_ms,
            }),
            groups: task.group_size().map(|size| GroupLimits { size, count: 0, needed: 0, collect_min: 0 }),
        }
    }
}

/// What the phases of secure aggregation need and how long they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecureLimits {
    /// t: dealers, signatures and answers without which nothing is opened. It follows from the cohort's size, so it is 0
    /// until the cohort is drawn.
    pub threshold: u32,
    /// Time for dealing key shares.
    pub share_deadline_ms: u64,
    /// Time for signing the included set.
    pub confirm_deadline_ms: u64,
    /// Time for answering with the shares that open the sum.
    pub unmask_deadline_ms: u64,
}

/// How a round's cohort is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLimits {
    /// s: participants in each group.
    pub size: u32,
    /// How many groups there are; 0 until the cohort is drawn.
    pub count: u32,
    /// Groups without which the rule has too few; 0 until the cohort is drawn.
    pub needed: u32,
    /// Inputs without which nothing of a group is opened; 0 until the cohort is drawn.
    pub collect_min: u32,
}
