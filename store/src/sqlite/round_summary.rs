//! Summaries of rounds in SQLite: each statement reads one aspect of all requested attempts.

use async_trait::async_trait;
use federation::id::TaskId;

use super::SqliteTransaction;
use super::noised_sum::read_work;
use super::round::read_change;
use super::row::{Columns as _, json};
use super::statement::{SqliteRow, query};
use crate::entity::round_summary::{GroupSummary, MadeVersion, RoundSummaries, RoundSummary};
use crate::error::{Result, StoreError};

/// The rows of a table that belong to attempts `?2` at rounds of task `?1`, each with the attempt's position in the
/// list. The attempts come first, so that each is one look-up in the table's index.
macro_rules! of_attempts {
    ($columns:literal, $table:literal) => {
        concat!(
            "SELECT asked.key AS place, ",
            $columns,
            " FROM json_each(?2) AS asked CROSS JOIN ",
            $table,
            " AS item ON item.task = ?1 AND item.number = asked.value ->> 0 AND item.attempt = asked.value ->> 1 "
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
                                  WHERE (task, number, attempt, participant) = (?1, first.number, first.attempt, first.id))
                                 AS anomaly
     FROM (",
    of_attempts!("item.number, item.attempt, cohort_group, min(participant) AS id", "assignment"),
    "WHERE item.state = 'REPORTED' AND cohort_group IS NOT NULL GROUP BY place, cohort_group) AS first"
);

const MESSAGES: &str = concat!(
    of_attempts!("item.kind, count(*) AS count, sum(item.bytes) AS bytes", "session_message"),
    "GROUP BY place, item.kind"
);

const TRAFFIC: &str = of_attempts!("item.state, item.bytes_down", "round_traffic");

const BUFFERED: &str = concat!(of_attempts!("item.base_version", "buffered"), "ORDER BY place, item.participant");

const RESULTS: &str = concat!(
    of_attempts!(
        "base.sha256 AS base, made.version, made.sha256, made.parent, noised.sum_device, noised.unmask_device,
         noised.sum_ms, noised.unmask_ms, noised.keystream_bytes, charged.row AS charged",
        "round"
    ),
    "LEFT JOIN model_version AS base ON base.task = item.task AND base.version = item.base_version
     LEFT JOIN model_version AS made ON made.task = item.task AND made.version = item.model_version
     LEFT JOIN noised_sum AS noised
            ON noised.task = item.task AND noised.number = item.number AND noised.attempt = item.attempt
     LEFT JOIN privacy_ledger AS charged
            ON charged.task = item.task AND charged.number = item.number AND charged.attempt = item.attempt"
);

#[async_trait]
impl RoundSummaries for SqliteTransaction {
    async fn round_summaries(&mut self, task: TaskId, attempts: &[(u32, u32)]) -> Result<Vec<RoundSummary>> {
        let mut asked = Asked { task, attempts: json(attempts)?, summaries: Vec::new() };
        asked.summaries.resize_with(attempts.len(), RoundSummary::default);
        self.add(&mut asked, RESULTS, add_results).await?;
        self.add(&mut asked, HISTORY, |summary, row| {
            summary.history.push(read_change(row)?);
            Ok(())
        })
        .await?;
        self.add(&mut asked, COHORT, add_places).await?;
        if asked.summaries.iter().any(|summary| !summary.groups.is_empty()) {
            self.add(&mut asked, ANOMALIES, |summary, row| {
                let group = summary.groups.entry(row.small("cohort_group")?).or_default();
                group.anomaly = row.optional_real("anomaly")?;
                Ok(())
            })
            .await?;
        }
        self.add(&mut asked, MESSAGES, |summary, row| {
            summary.messages.insert(row.named("kind")?, (row.small("count")?, row.large("bytes")?));
            Ok(())
        })
        .await?;
        self.add(&mut asked, TRAFFIC, |summary, row| {
            summary.bytes_down.insert(row.named("state")?, row.large("bytes_down")?);
            Ok(())
        })
        .await?;
        // One row per participant of every round; only this is kept of it.
        let buffered = query(BUFFERED).bind(task.0).bind(&asked.attempts);
        let read = |row: &SqliteRow| Ok((row.small("place")?, row.small("base_version")?));
        for (place, base_version) in self.collect::<(u32, u32)>(buffered, read).await? {
            asked.of(place)?.buffered_from.push(base_version);
        }
        Ok(asked.summaries)
    }
}

/// Summaries in progress.
struct Asked {
    task: TaskId,
    /// Numbers and attempts as JSON.
    attempts: String,
    summaries: Vec<RoundSummary>,
}

impl Asked {
    fn of(&mut self, place: u32) -> Result<&mut RoundSummary> {
        let summary = self.summaries.get_mut(usize::try_from(place).map_err(StoreError::fault)?);
        summary.ok_or_else(|| StoreError::fault("a row of an attempt that nobody asked for"))
    }
}

impl SqliteTransaction {
    /// Adds the results of a statement for each attempt.
    async fn add(
        &mut self,
        asked: &mut Asked,
        statement: &'static str,
        add: impl Fn(&mut RoundSummary, &SqliteRow) -> Result<()>,
    ) -> Result<()> {
        for row in self.list(query(statement).bind(asked.task.0).bind(&asked.attempts)).await? {
            add(asked.of(row.small("place")?)?, &row)?;
        }
        Ok(())
    }
}

fn add_results(summary: &mut RoundSummary, row: &SqliteRow) -> Result<()> {
    summary.base = row.optional_digest("base")?;
    summary.made = match row.optional_small("version")? {
        Some(version) => {
            Some(MadeVersion { version, sha256: row.digest("sha256")?, parent: row.optional_small("parent")? })
        }
        None => None,
    };
    summary.work = read_work(row)?;
    summary.charged = row.optional_text("charged")?;
    Ok(())
}

fn add_places(summary: &mut RoundSummary, row: &SqliteRow) -> Result<()> {
    let (state, count) = (row.named("state")?, row.small("count")?);
    *summary.states.entry(state).or_default() += count;
    if let Some(phase) = row.optional_named("dropped_in")? {
        *summary.dropped_in.entry(phase).or_default() += count;
    }
    if let Some(group) = row.optional_small("cohort_group")? {
        let GroupSummary { members, reported, .. } = summary.groups.entry(group).or_default();
        *members += count;
        if state == federation::round::AssignmentState::Reported {
            *reported += count;
        }
    }
    Ok(())
}
