//! The open work of a polling participant, in one statement. An idle participant's poll needs only this one.

use std::collections::BTreeMap;

use federation::id::{Attempt, ParticipantId, TaskId};
use federation::round::RoundLimits;
use federation::time::Timestamp;

use super::participant::Certificates;
use super::task::TaskRow;
use crate::driver::{FromRow, Row};
use crate::error::Result;
use crate::transaction::Transaction;

/// A task that may have work for a participant.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenTask {
    pub task: TaskRow,
    /// The participant's labels, from its enrolment.
    pub labels: BTreeMap<String, String>,
    /// Whether a check-in of the participant for the task is stored, expired or not.
    pub is_checked_in: bool,
    /// Whether a round of the task still needs the participant: see [`Transaction::pending_assignment`].
    pub awaits_it: bool,
    /// The task's next round, if it has not drawn its cohort and may draw this participant.
    pub selecting: Option<SelectingRound>,
}

/// A polling participant's certificates and open tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Glance {
    pub certificates: Certificates,
    /// See [`Transaction::open_tasks`].
    pub tasks: Vec<OpenTask>,
}

/// A round that has not drawn its cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectingRound {
    pub attempt: Attempt,
    /// The model version that it starts from.
    pub base_version: u32,
    /// When the attempt opened.
    pub opened_at: Timestamp,
}

/// A participant, with each task that meets a condition, as [`OpenTask`]. Without tasks, one row has the participant
/// alone.
macro_rules! open_tasks {
    ($participant:literal, $condition:expr) => {
        concat!(
            "SELECT task.*, ",
            certificates!(),
            ", participant.labels, selecting.attempt AS selecting, selecting.base_version, selecting.limits,
                    selecting.opened_at,
                    EXISTS (SELECT 1 FROM check_in
                            WHERE check_in.task = task.id AND check_in.participant = participant.id) AS is_checked_in,
                    EXISTS (SELECT 1 FROM pending_place AS place
                            WHERE place.participant = participant.id AND place.task = task.id) AS awaits_it,
                    EXISTS (SELECT 1 FROM sampled
                            WHERE sampled.task = task.id AND sampled.number = selecting.number
                              AND sampled.attempt = selecting.attempt
                              AND sampled.participant = participant.id) AS is_sampled
             FROM participant LEFT JOIN task ON ",
            $condition,
            " LEFT JOIN round AS selecting
                     ON selecting.task = task.id AND selecting.state = 'SELECTING'
                    AND selecting.number = task.rounds_completed + task.rounds_forfeited + 1
             WHERE participant.id = ",
            $participant,
            " ORDER BY task.created_at, task.id"
        )
    };
}

impl Transaction<'_> {
    /// The tasks that may have work for a participant, oldest first: those that are ACTIVE, those that are PAUSED with
    /// a round that has not drawn its cohort, and those with a round that still needs it. With a name, only the task
    /// that [`Transaction::task_by_name`] finds.
    pub async fn open_tasks(&mut self, participant: ParticipantId, name: Option<&str>) -> Result<Vec<OpenTask>> {
        Ok(self.glance(participant, name).await?.map(|seen| seen.tasks).unwrap_or_default())
    }

    /// The same, with the participant's certificates, so that it needs no separate lookup. `None` if the participant
    /// does not exist.
    pub async fn glance(&mut self, participant: ParticipantId, name: Option<&str>) -> Result<Option<Glance>> {
        let rows: Vec<(Certificates, Option<OpenTask>)> = match name {
            Some(name) => {
                const NAMED: &str = open_tasks!("?2", concat!("task.id = (SELECT id ", named_task!(), ")"));
                self.list_of(1, NAMED, (name, participant)).await?
            }
            None => {
                const ALL: &str = open_tasks!(
                    "?1",
                    "(task.status = 'ACTIVE'
                      OR task.status = 'PAUSED'
                         AND EXISTS (SELECT 1 FROM round WHERE round.task = task.id AND round.state = 'SELECTING')
                      OR task.id IN (SELECT task FROM pending_place WHERE participant = ?1))"
                );
                self.list_of(1, ALL, participant).await?
            }
        };
        let Some(&(certificates, _)) = rows.first() else { return Ok(None) };
        Ok(Some(Glance { certificates, tasks: rows.into_iter().filter_map(|(_, task)| task).collect() }))
    }
}

impl FromRow for (Certificates, Option<OpenTask>) {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let is_there = row.get::<Option<TaskId>>("id")?.is_some();
        Ok((Certificates::from_row(row)?, is_there.then(|| OpenTask::from_row(row)).transpose()?))
    }
}

impl FromRow for OpenTask {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let task = TaskRow::from_row(row)?;
        let selecting = match row.get("selecting")? {
            None => None,
            Some(attempt) => {
                let limits: RoundLimits = row.get("limits")?;
                let is_asked = limits.sampled.is_none() || row.get("is_sampled")?;
                let attempt = task.next_round().attempt(attempt);
                let (base_version, opened_at) = (row.get("base_version")?, row.get("opened_at")?);
                is_asked.then_some(SelectingRound { attempt, base_version, opened_at })
            }
        };
        let (is_checked_in, awaits_it) = (row.get("is_checked_in")?, row.get("awaits_it")?);
        Ok(Self { labels: row.get("labels")?, is_checked_in, awaits_it, selecting, task })
    }
}
