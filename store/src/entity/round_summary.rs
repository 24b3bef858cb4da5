//! What happened in attempts at rounds, counted: for whoever looks at many of them at once.

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
    /// Every state it entered, oldest first.
    pub history: Vec<RoundChange>,
    /// How many of the cohort are in each state; states nobody is in are left out.
    pub states: BTreeMap<AssignmentState, u32>,
    /// How many of the cohort dropped out in each state of the round; states in which nobody did are left out.
    pub dropped_in: BTreeMap<RoundState, u32>,
    /// The groups of a cohort that is divided; empty for one that is not.
    pub groups: BTreeMap<u32, GroupSummary>,
    /// How many messages of each kind were sent, and their bytes together, whether they are still kept or not; kinds that nobody
    /// sent are left out.
    pub messages: BTreeMap<MessageKind, (u32, u64)>,
    /// Bytes sent to the cohort, by the attempt's state; states in which nothing was sent are left out.
    pub bytes_down: BTreeMap<RoundState, u64>,
    /// Versions that the updates of the attempt were trained from ahead of it, in the order of participants' ids.
    pub buffered_from: Vec<u32>,
    /// Digest of the version that the cohort starts from; none if there is no such version.
    pub base: Option<Digest>,
    /// The version that the attempt published.
    pub made: Option<MadeVersion>,
    /// What it took to make the released sum, if that was measured.
    pub work: Option<SumWork>,
    /// The sealed row of the privacy ledger that charged the attempt.
    pub charged: Option<String>,
}

/// One group of a cohort that is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupSummary {
    /// Participants drawn into it.
    pub members: u32,
    /// Of those, whose inputs were admitted.
    pub reported: u32,
    /// The score of the first of those, in the order of ids; everybody in a group has the group's.
    pub anomaly: Option<f64>,
}

/// A version that an attempt published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeVersion {
    /// Its number.
    pub version: u32,
    /// Of its file.
    pub sha256: Digest,
    /// The version it was made from.
    pub parent: Option<u32>,
}

/// Reads summaries.
#[async_trait]
pub trait RoundSummaries {
    /// Of attempts at rounds of one task, each named by number and attempt, in the order in which they are named. The number of
    /// statements does not depend on how many there are. An attempt that does not exist has an empty summary.
    async fn round_summaries(&mut self, task: TaskId, attempts: &[(u32, u32)]) -> Result<Vec<RoundSummary>>;
}
