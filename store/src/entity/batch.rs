//! Draws of fixed batches, and the batches of cohorts.

use bytes::Bytes;
use federation::batches::BatchTally;
use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::round::{AssignmentState, RoundState};
use federation::time::Timestamp;
use uuid::Uuid;

use super::assignment::answer_to;
use crate::error::Result;
use crate::transaction::Transaction;

/// A draw that divides participants into batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchDraw {
    pub id: Uuid,
    /// The task whose participants are drawn.
    pub task: TaskId,
    /// Number of members of each batch.
    pub size: u32,
    pub opened_at: Timestamp,
    /// Deadline of the offers until the pool is fixed, then of the reveals.
    pub deadline_at: Timestamp,
    /// Encoded `secure_agg::batch::draw::Pool`; `None` until the pool is fixed.
    pub pool: Option<Bytes>,
    /// Encoded `secure_agg::batch::draw::Drawn`; `None` until the whole pool has revealed.
    pub drawn: Option<Bytes>,
    /// Whether the draw ended without a result.
    pub failed: bool,
}

/// A participant's offer in a draw, and its nonce once revealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOffer {
    pub draw: Uuid,
    pub participant: ParticipantId,
    /// Time at which the participant last sent the offer.
    pub offered_at: Timestamp,
    pub offer: Bytes,
    pub reveal: Option<Bytes>,
}

record!("batch_draw", BatchDraw { id, task, size, opened_at, deadline_at, pool, drawn, failed });
record!("batch_offer", BatchOffer { draw, participant, offered_at, offer, reveal });
columns!(BatchTally { group: cohort_group, size, reported, pending, answered });

impl Transaction<'_> {
    /// Stores a new draw, which takes offers.
    ///
    /// # Errors
    /// `Conflict` if a draw has this id.
    pub async fn insert_batch_draw(&mut self, draw: &BatchDraw) -> Result<()> {
        self.insert(draw).await
    }

    /// The draw with this id, open or ended.
    pub async fn batch_draw(&mut self, id: Uuid) -> Result<Option<BatchDraw>> {
        self.find("SELECT * FROM batch_draw WHERE id = ?1", id).await
    }

    /// The draw for a task that takes offers; the oldest if there are several.
    pub async fn open_batch_draw(&mut self, task: TaskId) -> Result<Option<BatchDraw>> {
        self.find(
            "SELECT * FROM batch_draw WHERE task = ?1 AND pool IS NULL AND failed = 0 ORDER BY opened_at, id LIMIT 1",
            task,
        )
        .await
    }

    /// Whether participants have batches, as far as this database knows: batches were drawn, or stated by members of a cohort.
    pub async fn has_batches(&mut self) -> Result<bool> {
        self.get(
            "SELECT EXISTS (SELECT 1 FROM batch_draw WHERE drawn IS NOT NULL) OR EXISTS (SELECT 1 FROM assignment_batch)",
            (),
        )
        .await
    }

    /// Whether the task's last draw that ended lacks a result.
    pub async fn has_batch_draw_failed(&mut self, task: TaskId) -> Result<bool> {
        self.get(
            "SELECT EXISTS (SELECT 1 FROM batch_draw AS last WHERE task = ?1 AND failed = 1 AND NOT EXISTS (
                 SELECT 1 FROM batch_draw AS later
                 WHERE later.task = ?1 AND later.drawn IS NOT NULL AND later.opened_at > last.opened_at))",
            task,
        )
        .await
    }

    /// Whether a failed draw of the task, opened at `since` or later, lacks this participant's nonce.
    pub async fn has_failed_batch_draw(
        &mut self,
        participant: ParticipantId,
        task: TaskId,
        since: Timestamp,
    ) -> Result<bool> {
        self.get(
            "SELECT EXISTS (SELECT 1 FROM batch_offer AS offer JOIN batch_draw AS draw ON draw.id = offer.draw
                            WHERE offer.participant = ?1 AND offer.reveal IS NULL AND draw.task = ?2
                              AND draw.failed = 1 AND draw.opened_at >= ?3)",
            (participant, task, since),
        )
        .await
    }

    /// Stores a participant's first offer for a draw. Returns false and keeps the first one if it has made an offer.
    ///
    /// # Errors
    /// `Conflict` if the draw or the participant does not exist.
    pub async fn insert_batch_offer(&mut self, offer: &BatchOffer) -> Result<bool> {
        self.insert_if_absent(offer).await
    }

    /// Replaces a stored offer and its time, for a draw whose pool is not fixed. Returns false if the participant has
    /// made no offer.
    pub async fn replace_batch_offer(&mut self, offer: &BatchOffer) -> Result<bool> {
        self.change_one(
            "UPDATE batch_offer SET offered_at = ?3, offer = ?4 WHERE draw = ?1 AND participant = ?2",
            (offer.draw, offer.participant, offer.offered_at, &offer.offer),
        )
        .await
    }

    /// The offers of a draw, in the order in which they were last sent.
    pub async fn batch_offers(&mut self, draw: Uuid) -> Result<Vec<BatchOffer>> {
        self.list("SELECT * FROM batch_offer WHERE draw = ?1 ORDER BY offered_at, participant", draw).await
    }

    /// Number of offers for a draw.
    pub async fn batch_offer_count(&mut self, draw: Uuid) -> Result<u32> {
        self.get("SELECT count(*) FROM batch_offer WHERE draw = ?1", draw).await
    }

    /// Fixes the pool of a draw that takes offers, sets the deadline of the reveals, and deletes the offers of
    /// participants outside the pool. Returns false if the draw has stopped taking offers.
    pub async fn fix_batch_pool(
        &mut self,
        draw: Uuid,
        pool: &Bytes,
        outside: &[ParticipantId],
        deadline_at: Timestamp,
    ) -> Result<bool> {
        let is_fixed = self
            .change_one(
                "UPDATE batch_draw SET pool = ?2, deadline_at = ?3 WHERE id = ?1 AND pool IS NULL AND failed = 0",
                (draw, pool, deadline_at),
            )
            .await?;
        if is_fixed {
            for participant in outside {
                self.change("DELETE FROM batch_offer WHERE draw = ?1 AND participant = ?2", (draw, *participant))
                    .await?;
            }
        }
        Ok(is_fixed)
    }

    /// Stores a participant's nonce. Returns false and keeps the row if the nonce is stored already or the offer is
    /// missing.
    pub async fn set_batch_reveal(&mut self, draw: Uuid, participant: ParticipantId, reveal: &Bytes) -> Result<bool> {
        self.change_one(
            "UPDATE batch_offer SET reveal = ?3 WHERE draw = ?1 AND participant = ?2 AND reveal IS NULL",
            (draw, participant, reveal),
        )
        .await
    }

    /// Stores the result of a draw whose pool is fixed. Returns false if the draw has a result or has failed.
    pub async fn finish_batch_draw(&mut self, draw: Uuid, drawn: &Bytes) -> Result<bool> {
        self.change_one(
            "UPDATE batch_draw SET drawn = ?2 WHERE id = ?1 AND pool IS NOT NULL AND drawn IS NULL AND failed = 0",
            (draw, drawn),
        )
        .await
    }

    /// Ends a draw without a result. Returns false if it has ended already.
    pub async fn fail_batch_draw(&mut self, draw: Uuid) -> Result<bool> {
        self.change_one("UPDATE batch_draw SET failed = 1 WHERE id = ?1 AND drawn IS NULL AND failed = 0", draw).await
    }

    /// Stores the batches of members of a cohort.
    ///
    /// # Errors
    /// `Conflict` if a member lacks an assignment in the attempt, or has a batch already.
    pub async fn insert_assignment_batches(
        &mut self,
        attempt: Attempt,
        batches: &[(ParticipantId, Digest)],
    ) -> Result<()> {
        self.change_all(
            "INSERT INTO assignment_batch (task, number, attempt, participant, batch)
             SELECT ?1, ?2, ?3, participant, batch FROM {?4 participant:bytes batch:bytes} AS member",
            (attempt, batches),
        )
        .await
    }

    /// The progress of each batch of an attempt's cohort, in the attempt's state; see [`Transaction::tally`]. Empty for
    /// a cohort without batches.
    pub async fn batch_tallies(&mut self, attempt: Attempt) -> Result<Vec<BatchTally>> {
        let phase = self.state_of_round(attempt).await?;
        self.list(
            "SELECT min(place.cohort_group) AS cohort_group, count(*) AS size,
                    count(*) FILTER (WHERE place.state = 'REPORTED') AS reported,
                    count(*) FILTER (WHERE place.participant IN (
                        SELECT participant FROM unanswered
                        WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND phase = ?4)) AS pending,
                    count(*) FILTER (WHERE place.participant IN (
                        SELECT participant FROM session_message
                        WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?5)) AS answered
             FROM assignment_batch AS member JOIN assignment AS place USING (task, number, attempt, participant)
             WHERE task = ?1 AND number = ?2 AND attempt = ?3
             GROUP BY member.batch ORDER BY member.batch",
            (attempt, phase, phase.and_then(answer_to)),
        )
        .await
    }

    /// Takes accepted inputs out of an attempt whose collection closes without them: their senders are LATE, with
    /// history, and dropped out in COLLECTING.
    pub async fn exclude_inputs(
        &mut self,
        attempt: Attempt,
        participants: &[ParticipantId],
        at: Timestamp,
        detail: &str,
    ) -> Result<()> {
        for participant in participants {
            let (from, to) = (AssignmentState::Reported, AssignmentState::Late);
            if self.set_assignment_state(attempt, *participant, &[from], to, at, Some(detail)).await? {
                self.must_change_one(
                    "UPDATE assignment SET dropped_in = ?5
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
                    (attempt, *participant, RoundState::Collecting),
                )
                .await?;
                self.change(
                    "DELETE FROM admitted WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
                    (attempt, *participant),
                )
                .await?;
            }
        }
        Ok(())
    }
}
