//! Facts, and writing a batch of them in one transaction.

use std::collections::BTreeMap;

use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::round::{AssignmentState, RoundState};
use federation::time::Timestamp;
use store::entity::admitted::Admitted;
use store::entity::check_in::CheckIn;
use store::entity::session_message::{MessageInsertion, MessageKind, SessionMessage};
use store::{StoreError, Transaction};

use super::gate::Rejection;
use super::standings::{EXPECTED, Judged, Standings};

#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// The participant is ready to work.
    CheckIn(CheckIn),
    /// The participant is still ready, without other changes.
    StillThere(CheckIn),
    /// The participant has left, unless it has checked in again since.
    Gone(CheckIn),
    /// Its masked input is stored as a blob and should be included.
    Input {
        attempt: Attempt,
        participant: ParticipantId,
        sha256: Digest,
        bytes: u64,
        /// With secure aggregation: the participant's signed message for it.
        signed: Option<Bytes>,
        /// The record below that the participant names with it.
        below: Option<Digest>,
    },
    /// The participant answered a phase of secure aggregation.
    Answer {
        /// The message in its stored form.
        message: SessionMessage,
        /// The state required to accept it.
        wanted: RoundState,
    },
    /// The participant has fetched its assignment.
    Working { attempt: Attempt, participant: ParticipantId },
    /// Bytes sent to the cohort.
    BytesDown {
        attempt: Attempt,
        /// State of the round.
        state: RoundState,
        bytes: u64,
    },
}

impl Fact {
    /// Whether the written fact may enable background work.
    pub(super) fn may_move_a_round(&self) -> bool {
        matches!(self, Self::CheckIn(_) | Self::Input { .. } | Self::Answer { .. })
    }
}

/// Result of writing a fact.
#[derive(Clone, Debug)]
pub(crate) enum FactOutcome {
    Written,
    /// The input is included; this is its row.
    Admitted(Admitted),
    Rejected(Rejection),
}

/// Writes facts; one outcome for each, in order. The number of statements is constant, except for answers, which may be large.
pub(super) async fn write(
    tx: &mut Transaction<'_>,
    facts: &[Fact],
    now: Timestamp,
) -> Result<Vec<FactOutcome>, StoreError> {
    let mut standings = Standings::read(tx, facts.iter().filter_map(asks).collect()).await?;
    let mut batch = Batch::default();
    let outcomes: Vec<_> = facts.iter().map(|fact| batch.add(fact, &mut standings, now)).collect();
    batch.write(tx, now).await?;
    #[cfg(feature = "deliberate-faults")]
    if crate::faults::present() == Some(crate::faults::Fault::ReplayedInput) {
        for outcome in &outcomes {
            if let FactOutcome::Admitted(Admitted { attempt, participant, folded: true, .. }) = outcome {
                tx.count_again(*attempt, *participant).await?;
            }
        }
    }
    Ok(outcomes)
}

/// The participant and message kind to look up for a fact.
fn asks(fact: &Fact) -> Option<(Attempt, ParticipantId, MessageKind)> {
    match fact {
        // Complaints are only possible if shares are dealt.
        Fact::Input { attempt, participant, .. } => Some((*attempt, *participant, MessageKind::Complaint)),
        Fact::Answer { message, .. } => Some((message.attempt, message.participant, message.kind)),
        Fact::CheckIn(_) | Fact::StillThere(_) | Fact::Gone(_) | Fact::Working { .. } | Fact::BytesDown { .. } => None,
    }
}

/// The rows to write for a batch of facts.
#[derive(Default)]
struct Batch {
    /// New check-ins; the last of each participant and task.
    check_ins: BTreeMap<(ParticipantId, TaskId), CheckIn>,
    renewed: Vec<CheckIn>,
    gone: Vec<CheckIn>,
    inputs: Vec<Admitted>,
    signed: Vec<SessionMessage>,
    below: Vec<(Attempt, ParticipantId, Digest)>,
    answers: Vec<SessionMessage>,
    working: Vec<(Attempt, ParticipantId)>,
    bytes_down: BTreeMap<(Attempt, RoundState), u64>,
}

impl Batch {
    /// Adds a fact. A rejection is an outcome too, and the rest of the batch is still written.
    fn add(&mut self, fact: &Fact, standings: &mut Standings, now: Timestamp) -> FactOutcome {
        match fact {
            Fact::CheckIn(check_in) => {
                self.check_ins.insert((check_in.participant, check_in.task), check_in.clone());
            }
            Fact::StillThere(check_in) => self.renewed.push(check_in.clone()),
            Fact::Gone(check_in) => self.gone.push(check_in.clone()),
            &Fact::Input { attempt, participant, sha256, bytes, ref signed, below } => {
                let input = Admitted { attempt, participant, sha256, bytes, accepted_at: now, folded: false };
                return match standings.input(input) {
                    Ok(Judged::Known(earlier)) => FactOutcome::Admitted(earlier),
                    Ok(Judged::New(input)) => {
                        self.inputs.push(input);
                        self.below.extend(below.map(|below| (attempt, participant, below)));
                        self.signed.extend(signed.as_ref().map(|signed| signed_with(&input, signed)));
                        FactOutcome::Admitted(input)
                    }
                    Err(rejection) => FactOutcome::Rejected(rejection),
                };
            }
            Fact::Answer { message, wanted } => match standings.answer(message, *wanted) {
                Ok(Judged::Known(())) => {}
                Ok(Judged::New(())) => self.answers.push(SessionMessage { received_at: now, ..message.clone() }),
                Err(rejection) => return FactOutcome::Rejected(rejection),
            },
            &Fact::Working { attempt, participant } => self.working.push((attempt, participant)),
            &Fact::BytesDown { attempt, state, bytes } => {
                *self.bytes_down.entry((attempt, state)).or_default() += bytes
            }
        }
        FactOutcome::Written
    }

    async fn write(self, tx: &mut Transaction<'_>, now: Timestamp) -> Result<(), StoreError> {
        let Self { check_ins, renewed, gone, inputs, signed, below, answers, working, bytes_down } = self;
        if !working.is_empty() {
            let (from, to) = ([AssignmentState::Assigned], AssignmentState::Working);
            tx.set_assignment_states(&working, &from, to, now).await?;
        }
        write_inputs(tx, &inputs, &signed, now).await?;
        if !below.is_empty() {
            tx.insert_records_below(&below).await?;
        }
        for answer in &answers {
            if tx.insert_message(answer).await? != MessageInsertion::Inserted {
                return Err(StoreError::fault("a new answer was there before"));
            }
        }
        if !bytes_down.is_empty() {
            let sent: Vec<_> =
                bytes_down.into_iter().map(|((attempt, state), bytes)| (attempt, state, bytes)).collect();
            tx.add_traffic(&sent, now).await?;
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
        Ok(())
    }
}

/// The stored form of the signed message for an input.
fn signed_with(input: &Admitted, signed: &Bytes) -> SessionMessage {
    SessionMessage {
        attempt: input.attempt,
        kind: MessageKind::Input,
        participant: input.participant,
        sha256: crate::digest(signed),
        bytes: signed.len() as u64,
        received_at: input.accepted_at,
        message: Some(signed.clone()),
    }
}

/// Admits inputs validated as new in this transaction.
async fn write_inputs(
    tx: &mut Transaction<'_>,
    inputs: &[Admitted],
    signed: &[SessionMessage],
    now: Timestamp,
) -> Result<(), StoreError> {
    if inputs.is_empty() {
        return Ok(());
    }
    let places: Vec<_> = inputs.iter().map(|input| (input.attempt, input.participant)).collect();
    let changed = tx.set_assignment_states(&places, &EXPECTED, AssignmentState::Reported, now).await?;
    if !signed.is_empty() {
        tx.insert_messages(signed).await?;
    }
    let inserted = tx.insert_admitted(inputs).await?;
    if (changed as usize, inserted as usize) == (inputs.len(), inputs.len()) {
        return Ok(());
    }
    Err(StoreError::fault(format!("of {} new inputs {changed} were expected and {inserted} are new", inputs.len())))
}
