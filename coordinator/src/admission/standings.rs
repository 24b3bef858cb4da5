//! Validates a batch of facts against rows read at once, and against earlier facts of the batch.

use std::collections::{BTreeMap, HashMap};

use federation::id::{Attempt, Digest, ParticipantId};
use federation::round::{AssignmentState, RoundState};
use store::entity::admitted::Admitted;
use store::entity::session_message::{MessageKind, SessionMessage};
use store::entity::standing::ParticipantStatus;
use store::{StoreError, Transaction};

use super::gate::{Rejection, may_answer, open, same};

/// States in which a round waits for the participant's input.
pub(super) const EXPECTED: [AssignmentState; 2] = [AssignmentState::Assigned, AssignmentState::Working];

/// The standing of the senders of a batch's facts.
#[derive(Default)]
pub(super) struct Standings(HashMap<(Attempt, ParticipantId), KnownStanding>);

#[derive(Default)]
struct KnownStanding {
    standing: ParticipantStatus,
    /// The requested messages, by kind.
    messages: BTreeMap<MessageKind, Digest>,
}

/// Whether a fact must be written.
pub(super) enum Judged<T> {
    /// New: write it, and return this.
    New(T),
    /// Accepted before: return the same again without writing.
    Known(T),
}

impl Standings {
    /// Reads the standing of these participants, and their messages of that kind.
    pub(super) async fn read(
        tx: &mut Transaction<'_>,
        asked: Vec<(Attempt, ParticipantId, MessageKind)>,
    ) -> Result<Self, StoreError> {
        if asked.is_empty() {
            return Ok(Self::default());
        }
        let found = tx.standings(&asked).await?;
        let mut known: HashMap<_, KnownStanding> = HashMap::with_capacity(asked.len());
        for ((attempt, participant, kind), standing) in asked.into_iter().zip(found) {
            let entry = known.entry((attempt, participant)).or_default();
            if let Some(message) = standing.message {
                entry.messages.insert(kind, message);
            }
            entry.standing = standing;
        }
        Ok(Self(known))
    }

    /// Validates an input; later facts of the batch see an accepted one.
    pub(super) fn input(&mut self, input: Admitted) -> Result<Judged<Admitted>, Rejection> {
        let known = self.0.entry((input.attempt, input.participant)).or_default();
        let standing = &mut known.standing;
        if let Some(earlier) = standing.admitted {
            same(&earlier, input.sha256)?;
            return Ok(Judged::Known(earlier));
        }
        let round = standing.round.as_ref().ok_or(Rejection::NoSuchRound)?;
        let closed = open(round.state, RoundState::Collecting);
        if closed.is_ok() && known.messages.contains_key(&MessageKind::Complaint) {
            return Err(Rejection::NotAssigned { why: "it complained, and sends no input in this session" });
        }
        if closed.is_err() || !standing.place.is_some_and(|place| EXPECTED.contains(&place)) {
            // Its own assignment is more specific than the round's state.
            may_answer(standing.place)?;
            closed?;
            return Err(Rejection::NotAssigned { why: "the round does not wait for it any more" });
        }
        (standing.place, standing.admitted) = (Some(AssignmentState::Reported), Some(input));
        Ok(Judged::New(input))
    }

    /// Validates an answer to a phase, accepted in state `wanted`; the first of its kind is final.
    pub(super) fn answer(&mut self, message: &SessionMessage, wanted: RoundState) -> Result<Judged<()>, Rejection> {
        let &SessionMessage { attempt, kind, participant, sha256, .. } = message;
        let known = self.0.entry((attempt, participant)).or_default();
        // A repeated request gets the same answer, also after the round has continued.
        if let Some(earlier) = known.messages.get(&kind) {
            return if *earlier == sha256 { Ok(Judged::Known(())) } else { Err(Rejection::DifferentMessage) };
        }
        let standing = &known.standing;
        let round = standing.round.as_ref().ok_or(Rejection::NoSuchRound)?;
        may_answer(standing.place)?;
        open(round.state, wanted)?;
        if kind == MessageKind::Complaint && standing.admitted.is_some() {
            return Err(Rejection::NotAssigned { why: "it sent its input, so what was dealt to it opened" });
        }
        known.messages.insert(kind, sha256);
        Ok(Judged::New(()))
    }
}
