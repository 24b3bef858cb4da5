//! Assignments: the cohort of a round, and the state of each member.

use federation::advance::Tally;
use federation::groups::GroupTally;
use federation::id::{Attempt, ParticipantId, RoundKey, TaskId};
use federation::round::{Assignment, AssignmentState, RoundState};
use federation::time::Timestamp;

use super::session_message::MessageKind;
use crate::driver::{After, Bind, FromRow, Row};
use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

/// A state that an assignment entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentChange {
    pub state: AssignmentState,
    pub at: Timestamp,
    /// The participant's reason or a code.
    pub detail: Option<String>,
}

columns!(Assignment { attempt, participant, state, state_since, detail, dropped_in, assigned_at, group: cohort_group });
columns!(AssignmentChange { state, at, detail });

/// The columns of assignments `?1`, as [`place`] binds them.
macro_rules! places {
    () => {
        "{?1 task:bytes number:integer attempt:integer participant:bytes state:text state_since:integer detail:text
             assigned_at:integer dropped_in:text cohort_group:integer} AS place"
    };
}

fn place(assignment: &Assignment) -> impl Bind {
    let Assignment { attempt, participant, state, state_since, ref detail, assigned_at, dropped_in, group } =
        *assignment;
    (attempt, participant, state, state_since, detail, assigned_at, dropped_in, group)
}

impl Transaction<'_> {
    /// Stores a cohort, with the first history entry of each assignment, and counts the participations.
    ///
    /// # Errors
    /// `Conflict` if an assignment already exists, or its round or participant does not.
    pub async fn insert_assignments(&mut self, assignments: &[Assignment]) -> Result<()> {
        let rows: &Vec<_> = &assignments.iter().map(place).collect();
        self.change_all(
            concat!(
                "INSERT INTO assignment (task, number, attempt, participant, state, state_since, detail, assigned_at,
                                         dropped_in, cohort_group)
                 SELECT * FROM ",
                places!()
            ),
            rows,
        )
        .await?;
        self.change_all(
            concat!(
                "INSERT INTO assignment_change (task, number, attempt, participant, state, at, detail)
                 SELECT task, number, attempt, participant, state, state_since, detail FROM ",
                places!()
            ),
            rows,
        )
        .await?;
        self.change_all(
            concat!(
                "INSERT INTO participation (task, participant, count, last_number, last_at)
                 SELECT task, participant, 1, number, assigned_at FROM ",
                places!(),
                " WHERE true ON CONFLICT (task, participant) DO UPDATE
                 SET count = participation.count + 1, last_number = excluded.last_number, last_at = excluded.last_at"
            ),
            rows,
        )
        .await
    }

    /// One participant's place in an attempt.
    pub async fn assignment(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<Assignment>> {
        self.find(
            "SELECT * FROM assignment WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
            (attempt, participant),
        )
        .await
    }

    /// The rounds that accepted an update of the participant, without those that ended without a version: task, number, attempt and, of a
    /// completed round, the published version; by task and number.
    pub async fn contributions(&mut self, participant: ParticipantId) -> Result<Vec<(TaskId, u32, u32, Option<u32>)>> {
        self.list(
            "SELECT place.task, place.number, place.attempt, round.model_version
             FROM participation
             CROSS JOIN assignment AS place
                ON place.task = participation.task AND place.participant = participation.participant
             CROSS JOIN round
                ON round.task = place.task AND round.number = place.number AND round.attempt = place.attempt
             WHERE participation.participant = ?1 AND place.state = 'REPORTED' AND round.state NOT IN ('FAILED', 'CANCELLED')
             ORDER BY place.task, place.number",
            participant,
        )
        .await
    }

    /// The cohort of an attempt, in the order of participants' ids.
    pub async fn assignments(
        &mut self,
        attempt: Attempt,
        cursor: Option<ParticipantId>,
        limit: u32,
    ) -> Result<Vec<Assignment>> {
        self.list(
            "SELECT * FROM assignment
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant > ?4
             ORDER BY participant LIMIT ?5",
            (attempt, After(cursor), limit),
        )
        .await
    }

    /// Participants that gave up a place in round `from` or later, since `since`, with a detail like this pattern, and
    /// without a report in such a round after that.
    pub async fn refusing(
        &mut self,
        task: TaskId,
        from: u32,
        since: Timestamp,
        detail: &str,
    ) -> Result<Vec<ParticipantId>> {
        self.list(
            "SELECT participant FROM assignment WHERE task = ?1 AND number >= ?2
             GROUP BY participant
             HAVING max(CASE WHEN state = 'ABANDONED' AND state_since >= ?3 AND detail LIKE ?4 THEN state_since END)
                  > coalesce(max(CASE WHEN state = 'REPORTED' THEN state_since END), 0)",
            (task, from, since, detail),
        )
        .await
    }

    /// The places of these participants in an attempt, of those that have one, in the order of ids.
    pub async fn assignments_of(
        &mut self,
        attempt: Attempt,
        participants: &[ParticipantId],
    ) -> Result<Vec<Assignment>> {
        self.list_of(
            participants.len(),
            "SELECT * FROM assignment
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant IN {?4 participant:bytes}
             ORDER BY participant",
            (attempt, participants),
        )
        .await
    }

    /// The assignment in which a round still needs this participant; the oldest if there are several. The round is
    /// SHARING or COLLECTING and the participant has not reported. Or the attempt has a session, the participant has
    /// reported and has not dropped out, and its UNMASKING message, the last one required, is missing.
    pub async fn pending_assignment(&mut self, participant: ParticipantId) -> Result<Option<Assignment>> {
        self.find("SELECT * FROM pending_place WHERE participant = ?1 ORDER BY assigned_at, task LIMIT 1", participant)
            .await
    }

    /// Changes the state if it is one of `from` now, and writes history. False if it was not. A participant that drops out
    /// this way does so in the current state of the round.
    pub async fn set_assignment_state(
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
                "UPDATE assignment
                 SET state = ?5, state_since = ?6, detail = ?7,
                     dropped_in = CASE ?9 WHEN 1 THEN (SELECT state FROM round
                                                       WHERE task = ?1 AND number = ?2 AND attempt = ?3
                                                         AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))
                                  ELSE dropped_in END
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4
                   AND state IN {?8 state:text}",
                (attempt, participant, to, at, detail, from, to.is_dropped()),
            )
            .await?;
        if changed {
            self.must_change_one(
                "INSERT INTO assignment_change (task, number, attempt, participant, state, at, detail)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                (attempt, participant, to, at, detail),
            )
            .await?;
        }
        Ok(changed)
    }

    /// Changes the states of places that are in one of `from` now, and writes history; returns their number. Only for states
    /// of participants that stay in their rounds.
    pub async fn set_assignment_states(
        &mut self,
        places: &[(Attempt, ParticipantId)],
        from: &[AssignmentState],
        to: AssignmentState,
        at: Timestamp,
    ) -> Result<u32> {
        if to.is_dropped() {
            return Err(StoreError::fault(format!("several participants at once are {to}")));
        }
        self.change_of(
            places.len(),
            "INSERT INTO assignment_change (task, number, attempt, participant, state, at, detail)
             SELECT place.task, place.number, place.attempt, place.participant, ?3, ?4, NULL
             FROM {?1 task:bytes number:integer attempt:integer participant:bytes} AS named
             CROSS JOIN assignment AS place
                ON place.task = named.task AND place.number = named.number AND place.attempt = named.attempt
               AND place.participant = named.participant
             WHERE place.state IN {?2 state:text}",
            (places, from, to, at),
        )
        .await?;
        self.change_of(
            places.len(),
            "UPDATE assignment SET state = ?3, state_since = ?4, detail = NULL
             FROM {?1 task:bytes number:integer attempt:integer participant:bytes} AS named
             WHERE assignment.task = named.task AND assignment.number = named.number
               AND assignment.attempt = named.attempt AND assignment.participant = named.participant
               AND assignment.state IN {?2 state:text}",
            (places, from, to, at),
        )
        .await
    }

    /// Changes the state of all participants that have not reported, writes history, and returns their number. LATE
    /// participants dropped out in COLLECTING, whether the round has left that state already or is about to, or in
    /// SHARING if the round is there.
    pub async fn set_pending_assignments(
        &mut self,
        attempt: Attempt,
        to: AssignmentState,
        at: Timestamp,
    ) -> Result<u32> {
        self.change_all(
            "INSERT INTO assignment_change (task, number, attempt, participant, state, at)
             SELECT task, number, attempt, participant, ?4, ?5 FROM assignment
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state IN ('ASSIGNED', 'WORKING')
             ORDER BY participant",
            (attempt, to, at),
        )
        .await?;
        self.change(
            "UPDATE assignment
             SET state = ?4, state_since = ?5, detail = NULL,
                 dropped_in = CASE ?6 WHEN 1 THEN (SELECT CASE state WHEN 'SHARING' THEN state ELSE 'COLLECTING' END
                                                   FROM round WHERE task = ?1 AND number = ?2 AND attempt = ?3)
                              ELSE dropped_in END
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state IN ('ASSIGNED', 'WORKING')",
            (attempt, to, at, to.is_dropped()),
        )
        .await
    }

    /// Stops waiting for this participant: changes every assignment that it has not reported for to REVOKED, and writes
    /// history. In every other [`Transaction::pending_assignment`], where its input is in the sum, records that it
    /// dropped out in the round's state, or in CONFIRMING if the state is still COLLECTING. Returns the rounds
    /// concerned.
    pub async fn revoke_pending(&mut self, participant: ParticipantId, at: Timestamp) -> Result<Vec<RoundKey>> {
        let pending: Vec<Assignment> = self
            .list(
                "SELECT * FROM assignment WHERE participant = ?1 AND state IN ('ASSIGNED', 'WORKING')
                 UNION ALL SELECT * FROM pending_place WHERE participant = ?1 AND state = 'REPORTED'",
                participant,
            )
            .await?;
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

    /// Records that all participants that `phase` still waits for (see [`Transaction::tally`]), and all in the excluded
    /// `groups`, dropped out, unless they did before; returns their number. Those that have not reported become LATE,
    /// with history; the others stay REPORTED. A late input takes at least the time waited
    /// ([`Candidate::duration_ms`](federation::cohort::Candidate::duration_ms)).
    pub async fn drop_missing(
        &mut self,
        attempt: Attempt,
        phase: RoundState,
        groups: &[u32],
        at: Timestamp,
    ) -> Result<u32> {
        let missing = (attempt, phase, at, groups);
        self.change_all(
            "INSERT INTO assignment_change (task, number, attempt, participant, state, at)
             SELECT task, number, attempt, participant, 'LATE', ?5 FROM assignment
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state IN ('ASSIGNED', 'WORKING')
               AND (cohort_group IN {?6 number:integer}
                    OR participant IN (SELECT participant FROM unanswered
                                       WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND phase = ?4))
             ORDER BY participant",
            &missing,
        )
        .await?;
        // A lower bound on their durations.
        self.change_all(
            "UPDATE participation
             SET last_duration_ms = CASE WHEN last_duration_ms > ?5 - assigned_at THEN last_duration_ms
                                         WHEN ?5 > assigned_at THEN ?5 - assigned_at ELSE 0 END
             FROM assignment
             WHERE assignment.task = ?1 AND assignment.number = ?2 AND assignment.attempt = ?3
               AND participation.task = ?1 AND participation.participant = assignment.participant
               AND assignment.participant IN (SELECT participant FROM unanswered
                                              WHERE task = ?1 AND number = ?2 AND attempt = ?3
                                                AND phase = ?4 AND phase = 'COLLECTING')",
            (attempt, phase, at),
        )
        .await?;
        self.change(
            "UPDATE assignment
             SET dropped_in = ?4,
                 state_since = CASE state WHEN 'REPORTED' THEN state_since ELSE ?5 END,
                 detail = CASE state WHEN 'REPORTED' THEN detail END,
                 state = CASE state WHEN 'REPORTED' THEN state ELSE 'LATE' END
             WHERE task = ?1 AND number = ?2 AND attempt = ?3
               AND state IN ('ASSIGNED', 'WORKING', 'REPORTED') AND dropped_in IS NULL
               AND (cohort_group IN {?6 number:integer}
                    OR participant IN (SELECT participant FROM unanswered
                                       WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND phase = ?4))",
            missing,
        )
        .await
    }

    /// Records that a participant which has reported dropped out in `phase`. False if it has not reported, or dropped out
    /// before.
    pub async fn set_dropped(
        &mut self,
        attempt: Attempt,
        participant: ParticipantId,
        phase: RoundState,
    ) -> Result<bool> {
        self.change_one(
            "UPDATE assignment SET dropped_in = ?5
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4
               AND state = 'REPORTED' AND dropped_in IS NULL",
            (attempt, participant, phase),
        )
        .await
    }

    /// The facts about an attempt that rows contain, except `eligible`, which is 0: it depends on the task's
    /// requirements. Who is waited for depends on the attempt's state:
    ///
    /// | State | `answered` | `pending` |
    /// |---|---|---|
    /// | SHARING | SHARES messages | has not reported, and sent no SHARES message |
    /// | COLLECTING | 0 | has not reported |
    /// | CONFIRMING | CONSISTENCY messages | reported, did not drop out, and sent no CONSISTENCY message |
    /// | UNMASKING | UNMASKING messages | reported, did not drop out, sent a CONSISTENCY but no UNMASKING message |
    /// | any other | 0 | 0 |
    pub async fn tally(&mut self, attempt: Attempt) -> Result<Tally> {
        let phase = self.state_of_round(attempt).await?;
        let (pending, answered, reported, published) = self
            .get(
                "SELECT (SELECT count(*) FROM unanswered
                         WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND phase = ?4),
                        (SELECT count(*) FROM session_message
                         WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?5),
                        (SELECT count(*) FROM assignment
                         WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND state = 'REPORTED'),
                        EXISTS (SELECT 1 FROM model_version WHERE task = ?1 AND round = ?2)",
                (attempt, phase, phase.and_then(answer_to)),
            )
            .await?;
        Ok(Tally { eligible: 0, pending, answered, reported, published })
    }

    /// The same for each group of a cohort that is divided, in their order: pending members, members that answered, members that
    /// reported, and senders of a COMPLAINT message. Empty for an undivided cohort.
    pub async fn group_tallies(&mut self, attempt: Attempt) -> Result<Vec<GroupTally>> {
        let phase = self.state_of_round(attempt).await?;
        self.list(
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
            (attempt, phase, phase.and_then(answer_to)),
        )
        .await
    }

    /// The last COMPLETED attempt of the task for which this participant is REPORTED: whose sum holds its input.
    pub async fn last_counted(&mut self, task: TaskId, participant: ParticipantId) -> Result<Option<Attempt>> {
        // Searches from the last round backwards, and stops at the first match.
        self.find(
            "SELECT a.task, a.number, a.attempt FROM round AS r CROSS JOIN assignment AS a
               ON a.task = r.task AND a.number = r.number AND a.attempt = r.attempt AND a.participant = ?2
             WHERE r.task = ?1 AND r.state = 'COMPLETED' AND a.state = 'REPORTED'
             ORDER BY r.number DESC, r.attempt DESC LIMIT 1",
            (task, participant),
        )
        .await
    }
}

impl Transaction<'_> {
    pub(super) async fn state_of_round(&mut self, attempt: Attempt) -> Result<Option<RoundState>> {
        self.find("SELECT state FROM round WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }
}

impl FromRow for GroupTally {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (pending, answered, reported) = (row.get("pending")?, row.get("answered")?, row.get("reported")?);
        let tally = Tally { pending, answered, reported, ..Tally::default() };
        Ok(Self { tally, complaints: row.get("complaints")? })
    }
}

/// The kind of message that answers a phase.
pub(super) fn answer_to(phase: RoundState) -> Option<MessageKind> {
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
