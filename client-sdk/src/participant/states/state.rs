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
use crate::participant::api::error::ParticipantError;
use crate::participant::api::event::Outcome;
use crate::participant::journal::record::Record;
use crate::participant::journal::round_end::AbandonCause;
use crate::participant::journal::session::Session;
use crate::participant::journal::snapshot::{LocalState, Pending};
use crate::participant::model::base::RoundBase;
use crate::participant::model::last_version::LastVersion;
use crate::participant::task::plan::Plan;
use crate::participant::task::work::RoundWork;
use crate::personalize::PersonalTensors;

pub(in crate::participant) enum State {
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
    FetchFinal(FetchFinal),
    Finished(Result<Outcome, ParticipantError>),
}

/// Waits for records to be written.
pub(in crate::participant) struct Persist {
    pub(in crate::participant) records: Arc<[Record]>,
    pub(in crate::participant) then: Box<State>,
}

/// Enrols with the token.
#[derive(Default)]
pub(in crate::participant) struct Enroll {
    pub(super) attempts: Attempts,
}

pub(in crate::participant) struct Renew {
    /// The check-in to continue with, which keeps its backoff.
    pub(in crate::participant) then: CheckIn,
}

#[derive(Clone, Copy, Default)]
pub(in crate::participant) struct CheckIn {
    pub(super) attempts: Attempts,
}

/// Was assigned to the round it made keys for; deals shares.
pub(in crate::participant) struct Share {
    pub(in crate::participant) plan: Arc<Plan>,
    pub(in crate::participant) deadline: Duration,
    pub(in crate::participant) session: Session,
    /// First the roster, then the dealt shares.
    pub(in crate::participant) step: Exchange,
}

pub(in crate::participant) struct Fetch {
    pub(in crate::participant) plan: Arc<Plan>,
    pub(in crate::participant) deadline: Duration,
    /// The session, if the task has secure aggregation.
    pub(in crate::participant) session: Option<Session>,
    /// Bytes received so far; moved into the action while a transfer runs.
    pub(in crate::participant) have: Vec<u8>,
    pub(super) wrong_files: u32,
    pub(super) attempts: Attempts,
}

/// Has the model and waits for the others' shares.
pub(in crate::participant) struct AwaitDelivery {
    pub(in crate::participant) plan: Arc<Plan>,
    pub(in crate::participant) deadline: Duration,
    pub(in crate::participant) received: RoundBase,
    pub(in crate::participant) session: Session,
    pub(in crate::participant) step: DeliveryStep,
}

pub(in crate::participant) enum DeliveryStep {
    Delivery(AnnouncementPoll),
    Evidence(EvidenceRequest),
}

/// Waits for the dealer's signed message after a ciphertext did not open.
pub(in crate::participant) struct EvidenceRequest {
    pub(super) challenge: Box<Challenge>,
    pub(in crate::participant) dealer: ParticipantId,
    pub(super) attempts: Attempts,
}

/// Sends a persisted complaint.
pub(in crate::participant) struct Complain {
    pub(in crate::participant) place: Attempt,
    pub(in crate::participant) upload: MessageUpload,
}

/// Has the model and loads local state.
pub(in crate::participant) struct LoadLocal {
    pub(in crate::participant) plan: Arc<Plan>,
    pub(in crate::participant) deadline: Duration,
    pub(in crate::participant) received: RoundBase,
    /// The session and its masks, if the task has secure aggregation.
    pub(in crate::participant) masks: Option<(Session, Box<Masking>)>,
    pub(in crate::participant) step: LoadStep,
}

pub(in crate::participant) enum LoadStep {
    /// Loads the personal tensors.
    Personal,
    /// Has the personal tensors, if any, and loads the residual.
    Residual(Option<PersonalTensors>),
    /// Has the residual, if any, and loads the update trained ahead.
    Update(Option<Residual>),
    /// Has neither of them and loads the control variate.
    Control,
}

/// Waits for the trainer.
pub(in crate::participant) struct Train {
    pub(in crate::participant) plan: Arc<Plan>,
    pub(in crate::participant) deadline: Duration,
    pub(in crate::participant) work: Arc<RoundWork>,
    /// The session before the input, if the task has secure aggregation.
    pub(in crate::participant) session: Option<Session>,
}

/// Sends an update until it has a receipt.
pub(in crate::participant) struct Sending {
    pub(in crate::participant) pending: Pending,
    /// The parts that the coordinator lacks, ascending; `None` until it has said so.
    pub(in crate::participant) missing: Option<VecDeque<u32>>,
    /// How many parts the coordinator has said are stored, each as often as it said so.
    pub(in crate::participant) taken: usize,
    /// The session's signature on the update.
    pub(in crate::participant) signed: Option<Bytes>,
    pub(super) attempts: Attempts,
}

/// The input was accepted; takes part in opening the sum.
pub(in crate::participant) struct Opening {
    pub(super) phase: OpeningPhase,
    pub(in crate::participant) session: Session,
    pub(in crate::participant) local_state: LocalState,
    pub(in crate::participant) step: Exchange,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::participant) enum OpeningPhase {
    /// Sign the included participants.
    Confirm,
    Unmask,
}

pub(in crate::participant) struct Abandon {
    pub(in crate::participant) place: Attempt,
    pub(in crate::participant) why: AbandonCause,
    pub(super) attempts: Attempts,
}

/// The task is over; gets its last version, which the app keeps.
pub(in crate::participant) struct FetchFinal {
    pub(in crate::participant) task: TaskId,
    pub(in crate::participant) model: Box<FinalModel>,
    /// Of the published file.
    pub(in crate::participant) layout: Arc<Layout>,
    pub(in crate::participant) step: FinalStep,
}

pub(in crate::participant) enum FinalStep {
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
pub(in crate::participant) enum Exchange {
    Poll(AnnouncementPoll),
    Upload(MessageUpload),
}

/// Waits for an announcement.
pub(in crate::participant) struct AnnouncementPoll {
    pub(in crate::participant) what: Announcement,
    pub(super) asked_at: Duration,
    pub(super) attempts: Attempts,
}

pub(in crate::participant) struct MessageUpload {
    pub(in crate::participant) what: Answer,
    pub(in crate::participant) body: Bytes,
    pub(super) attempts: Attempts,
}
