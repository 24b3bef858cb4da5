//! Judges a batch of facts against rows that were read at once, and against what the batch itself accepts.

use std::collections::{BTreeMap, HashMap};

use federation::id::{Attempt, Digest, ParticipantId};
use federation::round::{AssignmentState, RoundState};
use store::entity::admitted::Admitted;
use store::entity::session_message::{MessageKind, SessionMessage};
use store::entity::standing::Standing;
use store::{StoreError, Transaction};

use super::gate::{Rejection, may_answer, open, same};

/// States of those whose input a round waits for.
pub(super) const EXPECTED: [AssignmentState; 2] = [AssignmentState::Assigned, AssignmentState::Working];

/// Where the senders of a batch's facts stand.
#[derive(Default)]
pub(super) struct Standings(HashMap<(Attempt, ParticipantId), KnownStanding>);

#[derive(Default)]
struct KnownStanding {
    standing: Standing,
    /// By kind, of those that were asked for.
    messages: BTreeMap<MessageKind, Digest>,
}

/// Whether a fact is to be written.
pub(super) enum Judged<T> {
    /// Nothing like it is stored: write it, and answer with this.
    New(T),
    /// It was accepted before: answer the same again, and write nothing.
    Known(T),
}

impl Standings {
    /// Reads where these participants stand, and their messages of that kind.
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

    /// Judges an input; an accepted one counts for what is judged after it.
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
            // Its own place says more than the round's state.
            may_answer(standing.place)?;
            closed?;
            return Err(Rejection::NotAssigned { why: "the round does not wait for it any more" });
        }
        (standing.place, standing.admitted) = (Some(AssignmentState::Reported), Some(input));
        Ok(Judged::New(input))
    }

    /// Judges an answer to a phase, which the round takes while it is in state `wanted`; the first of its kind stays.
    pub(super) fn answer(&mut self, message: &SessionMessage, wanted: RoundState) -> Result<Judged<()>, Rejection> {
        let &SessionMessage { attempt, kind, participant, sha256, .. } = message;
        let known = self.0.entry((attempt, participant)).or_default();
        // Whoever asks again gets the same answer, also when the round has gone on.
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
