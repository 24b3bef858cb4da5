//! The standing of participants in attempts, in one statement for all. It decides whether their answers count.

use federation::id::{Attempt, Digest, ParticipantId};
use federation::round::{AssignmentState, Round};

use super::admitted::Admitted;
use super::session_message::MessageKind;
use crate::driver::{FromRow, Row};
use crate::error::Result;
use crate::transaction::Transaction;

/// Where a participant stands in an attempt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParticipantStatus {
    /// `None` if the attempt does not exist.
    pub round: Option<Round>,
    /// The state of its place; `None` if it is outside the cohort.
    pub place: Option<AssignmentState>,
    pub admitted: Option<Admitted>,
    /// SHA-256 of its message of the requested kind, if it sent one.
    pub message: Option<Digest>,
}

impl Transaction<'_> {
    /// Where each of these participants stands, in the same order, with its message of that kind.
    pub async fn standings(
        &mut self,
        asked: &[(Attempt, ParticipantId, MessageKind)],
    ) -> Result<Vec<ParticipantStatus>> {
        let rows = (0_u32..)
            .zip(asked)
            .map(|(position, &(attempt, participant, kind))| (position, attempt, participant, kind));
        self.list_of(
            asked.len(),
            "SELECT round.*, asked.participant, place.state AS place, input.sha256, input.bytes, input.accepted_at,
                    input.folded, message.sha256 AS message
             FROM {?1 position:integer task:bytes number:integer attempt:integer participant:bytes kind:text} AS asked
             LEFT JOIN round
                    ON round.task = asked.task AND round.number = asked.number AND round.attempt = asked.attempt
             LEFT JOIN assignment AS place
                    ON place.task = asked.task AND place.number = asked.number AND place.attempt = asked.attempt
                   AND place.participant = asked.participant
             LEFT JOIN admitted AS input
                    ON input.task = asked.task AND input.number = asked.number AND input.attempt = asked.attempt
                   AND input.participant = asked.participant
             LEFT JOIN session_message AS message
                    ON message.task = asked.task AND message.number = asked.number AND message.attempt = asked.attempt
                   AND message.participant = asked.participant AND message.kind = asked.kind
             ORDER BY asked.position",
            rows.collect::<Vec<_>>(),
        )
        .await
    }

    /// Where one participant stands.
    pub async fn standing(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<ParticipantStatus> {
        let found = self.standings(&[(attempt, participant, MessageKind::Input)]).await?;
        Ok(found.into_iter().next().unwrap_or_default())
    }
}

impl FromRow for ParticipantStatus {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let is_there = row.get::<Option<u32>>("attempt")?.is_some();
        let has_input = row.get::<Option<Digest>>("sha256")?.is_some();
        Ok(Self {
            round: is_there.then(|| Round::from_row(row)).transpose()?,
            place: row.get("place")?,
            admitted: has_input.then(|| Admitted::from_row(row)).transpose()?,
            message: row.get("message")?,
        })
    }
}
