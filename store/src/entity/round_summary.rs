//! Summaries of attempts at rounds, for views of many at once: each statement reads one aspect of all of them; and sums over all.

use std::collections::BTreeMap;

use federation::id::{Digest, TaskId};
use federation::round::{AssignmentState, RoundState};
use federation::time::Timestamp;

use super::noised_sum::SumWork;
use super::round::RoundChange;
use super::session_message::MessageKind;
use crate::driver::{FromRow, Row};
use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

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
    /// Digest of the version that the cohort starts from; `None` if that version does not exist.
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
    /// Digest of the version's file.
    pub sha256: Digest,
    /// The version it was trained from.
    pub parent: Option<u32>,
}

/// Sums over the latest attempts at a task's rounds that are in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundSums {
    pub state: RoundState,
    pub rounds: u64,
    /// Time from opening to end, or until now, in milliseconds.
    pub millis: u64,
    /// Of admitted inputs and of messages of sessions, whether still stored or not.
    pub bytes_up: u64,
    pub bytes_down: u64,
}

/// The rows of a table that belong to attempts `?2` at rounds of task `?1`, each with the attempt's position in the
/// list. The attempts come first, so that each is one look-up in the table's index.
macro_rules! of_attempts {
    ($columns:literal, $table:literal) => {
        concat!(
            "SELECT asked.place, ",
            $columns,
            " FROM {?2 place:integer number:integer attempt:integer} AS asked CROSS JOIN ",
            $table,
            " AS item ON item.task = ?1 AND item.number = asked.number AND item.attempt = asked.attempt "
        )
    };
}

const HISTORY: &str =
    concat!(of_attempts!("item.state, item.at, item.count", "round_change"), "ORDER BY place, sequence");

const COHORT: &str = concat!(
    of_attempts!("item.state, dropped_in, cohort_group, count(*) AS count", "assignment"),
    "GROUP BY place, item.state, dropped_in, cohort_group"
);

const ANOMALIES: &str = concat!(
    "SELECT place, cohort_group, (SELECT anomaly FROM admitted
                                  WHERE (task, number, attempt, participant) = (?1, one.number, one.attempt, one.participant))
                                 AS anomaly
     FROM (",
    of_attempts!(
        "item.number, item.attempt, cohort_group, participant,
         row_number() OVER (PARTITION BY place, cohort_group ORDER BY participant) AS nth",
        "assignment"
    ),
    "WHERE item.state = 'REPORTED' AND cohort_group IS NOT NULL) AS one WHERE nth = 1"
);

const MESSAGES: &str = concat!(
    of_attempts!("item.kind, count(*) AS count, CAST(sum(item.bytes) AS BIGINT) AS bytes", "session_message"),
    "GROUP BY place, item.kind"
);

const TRAFFIC: &str = concat!(
    of_attempts!("item.state, CAST(sum(item.bytes_down) AS BIGINT) AS bytes_down", "round_traffic"),
    "GROUP BY place, item.state"
);

const BUFFERED: &str = concat!(of_attempts!("item.base_version", "buffered"), "ORDER BY place, item.participant");

const RESULTS: &str = concat!(
    of_attempts!(
        "base.sha256 AS base, made.version, made.sha256, made.parent, noised.sum_device, noised.unmask_device,
         noised.sum_because, noised.unmask_because, noised.device_failure, noised.coordinator, noised.sum_ms,
         noised.unmask_ms, noised.keystream_bytes, charged.row AS charged",
        "round"
    ),
    "LEFT JOIN model_version AS base ON base.task = item.task AND base.version = item.base_version
     LEFT JOIN model_version AS made ON made.task = item.task AND made.version = item.model_version
     LEFT JOIN noised_sum AS noised
            ON noised.task = item.task AND noised.number = item.number AND noised.attempt = item.attempt
     LEFT JOIN privacy_ledger AS charged
            ON charged.task = item.task AND charged.number = item.number AND charged.attempt = item.attempt"
);

const SUMS: &str = "SELECT one.state, count(*) AS rounds,
        CAST(sum(CASE WHEN one.ended_at > one.opened_at THEN one.ended_at - one.opened_at ELSE 0 END) AS BIGINT) AS millis,
        CAST(sum(one.bytes_up) AS BIGINT) AS bytes_up, CAST(sum(one.bytes_down) AS BIGINT) AS bytes_down
 FROM (SELECT state, opened_at,
              CASE WHEN state IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN state_since ELSE ?2 END AS ended_at,
              (SELECT coalesce(sum(admitted.bytes), 0) FROM admitted
               WHERE admitted.task = round.task AND admitted.number = round.number
                 AND admitted.attempt = round.attempt)
              + (SELECT coalesce(sum(message.bytes), 0) FROM session_message AS message
                 WHERE message.task = round.task AND message.number = round.number
                   AND message.attempt = round.attempt) AS bytes_up,
              (SELECT coalesce(sum(traffic.bytes_down), 0) FROM round_traffic AS traffic
               WHERE traffic.task = round.task AND traffic.number = round.number
                 AND traffic.attempt = round.attempt) AS bytes_down
       FROM round
       WHERE task = ?1 AND attempt = (SELECT max(attempt) FROM round AS other
                                      WHERE other.task = round.task AND other.number = round.number)) AS one
 GROUP BY one.state ORDER BY one.state";

impl Transaction<'_> {
    /// Sums over the latest attempt of each round of a task, state by state; states without any are omitted.
    pub async fn sum_rounds(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<RoundSums>> {
        self.list(SUMS, (task, now)).await
    }

    /// Summaries of attempts at rounds of one task, given by number and attempt, in that order. The number of
    /// statements does not depend on their number. An attempt that does not exist has an empty summary.
    pub async fn round_summaries(&mut self, task: TaskId, attempts: &[(u32, u32)]) -> Result<Vec<RoundSummary>> {
        let mut asked = Asked { task, attempts: Vec::new(), summaries: Vec::new() };
        asked.attempts.extend((0..).zip(attempts).map(|(place, (number, attempt))| (place, *number, *attempt)));
        asked.summaries.resize_with(attempts.len(), RoundSummary::default);
        self.add(&mut asked, RESULTS, |summary, results: RoundSummary| *summary = results).await?;
        self.add(&mut asked, HISTORY, |summary, change: RoundChange| summary.history.push(change)).await?;
        self.add(&mut asked, COHORT, add_members).await?;
        if asked.summaries.iter().any(|summary| !summary.groups.is_empty()) {
            self.add(&mut asked, ANOMALIES, |summary, (group, anomaly): (u32, Option<f64>)| {
                summary.groups.entry(group).or_default().anomaly = anomaly;
            })
            .await?;
        }
        self.add(&mut asked, MESSAGES, |summary, (kind, count, bytes): (MessageKind, u32, u64)| {
            summary.messages.insert(kind, (count, bytes));
        })
        .await?;
        self.add(&mut asked, TRAFFIC, |summary, (state, bytes_down): (RoundState, u64)| {
            summary.bytes_down.insert(state, bytes_down);
        })
        .await?;
        self.add(&mut asked, BUFFERED, |summary, base_version: u32| summary.buffered_from.push(base_version)).await?;
        Ok(asked.summaries)
    }
}

/// Summaries in progress.
struct Asked {
    task: TaskId,
    /// Their positions, numbers and attempts.
    attempts: Vec<(u32, u32, u32)>,
    summaries: Vec<RoundSummary>,
}

/// A row of an attempt, after the attempt's position in the list.
struct Placed<T>(u32, T);

columns!(MadeVersion { version, sha256, parent });
columns!(RoundSums { state, rounds, millis, bytes_up, bytes_down });

impl Transaction<'_> {
    /// Adds the rows of a statement to the summaries of their attempts.
    async fn add<T: FromRow>(
        &mut self,
        asked: &mut Asked,
        statement: &'static str,
        add: impl Fn(&mut RoundSummary, T) + Send,
    ) -> Result<()> {
        for Placed(place, row) in self.list(statement, (asked.task, &asked.attempts)).await? {
            let summary = asked.summaries.get_mut(place as usize);
            add(summary.ok_or_else(|| StoreError::fault("a row of an attempt that nobody asked for"))?, row);
        }
        Ok(())
    }
}

impl<T: FromRow> FromRow for Placed<T> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self(row.at(0)?, T::from_row(&row.rest())?))
    }
}

/// With the round's version and cost.
impl FromRow for RoundSummary {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (made, work) = (Option::from_row(row)?, Option::from_row(row)?);
        Ok(Self { base: row.get("base")?, made, work, charged: row.get("charged")?, ..Self::default() })
    }
}

impl FromRow for Option<MadeVersion> {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let published = row.get::<Option<u32>>("version")?.is_some();
        published.then(|| MadeVersion::from_row(row)).transpose()
    }
}

/// Adds the members of one group, if the cohort is divided, that have a state in common.
fn add_members(
    summary: &mut RoundSummary,
    (state, dropped_in, group, count): (AssignmentState, Option<RoundState>, Option<u32>, u32),
) {
    *summary.states.entry(state).or_default() += count;
    if let Some(phase) = dropped_in {
        *summary.dropped_in.entry(phase).or_default() += count;
    }
    if let Some(group) = group {
        let GroupSummary { members, reported, .. } = summary.groups.entry(group).or_default();
        *members += count;
        if state == AssignmentState::Reported {
            *reported += count;
        }
    }
}
