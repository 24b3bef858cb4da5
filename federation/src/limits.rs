//! Requirements and deadlines of the phases of a round.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use task_spec::TaskSpec;

/// Requirements and deadline of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseLimits {
    /// With fewer participants at the deadline, the round fails.
    pub min: u32,
    /// With this many participants, the phase closes before its deadline.
    pub max: u32,
    /// From the phase's start.
    pub deadline_ms: u64,
}

impl PhaseLimits {
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
    /// If the task samples: the number of possible members of the cohort. The selection waits for all of them until its deadline. These
    /// were drawn when the round opened; or, with [`TaskSpec::sampling_amplifies`], they are the population to draw from when the selection
    /// closes.
    ///
    /// [`TaskSpec::sampling_amplifies`]: task_spec::TaskSpec::sampling_amplifies
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<u32>,
    /// Round-trip time of most of the cohort, in milliseconds, if it extended the deadlines of phases: [`crate::round_trip`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<u32>,
    /// Limits of the secure aggregation phases, if the task has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<SecureLimits>,
    /// The division of the cohort, if each group has its own session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupLimits>,
}

impl RoundLimits {
    /// Number of eligible participants for closing the selection before its deadline.
    #[must_use]
    pub fn wanted(&self) -> u32 {
        // Waits for all sampled participants: response time must not influence membership.
        self.sampled.unwrap_or(self.select.min)
    }

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

/// Limits of the secure aggregation phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecureLimits {
    /// t: the number of dealers, signatures and answers required to open anything. Depends on the cohort size, so 0
    /// until the cohort is drawn.
    pub threshold: u32,
    /// Time for dealing key shares.
    pub share_deadline_ms: u64,
    /// Time for signing the included set.
    pub confirm_deadline_ms: u64,
    /// Time for sending the shares for opening the sum.
    pub unmask_deadline_ms: u64,
}

/// The division of a round's cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLimits {
    /// s: participants per group.
    pub size: u32,
    /// Number of groups; 0 until the cohort is drawn.
    pub count: u32,
    /// Number of groups required by the rule; 0 until the cohort is drawn.
    pub needed: u32,
    /// Number of inputs required to open a group's sum; 0 until the cohort is drawn.
    pub collect_min: u32,
}
