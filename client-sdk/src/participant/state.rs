//! The participant's states, one structure each. The behaviour of each is in a file of its own and may lead to any
//! other state, so the structures are together here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use learning::{Layout, Residual};
use secure_agg::client::{Challenge, Masking};
use wire::participant::{Announcement, Answer, FinalModel};
use wire::{Attempt, ParticipantId, TaskId};

use super::attempts::Attempts;
use super::base::RoundBase;
use super::error::ParticipantError;
use super::event::Outcome;
use super::last_version::LastVersion;
use super::plan::Plan;
use super::record::Record;
use super::round_end::AbandonCause;
use super::session::Session;
use super::snapshot::{LocalState, Pending};
use super::used_bases::PastInput;
use super::work::RoundWork;
use crate::personalize::PersonalTensors;

pub(super) enum State {
    Persist(Persist),
    Enroll(Enroll),
    Renew(Renew),
    CheckIn(CheckIn),
    Share(Share),
    Fetch(Fetch),
    AwaitDelivery(AwaitDelivery),
    Complain(Complain),
    LoadLocal(LoadLocal),
    Train(Train),
    Upload(Sending),
    Opening(Opening),
    Abandon(Abandon),
    Depart(Depart),
    AwaitAbortProof(AwaitAbortProof),
    FetchFinal(FetchFinal),
    Finished(Result<Outcome, ParticipantError>),
}

/// Waits for records to be written.
pub(super) struct Persist {
    pub(super) records: Arc<[Record]>,
    pub(super) then: Box<State>,
}

/// Enrols with the token.
#[derive(Default)]
pub(super) struct Enroll {
    pub(super) attempts: Attempts,
}

pub(super) struct Renew {
    /// The check-in to continue with, which keeps its backoff.
    pub(super) then: CheckIn,
}

#[derive(Clone, Copy, Default)]
pub(super) struct CheckIn {
    pub(super) attempts: Attempts,
}

/// Was assigned to the round it made keys for; deals shares.
pub(super) struct Share {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    pub(super) session: Session,
    /// First the roster, then the dealt shares.
    pub(super) step: Exchange,
}

pub(super) struct Fetch {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    /// The session, if the task has secure aggregation.
    pub(super) session: Option<Session>,
    /// Bytes received so far; moved into the action while a transfer runs.
    pub(super) have: Vec<u8>,
    pub(super) wrong_files: u32,
    pub(super) attempts: Attempts,
}

/// Has the model and waits for the others' shares.
pub(super) struct AwaitDelivery {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    pub(super) received: RoundBase,
    pub(super) session: Session,
    pub(super) step: DeliveryStep,
}

pub(super) enum DeliveryStep {
    Delivery(AnnouncementPoll),
    Evidence(EvidenceRequest),
}

/// Waits for the dealer's signed message after a ciphertext did not open.
pub(super) struct EvidenceRequest {
    pub(super) challenge: Box<Challenge>,
    pub(super) dealer: ParticipantId,
    pub(super) attempts: Attempts,
}

/// Sends a persisted complaint.
pub(super) struct Complain {
    pub(super) place: Attempt,
    pub(super) upload: MessageUpload,
}

/// Has the model and loads local state.
pub(super) struct LoadLocal {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    pub(super) received: RoundBase,
    /// The session and its masks, if the task has secure aggregation.
    pub(super) masks: Option<(Session, Box<Masking>)>,
    pub(super) step: LoadStep,
}

pub(super) enum LoadStep {
    /// Loads the personal tensors.
    Personal,
    /// Has the personal tensors, if any, and loads the residual.
    Residual(Option<PersonalTensors>),
    /// Has the residual, if any, and loads the update trained ahead.
    Update(Option<Residual>),
    /// Has neither and loads the control variate.
    Control,
}

/// Waits for the trainer.
pub(super) struct Train {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    pub(super) work: Arc<RoundWork>,
    /// The session before the input, if the task has secure aggregation.
    pub(super) session: Option<Session>,
}

/// Sends an update until it has a receipt.
pub(super) struct Sending {
    pub(super) pending: Pending,
    /// The parts that the coordinator lacks, ascending; `None` until it has said so.
    pub(super) missing: Option<VecDeque<u32>>,
    /// How many parts the coordinator has said are stored, each as often as it said so.
    pub(super) taken: usize,
    /// The session's signature on the update.
    pub(super) signed: Option<Bytes>,
    pub(super) attempts: Attempts,
}

/// The input was accepted; takes part in opening the sum.
pub(super) struct Opening {
    pub(super) phase: OpeningPhase,
    pub(super) session: Session,
    pub(super) local_state: LocalState,
    pub(super) step: Exchange,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpeningPhase {
    /// Sign the included participants.
    Confirm,
    Unmask,
}

pub(super) struct Abandon {
    pub(super) place: Attempt,
    pub(super) why: AbandonCause,
    pub(super) attempts: Attempts,
}

/// Sends the statement that a session was left; the journal holds nothing else of it.
pub(super) struct Depart {
    pub(super) place: Attempt,
    pub(super) statement: Bytes,
    pub(super) attempts: Attempts,
    pub(super) then: CheckIn,
}

/// Waits for the members' statements.
pub(super) struct AwaitAbortProof {
    /// The attempt of the invitation.
    pub(super) invited: Attempt,
    pub(super) input: PastInput,
    pub(super) then: CheckIn,
}

/// The task is over; gets its last version, which the app keeps.
pub(super) struct FetchFinal {
    pub(super) task: TaskId,
    pub(super) model: Box<FinalModel>,
    /// Of the published file.
    pub(super) layout: Arc<Layout>,
    pub(super) step: FinalStep,
}

pub(super) enum FinalStep {
    /// Looks whether the journal has it.
    Look,
    Fetch {
        /// When the transfer is given up; `None` until the app's conditions hold.
        deadline: Option<Duration>,
        /// Bytes received so far; moved into the action while a transfer runs.
        have: Vec<u8>,
        attempts: Attempts,
    },
    /// Has the app's trainer measure it, now that the journal has it.
    Evaluate(Arc<LastVersion>),
}

/// Waits for an announcement, or sends the answer to it.
pub(super) enum Exchange {
    Poll(AnnouncementPoll),
    Upload(MessageUpload),
}

/// Waits for an announcement.
pub(super) struct AnnouncementPoll {
    pub(super) what: Announcement,
    pub(super) asked_at: Duration,
    pub(super) attempts: Attempts,
}

pub(super) struct MessageUpload {
    pub(super) what: Answer,
    pub(super) body: Bytes,
    pub(super) attempts: Attempts,
}
