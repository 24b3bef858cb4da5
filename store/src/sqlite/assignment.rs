//! Assignments in SQLite.

use async_trait::async_trait;
use federation::advance::Tally;
use federation::groups::GroupTally;
use federation::id::{Attempt, ParticipantId, RoundKey, TaskId};
use federation::round::{Assignment, AssignmentState, RoundState};
use federation::time::Timestamp;

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, json, json_names};
use super::statement::{SqliteRow, query};
use crate::entity::assignment::{AssignmentChange, Assignments};
use crate::entity::session_message::MessageKind;
use crate::error::Result;

#[async_trait]
impl Assignments for SqliteTransaction {
    async fn insert_assignments(&mut self, assignments: &[Assignment]) -> Result<()> {
        let rows = json(&assignments.iter().map(as_json).collect::<Vec<_>>())?;
        self.change(
            query(
                "INSERT INTO assignment (task, number, attempt, participant, state, state_since, detail, assigned_at,
                                         dropped_in, cohort_group)
                 SELECT unhex(value ->> 0), value ->> 1, value ->> 2, unhex(value ->> 3), value ->> 4, value ->> 5,
                        value ->> 6, value ->> 7, value ->> 8, value ->> 9
                 FROM json_each(?1)",
            )
            .bind(rows.clone()),
        )
        .await?;
        self.change(
            query(
                "INSERT INTO assignment_change (task, number, attempt, participant, state, at, detail)
                 SELECT unhex(value ->> 0), value ->> 1, value ->> 2, unhex(value ->> 3), value ->> 4, value ->> 5,
                        value ->> 6
                 FROM json_each(?1)",
            )
            .bind(rows.clone()),
        )
        .await?;
        self.change(
            query(
                "INSERT INTO participation (task, participant, count, last_number, last_at)
                 SELECT unhex(value ->> 0), unhex(value ->> 3), 1, value ->> 1, value ->> 7
                 FROM json_each(?1) WHERE true
                 ON CONFLICT (task, participant) DO UPDATE
                 SET count = count + 1, last_number = excluded.last_number, last_at = excluded.last_at",
            )
            .bind(rows),
        )
        .await?;
        Ok(())
    }

    async fn assignment(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Assignment>> {
        let row = self
            .find(
                query(
                    "SELECT * FROM assignment
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
                )
                .attempt(attempt)
                .bind(participant.0),
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn assignments(
        &mut self,
        attempt: Attempt,
        cursor: Option<ParticipantId>,
        limit: u32,
    ) -> Result<Vec<Assignment>> {
        let rows = self
            .list(
                query(
                    "SELECT * FROM assignment
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant > coalesce(?4, x'')
                     ORDER BY participant LIMIT ?5",
                )
                .attempt(attempt)
                .bind(cursor.map(|id| id.0))
                .bind(limit),
            )
            .await?;
        each(&rows, read)
    }

    async fn pending_assignment(&mut self, participant: ParticipantId) -> Result<Option<Assignment>> {
        let row = self
            .find(
                query("SELECT * FROM pending_place WHERE participant = ?1 ORDER BY assigned_at, task LIMIT 1")
                    .bind(participant.0),
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn set_assignment_state(
        &mut self,
        attempt: Attempt,
        participant: ParticipantId,
        from: &[AssignmentState],
        to: AssignmentState,
        at: Timestamp,
        detail: Option<&str>,
    ) -> Result<bool> {
        let changed = self
            .change_one(
                query(
                    "UPDATE assignment
                     SET state = ?5, state_since = ?6, detail = ?7,
                         dropped_in = iif(?9, (SELECT state FROM round
                                               WHERE task = ?1 AND number = ?2 AND attempt = ?3
                                                 AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')), dropped_in)
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4
                       AND state IN (SELECT value FROM json_each(?8))",
                )
                .attempt(attempt)
                .bind(participant.0)
                .bind(to.as_str())
                .time(at)
                .bind(detail)
                .bind(json_names(from)?)
                .bind(to.is_dropped()),
            )
            .await?;
        if changed {
            self.insert(
                query(
                    "INSERT INTO assignment_change (task, number, attempt, participant, state, at, detail)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )
                .attempt(attempt)
                .bind(participant.0)
                .bind(to.as_str())
                .time(at)
                .bind(detail),
            )
            .await?;
        }
        Ok(changed)
    }

    async fn set_pending_assignments(&mut self, attempt: Attempt, to: AssignmentState, at: Timestamp) -> Result<u32> {
        self.change(
            query(
                "INSERT INTO assignment_change (task, number, attempt, participant, state, at)
                 SELECT task, number, attempt, participant, ?4, ?5 FROM assignment
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state IN ('ASSIGNED', 'WORKING')
                 ORDER BY participant",
            )
            .attempt(attempt)
            .bind(to.as_str())
            .time(at),
        )
        .await?;
        self.count_changes(
            query(
                "UPDATE assignment
                 SET state = ?4, state_since = ?5, detail = NULL,
                     dropped_in = iif(?6, (SELECT iif(state = 'SHARING', 'SHARING', 'COLLECTING') FROM round
                                           WHERE task = ?1 AND number = ?2 AND attempt = ?3), dropped_in)
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state IN ('ASSIGNED', 'WORKING')",
            )
            .attempt(attempt)
            .bind(to.as_str())
            .time(at)
            .bind(to.is_dropped()),
        )
        .await
    }

    async fn revoke_pending(&mut self, participant: ParticipantId, at: Timestamp) -> Result<Vec<RoundKey>> {
        let rows = self
            .list(
                query(
                    "SELECT * FROM assignment WHERE participant = ?1 AND state IN ('ASSIGNED', 'WORKING')
                     UNION ALL SELECT * FROM pending_place WHERE participant = ?1 AND state = 'REPORTED'",
                )
                .bind(participant.0),
            )
            .await?;
        let pending = each(&rows, read)?;
        for Assignment { attempt, state, .. } in &pending {
            if *state != AssignmentState::Reported {
                let to = AssignmentState::Revoked;
                self.set_assignment_state(*attempt, participant, &[*state], to, at, None).await?;
            } else if let Some(phase) = self.state_of_round(*attempt).await? {
                // Its input is in the sum: it is missed from the next phase on.
                let phase = phase.max(RoundState::Confirming);
                self.set_dropped(*attempt, participant, phase).await?;
            }
        }
        Ok(pending.iter().map(|assignment| assignment.attempt.round_key()).collect())
    }

    async fn drop_missing(
        &mut self,
        attempt: Attempt,
        phase: RoundState,
        groups: &[u32],
        at: Timestamp,
    ) -> Result<u32> {
        let groups = json(groups)?;
        self.change(
            query(
                "INSERT INTO assignment_change (task, number, attempt, participant, state, at)
                 SELECT task, number, attempt, participant, 'LATE', ?5 FROM assignment
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state IN ('ASSIGNED', 'WORKING')
                   AND (cohort_group IN (SELECT value FROM json_each(?6))
                        OR participant IN (SELECT participant FROM unanswered
                                           WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND phase = ?4))
                 ORDER BY participant",
            )
            .attempt(attempt)
            .bind(phase.as_str())
            .time(at)
            .bind(groups.clone()),
        )
        .await?;
        // A lower bound on their durations.
        self.change(
            query(
                "UPDATE participation
                 SET last_duration_ms = max(coalesce(last_duration_ms, 0), ?5 - assigned_at)
                 FROM assignment
                 WHERE assignment.task = ?1 AND assignment.number = ?2 AND assignment.attempt = ?3
                   AND participation.task = ?1 AND participation.participant = assignment.participant
                   AND assignment.participant IN (SELECT participant FROM unanswered
                                                  WHERE task = ?1 AND number = ?2 AND attempt = ?3
                                                    AND phase = ?4 AND phase = 'COLLECTING')",
            )
            .attempt(attempt)
            .bind(phase.as_str())
            .time(at),
        )
        .await?;
        self.count_changes(
            query(
                "UPDATE assignment
                 SET dropped_in = ?4,
                     state_since = iif(state = 'REPORTED', state_since, ?5),
                     detail = iif(state = 'REPORTED', detail, NULL),
                     state = iif(state = 'REPORTED', state, 'LATE')
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3
                   AND state IN ('ASSIGNED', 'WORKING', 'REPORTED') AND dropped_in IS NULL
                   AND (cohort_group IN (SELECT value FROM json_each(?6))
                        OR participant IN (SELECT participant FROM unanswered
                                           WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND phase = ?4))",
            )
            .attempt(attempt)
            .bind(phase.as_str())
            .time(at)
            .bind(groups),
        )
        .await
    }

    async fn set_dropped(&mut self, attempt: Attempt, participant: ParticipantId, phase: RoundState) -> Result<bool> {
        self.change_one(
            query(
                "UPDATE assignment SET dropped_in = ?5
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4
                   AND state = 'REPORTED' AND dropped_in IS NULL",
            )
            .attempt(attempt)
            .bind(participant.0)
            .bind(phase.as_str()),
        )
        .await
    }

    async fn tally(&mut self, attempt: Attempt) -> Result<Tally> {
        let phase = self.state_of_round(attempt).await?;
        let answer = phase.and_then(answer_to);
        let row = self
            .find(
                query(
                    "SELECT (SELECT count(*) FROM unanswered
                             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND phase = ?4) AS pending,
                            (SELECT count(*) FROM session_message
                             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?5) AS answered,
                            (SELECT count(*) FROM assignment
                             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state = 'REPORTED') AS reported,
                            EXISTS (SELECT 1 FROM model_version WHERE task = ?1 AND round = ?2) AS published",
                )
                .attempt(attempt)
                .bind(phase.map(RoundState::as_str))
                .bind(answer.map(MessageKind::as_str)),
            )
            .await?;
        let Some(row) = row else { return Ok(Tally::default()) };
        Ok(Tally {
            eligible: 0,
            pending: row.small("pending")?,
            answered: row.small("answered")?,
            reported: row.small("reported")?,
            published: row.flag("published")?,
        })
    }

    async fn group_tallies(&mut self, attempt: Attempt) -> Result<Vec<GroupTally>> {
        let phase = self.state_of_round(attempt).await?;
        let answer = phase.and_then(answer_to);
        let rows = self
            .list(
                query(
                    "SELECT count(*) FILTER (WHERE state = 'REPORTED') AS reported,
                            count(*) FILTER (WHERE participant IN (
                                SELECT participant FROM unanswered
                                WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND phase = ?4)) AS pending,
                            count(*) FILTER (WHERE participant IN (
                                SELECT participant FROM session_message
                                WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?5)) AS answered,
                            count(*) FILTER (WHERE participant IN (
                                SELECT participant FROM session_message
                                WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = 'COMPLAINT')) AS complaints
                     FROM assignment
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND cohort_group IS NOT NULL
                     GROUP BY cohort_group ORDER BY cohort_group",
                )
                .attempt(attempt)
                .bind(phase.map(RoundState::as_str))
                .bind(answer.map(MessageKind::as_str)),
            )
            .await?;
        each(&rows, |row| {
            let (pending, answered, reported) = (row.small("pending")?, row.small("answered")?, row.small("reported")?);
            let tally = Tally { pending, answered, reported, ..Tally::default() };
            Ok(GroupTally { tally, complaints: row.small("complaints")? })
        })
    }

    async fn last_counted(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<Attempt>> {
        // From the last round backwards, and no further than to the first that is found.
        let row = self
            .find(
                query(
                    "SELECT a.task, a.number, a.attempt FROM round AS r CROSS JOIN assignment AS a
                       ON a.task = r.task AND a.number = r.number AND a.attempt = r.attempt AND a.participant = ?2
                     WHERE r.task = ?1 AND r.state = 'COMPLETED' AND a.state = 'REPORTED'
                     ORDER BY r.number DESC, r.attempt DESC LIMIT 1",
                )
                .bind(task.0)
                .bind(participant.0),
            )
            .await?;
        row.map(|row| row.attempt()).transpose()
    }

    async fn assignment_history(
        &mut self,
        attempt: Attempt,
        participant: ParticipantId,
    ) -> Result<Vec<AssignmentChange>> {
        let rows = self
            .list(
                query(
                    "SELECT state, at, detail FROM assignment_change
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4 ORDER BY sequence",
                )
                .attempt(attempt)
                .bind(participant.0),
            )
            .await?;
        each(&rows, |row| {
            Ok(AssignmentChange {
                state: row.named("state")?,
                at: row.time("at")?,
                detail: row.optional_text("detail")?,
            })
        })
    }
}

impl SqliteTransaction {
    async fn state_of_round(&mut self, attempt: Attempt) -> Result<Option<RoundState>> {
        let row = self
            .find(query("SELECT state FROM round WHERE task = ?1 AND number = ?2 AND attempt = ?3").attempt(attempt))
            .await?;
        row.map(|row| row.named("state")).transpose()
    }
}

/// The kind of message that answers a phase.
fn answer_to(phase: RoundState) -> Option<MessageKind> {
    match phase {
        RoundState::Sharing => Some(MessageKind::Shares),
        RoundState::Confirming => Some(MessageKind::Consistency),
        RoundState::Unmasking => Some(MessageKind::Unmasking),
        RoundState::Selecting
        | RoundState::Collecting
        | RoundState::Aggregating
        | RoundState::Completed
        | RoundState::Failed
        | RoundState::Cancelled => None,
    }
}

/// The columns of an assignment, as numbered in the statements of `insert_assignments`.
fn as_json(assignment: &Assignment) -> impl serde::Serialize {
    (
        assignment.attempt.task.0.simple().to_string(),
        assignment.attempt.round,
        assignment.attempt.attempt,
        assignment.participant.0.simple().to_string(),
        assignment.state.as_str(),
        assignment.state_since,
        assignment.detail.clone(),
        assignment.assigned_at,
        assignment.dropped_in,
        assignment.group,
    )
}

fn read(row: &SqliteRow) -> Result<Assignment> {
    Ok(Assignment {
        attempt: row.attempt()?,
        participant: ParticipantId(row.uuid("participant")?),
        state: row.named("state")?,
        state_since: row.time("state_since")?,
        detail: row.optional_text("detail")?,
        dropped_in: row.optional_named("dropped_in")?,
        assigned_at: row.time("assigned_at")?,
        group: row.optional_small("cohort_group")?,
    })
}
