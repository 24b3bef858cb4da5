//! Summaries of attempts at rounds, for views of many at once.

use std::collections::BTreeMap;

use async_trait::async_trait;
use federation::id::{Digest, TaskId};
use federation::round::{AssignmentState, RoundState};

use super::noised_sum::SumWork;
use super::round::RoundChange;
use super::session_message::MessageKind;
use crate::error::Result;

/// One attempt at a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundSummary {
    /// The states it entered, oldest first.
    pub history: Vec<RoundChange>,
    /// Number of members of the cohort in each state; empty states are omitted.
    pub states: BTreeMap<AssignmentState, u32>,
    /// Number of dropouts in each state of the round; states without any are omitted.
    pub dropped_in: BTreeMap<RoundState, u32>,
    /// The groups of a divided cohort; empty otherwise.
    pub groups: BTreeMap<u32, GroupSummary>,
    /// Number and total size of messages of each kind that were sent, whether still stored or not; kinds without any
    /// are omitted.
    pub messages: BTreeMap<MessageKind, (u32, u64)>,
    /// Bytes sent to the cohort, by the attempt's state; states without any are omitted.
    pub bytes_down: BTreeMap<RoundState, u64>,
    /// Base versions of the attempt's updates that were trained ahead, in the order of participants' ids.
    pub buffered_from: Vec<u32>,
    /// Digest of the version that the cohort starts from; `None` if there is no such version.
    pub base: Option<Digest>,
    pub made: Option<MadeVersion>,
    /// The cost of the released sum, if it was measured.
    pub work: Option<SumWork>,
    /// The sealed row of the privacy ledger that charges the attempt.
    pub charged: Option<String>,
}

/// One group of a divided cohort.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupSummary {
    /// Number of participants drawn into it.
    pub members: u32,
    /// Number of them whose inputs were admitted.
    pub reported: u32,
    /// Anomaly score of the first of those, in the order of ids; all members share the group's.
    pub anomaly: Option<f64>,
}

/// A version that an attempt published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeVersion {
    pub version: u32,
    /// Of its file.
    pub sha256: Digest,
    /// The version it was trained from.
    pub parent: Option<u32>,
}

#[async_trait]
pub trait RoundSummaries {
    /// Summaries of attempts at rounds of one task, given by number and attempt, in that order. The number of
    /// statements does not depend on their number. An attempt that does not exist has an empty summary.
    async fn round_summaries(&mut self, task: TaskId, attempts: &[(u32, u32)]) -> Result<Vec<RoundSummary>>;
}
