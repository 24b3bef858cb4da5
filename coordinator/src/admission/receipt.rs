//! Facts, and writing a batch of them in one transaction.

use std::collections::BTreeMap;

use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId};
use federation::round::{AssignmentState, RoundState};
use federation::time::Timestamp;
use store::entity::admitted::{Admitted, Insertion};
use store::entity::check_in::CheckIn;
use store::entity::session_message::{MessageInsertion, MessageKind, SessionMessage};
use store::{StoreError, Transaction};

use super::gate::{AdmissionError, Rejection, open, place, same};

#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// It is ready to work.
    CheckIn(CheckIn),
    /// It is still ready; nothing else changed.
    StillThere(CheckIn),
    /// It is ready no more, unless it has checked in again since this was written.
    Gone(CheckIn),
    /// Its masked input is stored as a blob and should count.
    Input {
        attempt: Attempt,
        participant: ParticipantId,
        sha256: Digest,
        bytes: u64,
        /// With secure aggregation: the participant's signed message for it.
        signed: Option<Bytes>,
    },
    /// It answered a phase of secure aggregation.
    Answer {
        /// The message in its stored form.
        message: SessionMessage,
        /// The state in which the round accepts it.
        wanted: RoundState,
    },
    /// It has fetched its assignment.
    Working { attempt: Attempt, participant: ParticipantId },
    /// The cohort was sent so much.
    BytesDown {
        attempt: Attempt,
        /// Where the round stood.
        state: RoundState,
        bytes: u64,
    },
}

impl Fact {
    /// Whether background work may have something to do once the fact is written.
    pub(super) fn may_move_a_round(&self) -> bool {
        matches!(self, Self::CheckIn(_) | Self::Input { .. } | Self::Answer { .. })
    }
}

/// Result of writing a fact.
#[derive(Clone, Debug)]
pub(crate) enum FactOutcome {
    Written,
    /// The input counts; this is its row.
    Admitted(Admitted),
    Rejected(Rejection),
}

impl FactOutcome {
    /// A rejection is an outcome too: what else is in the transaction is written all the same.
    fn of(judged: Result<Self, AdmissionError>) -> Result<Self, StoreError> {
        match judged {
            Ok(outcome) => Ok(outcome),
            Err(AdmissionError::Rejected(rejection)) => Ok(Self::Rejected(rejection)),
            Err(AdmissionError::Store(error)) => Err(error),
        }
    }
}

/// Writes facts; one outcome for each, in order.
pub(super) async fn write(
    tx: &mut Transaction<'_>,
    facts: &[Fact],
    now: Timestamp,
) -> Result<Vec<FactOutcome>, StoreError> {
    let mut outcomes = Vec::with_capacity(facts.len());
    let (mut check_ins, mut renewed, mut gone) = (BTreeMap::new(), Vec::new(), Vec::new());
    let mut bytes_down: BTreeMap<(Attempt, RoundState), u64> = BTreeMap::new();
    for fact in facts {
        outcomes.push(match fact {
            Fact::CheckIn(check_in) => {
                check_ins.insert((check_in.participant, check_in.task), check_in.clone());
                FactOutcome::Written
            }
            Fact::StillThere(check_in) => {
                renewed.push(check_in.clone());
                FactOutcome::Written
            }
            Fact::Gone(check_in) => {
                gone.push(check_in.clone());
                FactOutcome::Written
            }
            &Fact::Input { attempt, participant, sha256, bytes, ref signed } => {
                let admitted = Admitted { attempt, participant, sha256, bytes, accepted_at: now, folded: false };
                FactOutcome::of(admit(tx, admitted, signed.as_ref()).await.map(FactOutcome::Admitted))?
            }
            Fact::Answer { message, wanted } => {
                FactOutcome::of(answer(tx, message, *wanted, now).await.map(|()| FactOutcome::Written))?
            }
            &Fact::Working { attempt, participant } => {
                let (from, to) = ([AssignmentState::Assigned], AssignmentState::Working);
                tx.set_assignment_state(attempt, participant, &from, to, now, None).await?;
                FactOutcome::Written
            }
            &Fact::BytesDown { attempt, state, bytes } => {
                *bytes_down.entry((attempt, state)).or_default() += bytes;
                FactOutcome::Written
            }
        });
    }
    for ((attempt, state), bytes) in bytes_down {
        tx.add_bytes_down(attempt, state, bytes).await?;
    }
    let check_ins: Vec<_> = check_ins.into_values().collect();
    let mut seen: Vec<_> = check_ins.iter().chain(&renewed).map(|check_in| check_in.participant).collect();
    seen.sort_unstable();
    seen.dedup();
    if !renewed.is_empty() {
        tx.renew_check_ins(&renewed).await?;
    }
    if !check_ins.is_empty() {
        tx.upsert_check_ins(&check_ins).await?;
    }
    // Last: each names the check-in that it ends.
    if !gone.is_empty() {
        tx.end_check_ins(&gone, now).await?;
    }
    if !seen.is_empty() {
        tx.touch(&seen, now).await?;
    }
    Ok(outcomes)
}

/// Checks again, within the transaction, and makes the input count.
async fn admit(tx: &mut Transaction<'_>, input: Admitted, signed: Option<&Bytes>) -> Result<Admitted, AdmissionError> {
    let Admitted { attempt, participant, .. } = input;
    if let Some(earlier) = tx.admitted(attempt, participant).await? {
        same(&earlier, input.sha256)?;
        #[cfg(feature = "deliberate-faults")]
        if crate::faults::present() == Some(crate::faults::Fault::ReplayedInput) {
            tx.count_again(attempt, participant).await?;
        }
        return Ok(earlier);
    }
    let row = tx.round_attempt(attempt).await?.ok_or(Rejection::NoSuchRound)?;
    let is_open = open(row.round.state, RoundState::Collecting);
    // Complaints are only possible where shares are dealt.
    let may_complain = is_open.is_ok() && row.round.limits.secure.is_some();
    if may_complain && tx.message(attempt, MessageKind::Complaint, participant).await?.is_some() {
        return Err(Rejection::NotAssigned { why: "it complained, and sends no input in this session" }.into());
    }
    let (from, to) = ([AssignmentState::Assigned, AssignmentState::Working], AssignmentState::Reported);
    if is_open.is_err() || !tx.set_assignment_state(attempt, participant, &from, to, input.accepted_at, None).await? {
        // Its own place says more than the round's state.
        place(tx, attempt, participant).await?;
        is_open?;
        return Err(Rejection::NotAssigned { why: "the round does not wait for it any more" }.into());
    }
    if let Some(signed) = signed {
        let (kind, received_at) = (MessageKind::Input, input.accepted_at);
        let (sha256, bytes, message) = (crate::digest(signed), signed.len() as u64, Some(signed.clone()));
        tx.insert_message(&SessionMessage { attempt, kind, participant, sha256, bytes, received_at, message }).await?;
    }
    match tx.insert_admitted(&input).await? {
        Insertion::Inserted => Ok(input),
        Insertion::Same(earlier) => Ok(earlier),
        Insertion::Different(earlier) => Err(Rejection::DifferentInput { stored: earlier.sha256 }.into()),
    }
}

/// Stores the first answer of its kind, within the transaction.
async fn answer(
    tx: &mut Transaction<'_>,
    message: &SessionMessage,
    wanted: RoundState,
    now: Timestamp,
) -> Result<(), AdmissionError> {
    let &SessionMessage { attempt, kind, participant, sha256, .. } = message;
    // Whoever asks again gets the same answer, also when the round has gone on.
    if let Some(earlier) = tx.message(attempt, kind, participant).await? {
        return if earlier.sha256 == sha256 { Ok(()) } else { Err(Rejection::DifferentMessage.into()) };
    }
    let row = tx.round_attempt(attempt).await?.ok_or(Rejection::NoSuchRound)?;
    place(tx, attempt, participant).await?;
    open(row.round.state, wanted)?;
    if kind == MessageKind::Complaint && tx.admitted(attempt, participant).await?.is_some() {
        return Err(Rejection::NotAssigned { why: "it sent its input, so what was dealt to it opened" }.into());
    }
    match tx.insert_message(&SessionMessage { received_at: now, ..message.clone() }).await? {
        MessageInsertion::Inserted | MessageInsertion::Same => Ok(()),
        MessageInsertion::Different => Err(Rejection::DifferentMessage.into()),
    }
}
