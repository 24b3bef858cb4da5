//! The machine's interface: actions out, inputs in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wire::participant::{
    Announcement, Answer, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, ModelRef, Receipt, RenewRequest,
};
use wire::{Attempt, ParticipantId, TaskId};
use zeroize::Zeroizing;

use super::error::ParticipantError;
use super::event::Outcome;
use super::model_file::ModelFile;
use super::plan_error::WorkError;
use super::record::Record;
use super::work::{Contribution, RoundWork};
use crate::journal::JournalError;
use crate::transport::{Abandonment, TransportError, Upload};

/// The caller's next task. Until the caller reports the result, polling again returns the same action.
pub enum Action {
    Send(Request),
    /// Fetch a model file, resuming after the bytes in `have`.
    Fetch {
        task: TaskId,
        model: ModelRef,
        /// The bytes received so far, from the start of the file.
        have: Vec<u8>,
    },
    /// Run this on a thread of its own: it takes as long as training.
    Train(Arc<RoundWork>),
    /// Load a record from the journal.
    Load(String),
    /// Save records in the journal, in this order.
    Persist(Arc<[Record]>),
    /// Nothing to do until this moment, on [`Now::elapsed`](crate::clock::Now::elapsed)'s clock.
    WaitUntil(Duration),
    Finished(Result<Outcome, ParticipantError>),
}

/// A request to the coordinator.
pub enum Request {
    /// [`crate::transport::Transport::enroll`].
    Enroll(EnrollRequest),
    /// [`crate::transport::Transport::renew`].
    Renew(RenewRequest),
    /// [`crate::transport::Transport::check_in`].
    CheckIn(CheckInRequest),
    /// [`crate::transport::Transport::upload`].
    Upload(Upload),
    /// [`crate::transport::Transport::announcement`].
    Announcement {
        what: Announcement,
        place: Attempt,
        participant: ParticipantId,
        /// How long the coordinator may hold the request.
        wait: Duration,
    },
    /// [`crate::transport::Transport::evidence`].
    Evidence { place: Attempt, dealer: ParticipantId },
    /// [`crate::transport::Transport::answer`].
    Answer { what: Answer, place: Attempt, participant: ParticipantId, body: Bytes },
    /// [`crate::transport::Transport::abandon`].
    Abandon(Abandonment),
    /// [`crate::transport::Transport::abort_statement`].
    AbortStatement {
        /// The session that was left.
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    },
    /// [`crate::transport::Transport::abort_statements`].
    AbortStatements { place: Attempt },
}

/// The result of an action, or an external event.
pub enum Input {
    /// Only time has passed.
    Tick,
    /// The answer to [`Request::Enroll`].
    Enrolled(Result<EnrollReply, TransportError>),
    /// The answer to [`Request::Renew`].
    Renewed(Result<EnrollReply, TransportError>),
    /// The answer to [`Request::CheckIn`].
    CheckedIn(Result<CheckInReply, TransportError>),
    /// The answer to [`Action::Fetch`].
    Fetched {
        /// All bytes received so far, from the start of the file.
        have: Vec<u8>,
        /// Whether the file is complete.
        result: Result<(), TransportError>,
    },
    /// The answer to [`Action::Fetch`], from a caller that already has the whole file.
    Given(Arc<ModelFile>),
    /// The answer to [`Action::Train`].
    Trained(Result<Contribution, WorkError>),
    /// The answer to [`Action::Load`].
    Loaded(Result<Option<Zeroizing<Vec<u8>>>, JournalError>),
    /// The answer to [`Action::Persist`].
    Persisted(Result<(), JournalError>),
    /// The answer to [`Request::Upload`].
    Uploaded(Result<Receipt, TransportError>),
    /// The answer to [`Request::Announcement`] and to [`Request::AbortStatements`].
    Announced(Result<Option<Bytes>, TransportError>),
    /// The answer to [`Request::Evidence`].
    Evidenced(Result<Bytes, TransportError>),
    /// The answer to [`Request::Answer`] and to [`Request::AbortStatement`].
    Answered(Result<(), TransportError>),
    /// The answer to [`Request::Abandon`].
    Abandoned(Result<(), TransportError>),
    /// The certificate cannot be used.
    Unidentified(TransportError),
    /// The app shuts down: complete writes in progress and give up the rest.
    Shutdown,
}
