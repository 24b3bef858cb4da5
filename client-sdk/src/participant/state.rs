//! What a participant can be in the middle of: one structure for each state. What each does stands in a file of its own, which
//! may end in any other state; so all of them are here, below.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use learning::Residual;
use secure_agg::client::{Challenge, Masking};
use wire::participant::{Announcement, Answer};
use wire::{Attempt, ParticipantId};

use super::attempts::Attempts;
use super::base::RoundBase;
use super::error::ParticipantError;
use super::event::Outcome;
use super::plan::Plan;
use super::record::Record;
use super::round_end::AbandonCause;
use super::session::Session;
use super::snapshot::{LocalState, Pending};
use super::used_bases::PastInput;
use super::work::RoundWork;
use crate::personalize::PersonalTensors;

/// One of the states; what each does has its file.
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
    Finished(Result<Outcome, ParticipantError>),
}

/// Waits for records to be safe.
pub(super) struct Persist {
    pub(super) records: Arc<[Record]>,
    pub(super) then: Box<State>,
}

/// Not enrolled yet.
#[derive(Default)]
pub(super) struct Enroll {
    pub(super) attempts: Attempts,
}

/// The certificate is due.
pub(super) struct Renew {
    /// Goes on where it was, and not before its time.
    pub(super) then: CheckIn,
}

/// Idle.
#[derive(Clone, Copy, Default)]
pub(super) struct CheckIn {
    pub(super) attempts: Attempts,
}

/// A place was given for the keys that were made.
pub(super) struct Share {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    pub(super) session: Session,
    /// The roster, and the shares that are dealt.
    pub(super) step: Exchange,
}

/// The model is on its way.
pub(super) struct Fetch {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    /// In which shares were dealt, if the task has secure aggregation.
    pub(super) session: Option<Session>,
    /// Lent to the action while a transfer runs.
    pub(super) have: Vec<u8>,
    pub(super) wrong_files: u32,
    pub(super) attempts: Attempts,
}

/// The model is here, the others' shares are not.
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

/// A ciphertext does not open: was it dealt like that?
pub(super) struct EvidenceRequest {
    pub(super) challenge: Box<Challenge>,
    pub(super) dealer: ParticipantId,
    pub(super) attempts: Attempts,
}

/// A complaint is safe and has to be sent.
pub(super) struct Complain {
    pub(super) place: Attempt,
    pub(super) upload: MessageUpload,
}

/// The model is there, what stayed at home not yet.
pub(super) struct LoadLocal {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    pub(super) received: RoundBase,
    /// The session and its masks, if the task has secure aggregation.
    pub(super) masks: Option<(Session, Box<Masking>)>,
    pub(super) step: LoadStep,
}

pub(super) enum LoadStep {
    /// Waits for the personal tensors.
    Personal,
    /// Has them, if there are any, and waits for what the codec left out.
    Residual(Option<PersonalTensors>),
    /// Has that, if there is any, and waits for the update that was trained ahead.
    Update(Option<Residual>),
    /// Has neither, and waits for the control variate.
    Control,
}

/// The trainer is at work.
pub(super) struct Train {
    pub(super) plan: Arc<Plan>,
    pub(super) deadline: Duration,
    pub(super) work: Arc<RoundWork>,
    /// As it is without the input, if the task has secure aggregation.
    pub(super) session: Option<Session>,
}

/// An update waits for its receipt.
pub(super) struct Sending {
    pub(super) pending: Pending,
    /// The session's signature on it.
    pub(super) signed: Option<Bytes>,
    pub(super) attempts: Attempts,
}

/// The input was sent, and its sum has yet to be opened.
pub(super) struct Opening {
    pub(super) phase: OpeningPhase,
    pub(super) session: Session,
    pub(super) local_state: LocalState,
    pub(super) step: Exchange,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpeningPhase {
    /// The survivors are to be signed.
    Confirm,
    /// They are, and shares are to be revealed.
    Unmask,
}

/// A place is given up.
pub(super) struct Abandon {
    pub(super) place: Attempt,
    pub(super) why: AbandonCause,
    pub(super) attempts: Attempts,
}

/// A session was left, and the journal holds nothing of it but this.
pub(super) struct Depart {
    pub(super) place: Attempt,
    pub(super) statement: Bytes,
    pub(super) attempts: Attempts,
    pub(super) then: CheckIn,
}

/// Waits for what the members said.
pub(super) struct AwaitAbortProof {
    /// To where an invitation came.
    pub(super) invited: Attempt,
    pub(super) input: PastInput,
    pub(super) then: CheckIn,
}

/// An announcement, and the answer to it.
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

/// Hands in a message.
pub(super) struct MessageUpload {
    pub(super) what: Answer,
    pub(super) body: Bytes,
    pub(super) attempts: Attempts,
}
