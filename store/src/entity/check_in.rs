//! Check-ins: participants that are ready to work.

use bytes::Bytes;
use federation::cohort::{Candidate, CoarseLoss};
use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::time::Timestamp;
use federation::training::Claim;

use crate::driver::{FromRow, Row};
use crate::error::Result;
use crate::transaction::Transaction;

/// A participant that is ready to work on a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckIn {
    pub participant: ParticipantId,
    pub task: TaskId,
    /// Reported number of training examples; at most `i64::MAX`.
    pub examples: u64,
    pub checked_in_at: Timestamp,
    /// When it stops counting as ready.
    pub expires_at: Timestamp,
    pub loss: Option<CoarseLoss>,
    /// Its keys for the next attempt. `None` keeps earlier ones.
    pub keys: Option<CheckInKeys>,
    /// Its report on the training it was given ahead of rounds.
    pub training: Option<Claim>,
    /// Reported round-trip time of its connection, in milliseconds, if it matters.
    pub round_trip_ms: Option<u32>,
    /// The latest round for which it reports a sent input, if it declines the next one for that reason.
    pub sent_round: Option<u32>,
    /// Code of the reason for which the participant refuses the task. If set, it is not a candidate.
    pub refusal: Option<&'static str>,
    /// The fixed batch that it reports; not proven.
    pub batch: Option<Digest>,
}

impl CheckIn {
    /// A check-in with only the number of examples.
    #[must_use]
    pub fn new(
        participant: ParticipantId,
        task: TaskId,
        examples: u64,
        checked_in_at: Timestamp,
        expires_at: Timestamp,
    ) -> Self {
        Self {
            participant,
            task,
            examples,
            checked_in_at,
            expires_at,
            loss: None,
            keys: None,
            training: None,
            round_trip_ms: None,
            sent_round: None,
            refusal: None,
            batch: None,
        }
    }
}

/// A participant's keys for one attempt of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckInKeys {
    /// The attempt, at a round of the check-in's task.
    pub attempt: Attempt,
    /// The public keys as the participant sent them; at most 4096 bytes.
    pub advertisement: Bytes,
}

/// Participants ready for task `?1` at `?2`, for lists and counts. The pending places are read once, from the open rounds on:
/// `NOT EXISTS` may read them once for each check-in.
macro_rules! ready {
    () => {
        " WHERE check_in.task = ?1 AND check_in.expires_at > ?2 AND check_in.refusal IS NULL AND participant.revoked_at IS NULL
            AND check_in.participant NOT IN
                (SELECT place.participant FROM round CROSS JOIN pending_place AS place
                     ON place.task = round.task AND place.number = round.number AND place.attempt = round.attempt
                 WHERE round.state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))"
    };
}

/// With keys for attempt `?4` of round `?3`.
macro_rules! keyed {
    () => {
        " AND check_in.keys_round = ?3 AND check_in.keys_attempt = ?4"
    };
}

/// Number of candidates for task `?1` at `?2`, with additional conditions.
macro_rules! candidate_count {
    ($conditions:expr) => {
        concat!(
            "SELECT count(*) FROM check_in JOIN participant ON participant.id = check_in.participant",
            ready!(),
            $conditions
        )
    };
}

/// Candidates for task `?1` at `?2`, with additional columns and conditions.
macro_rules! candidates {
    ($columns:literal, $conditions:expr) => {
        concat!(
            "SELECT check_in.participant, participant.labels, check_in.examples,
                    coalesce(participation.count, 0) AS participations, last_number, last_at,
                    check_in.loss, last_duration_ms, round_trip_ms",
            $columns,
            " FROM check_in
             JOIN participant ON participant.id = check_in.participant
             LEFT JOIN participation ON participation.task = check_in.task
                                    AND participation.participant = check_in.participant",
            ready!(),
            $conditions,
            " ORDER BY participant.name"
        )
    };
}

impl Transaction<'_> {
    /// Stores check-ins. A newer one of the same participant and task replaces the older, but keeps its keys unless it
    /// brings its own.
    ///
    /// # Errors
    /// `Conflict` if a participant or task does not exist, or keys are too long.
    pub async fn upsert_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()> {
        let rows = check_ins.iter().map(|check_in| {
            let keys = check_in.keys.as_ref();
            let examples = check_in.examples.min(i64::MAX.unsigned_abs());
            (
                (check_in.task, check_in.participant, examples, check_in.checked_in_at, check_in.expires_at),
                keys.map(|keys| keys.attempt.round),
                keys.map(|keys| keys.attempt.attempt),
                keys.map(|keys| &keys.advertisement),
                check_in.loss,
                check_in.training.map(|claim| claim.serial),
                (check_in.training.map(|claim| claim.is_ready), check_in.round_trip_ms),
                (check_in.sent_round, check_in.refusal, check_in.batch),
            )
        });
        self.change_all(
            "INSERT INTO check_in (task, participant, examples, checked_in_at, expires_at,
                                   keys_round, keys_attempt, keys, loss, training, is_ready, round_trip_ms, sent_round,
                                   refusal, batch)
             SELECT * FROM {?1 task:bytes participant:bytes examples:integer checked_in_at:integer expires_at:integer
                            keys_round:integer keys_attempt:integer keys:bytes loss:integer training:integer
                            is_ready:integer round_trip_ms:integer sent_round:integer refusal:text batch:bytes} AS new
             WHERE true
             ON CONFLICT (task, participant) DO UPDATE
             SET examples = excluded.examples, checked_in_at = excluded.checked_in_at,
                 expires_at = excluded.expires_at, loss = excluded.loss, training = excluded.training,
                 is_ready = excluded.is_ready, round_trip_ms = excluded.round_trip_ms,
                 sent_round = excluded.sent_round, refusal = excluded.refusal, batch = excluded.batch,
                 keys_round = coalesce(excluded.keys_round, check_in.keys_round),
                 keys_attempt = coalesce(excluded.keys_attempt, check_in.keys_attempt),
                 keys = coalesce(excluded.keys, check_in.keys)",
            rows.collect::<Vec<_>>(),
        )
        .await
    }

    /// Extends existing check-ins: those of the same participant and task get this time, and this expiry if it is
    /// later. Removed ones are not restored.
    ///
    /// # Errors
    /// The database's.
    pub async fn renew_check_ins(&mut self, check_ins: &[CheckIn]) -> Result<()> {
        let row = |it: &CheckIn| (it.task, it.participant, it.checked_in_at, it.expires_at);
        self.change_all(
            "UPDATE check_in SET checked_in_at = renewed.checked_in_at, expires_at = renewed.expires_at
             FROM {?1 task:bytes participant:bytes checked_in_at:integer expires_at:integer} AS renewed
             WHERE check_in.task = renewed.task AND check_in.participant = renewed.participant
               AND check_in.expires_at < renewed.expires_at",
            check_ins.iter().map(row).collect::<Vec<_>>(),
        )
        .await
    }

    /// Ends check-ins at `now`, each only if its row was last written at the same time as this one: a later one, perhaps of
    /// another coordinator, stays.
    ///
    /// # Errors
    /// The database's.
    pub async fn end_check_ins(&mut self, check_ins: &[CheckIn], now: Timestamp) -> Result<()> {
        let row = |it: &CheckIn| (it.task, it.participant, it.checked_in_at);
        self.change_all(
            "UPDATE check_in SET expires_at = ?2, loss = NULL
             FROM {?1 task:bytes participant:bytes checked_in_at:integer} AS gone
             WHERE check_in.task = gone.task AND check_in.participant = gone.participant
               AND check_in.checked_in_at = gone.checked_in_at",
            (check_ins.iter().map(row).collect::<Vec<_>>(), now),
        )
        .await
    }

    /// Number of [`Transaction::candidates`].
    pub async fn candidate_count(&mut self, task: TaskId, now: Timestamp) -> Result<u32> {
        self.get(candidate_count!(""), (task, now)).await
    }

    /// How many [`Transaction::keyed_candidates`] there are.
    pub async fn keyed_candidate_count(&mut self, attempt: Attempt, now: Timestamp) -> Result<u32> {
        self.get(candidate_count!(keyed!()), (attempt.task, now, attempt.round, attempt.attempt)).await
    }

    /// The participants checked in for the task at `now`, with their history in it, ordered by name, without those that
    /// are revoked or that a round still waits for: see [`Transaction::pending_assignment`].
    pub async fn candidates(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<Candidate>> {
        self.list(candidates!("", ""), (task, now)).await
    }

    /// Of the [`Transaction::candidates`] those whose keys are for this attempt, with the keys' advertisements.
    pub async fn keyed_candidates(&mut self, attempt: Attempt, now: Timestamp) -> Result<Vec<(Candidate, Bytes)>> {
        let arguments = (attempt.task, now, attempt.round, attempt.attempt);
        self.list(candidates!(", check_in.keys", keyed!()), arguments).await
    }

    /// The fixed batches that participants checked in for the task at `now` report.
    pub async fn reported_batches(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<(ParticipantId, Digest)>> {
        self.list(
            "SELECT participant, batch FROM check_in WHERE task = ?1 AND expires_at > ?2 AND batch IS NOT NULL",
            (task, now),
        )
        .await
    }

    /// How many are checked in for the task at `now`, as [`Transaction::candidates`] has them; with `keys_for`, those
    /// whose keys are for that attempt.
    pub async fn count_checked_in(&mut self, task: TaskId, keys_for: Option<Attempt>, now: Timestamp) -> Result<u32> {
        match keys_for {
            Some(attempt) => self.keyed_candidate_count(attempt, now).await,
            None => self.candidate_count(task, now).await,
        }
    }

    /// Reason codes in ascending order, each with the number of checked-in participants at `now` that refuse the task for it.
    pub async fn refusals(&mut self, task: TaskId, now: Timestamp) -> Result<Vec<(String, u32)>> {
        self.list(
            "SELECT check_in.refusal, count(*) FROM check_in JOIN participant ON participant.id = check_in.participant
             WHERE check_in.task = ?1 AND check_in.expires_at > ?2 AND check_in.refusal IS NOT NULL
               AND participant.revoked_at IS NULL
             GROUP BY check_in.refusal ORDER BY check_in.refusal",
            (task, now),
        )
        .await
    }

    /// Takes back a participant's keys for an attempt, so that it is not drawn by them. Returns false and keeps the
    /// keys if a round needs the participant already.
    pub async fn release_keys(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<bool> {
        if self.pending_assignment(participant).await?.is_some() {
            return Ok(false);
        }
        self.change(
            "UPDATE check_in SET keys_round = NULL, keys_attempt = NULL, keys = NULL
             WHERE task = ?1 AND participant = ?2 AND keys_round = ?3 AND keys_attempt = ?4",
            (attempt.task, participant, attempt.round, attempt.attempt),
        )
        .await?;
        Ok(true)
    }

    /// The rounds of [`CheckIn::sent_round`] that the task has not reached when its next one is `next`.
    pub async fn sent_rounds_from(&mut self, task: TaskId, next: u32) -> Result<Vec<u32>> {
        self.list("SELECT sent_round FROM check_in WHERE task = ?1 AND sent_round >= ?2", (task, next)).await
    }

    /// Removes every check-in of these participants.
    pub async fn remove_check_ins(&mut self, participants: &[ParticipantId]) -> Result<()> {
        self.change_all("DELETE FROM check_in WHERE participant IN {?1 participant:bytes}", participants).await
    }

    /// Removes check-ins that have expired by `now`; returns their number.
    pub async fn expire_check_ins(&mut self, now: Timestamp) -> Result<u32> {
        self.change("DELETE FROM check_in WHERE expires_at <= ?1", now).await
    }
}

columns!(CheckInKeys { attempt, advertisement: keys });

impl FromRow for Candidate {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            participant: row.get("participant")?,
            labels: row.get("labels")?,
            examples: row.get("examples")?,
            participations: row.get("participations")?,
            last: row.get::<Option<_>>("last_number")?.zip(row.get("last_at")?),
            loss: row.get("loss")?,
            duration_ms: row.get("last_duration_ms")?,
            round_trip_ms: row.get("round_trip_ms")?,
        })
    }
}

impl FromRow for (Candidate, Bytes) {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok((Candidate::from_row(row)?, row.get("keys")?))
    }
}
