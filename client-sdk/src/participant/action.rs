//! What the machine and its caller say to each other.

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

/// What the caller is to do next. Until it reports back, polling again gives the same action.
pub enum Action {
    /// Send a request.
    Send(Request),
    /// Fetch a model, going on behind what is there already.
    Fetch {
        /// Of which task.
        task: TaskId,
        /// Which version.
        model: ModelRef,
        /// The first bytes of the file, if any have come.
        have: Vec<u8>,
    },
    /// Run this, away from the caller's other business.
    Train(Arc<RoundWork>),
    /// Load a record from the journal.
    Load(String),
    /// Save records in the journal, in this order.
    Persist(Arc<[Record]>),
    /// Nothing to do until this moment, on [`Now::elapsed`](crate::clock::Now::elapsed)'s clock.
    WaitUntil(Duration),
    /// It is over.
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
        /// Which.
        what: Announcement,
        /// Of which session.
        place: Attempt,
        /// For whom.
        participant: ParticipantId,
        /// How long to wait for it.
        wait: Duration,
    },
    /// [`crate::transport::Transport::evidence`].
    Evidence {
        /// Of which session.
        place: Attempt,
        /// Who dealt.
        dealer: ParticipantId,
    },
    /// [`crate::transport::Transport::answer`].
    Answer {
        /// Which.
        what: Answer,
        /// Of which session.
        place: Attempt,
        /// From whom.
        participant: ParticipantId,
        /// The encoded message.
        body: Bytes,
    },
    /// [`crate::transport::Transport::abandon`].
    Abandon(Abandonment),
    /// [`crate::transport::Transport::abort_statement`].
    AbortStatement {
        /// Which session was left.
        place: Attempt,
        /// By whom.
        participant: ParticipantId,
        /// The encoded statement.
        body: Bytes,
    },
    /// [`crate::transport::Transport::abort_statements`].
    AbortStatements {
        /// Of which session.
        place: Attempt,
    },
}

/// What has happened since the last poll.
pub enum Input {
    /// Nothing but that time has passed.
    Tick,
    /// The answer to [`Request::Enroll`].
    Enrolled(Result<EnrollReply, TransportError>),
    /// The answer to [`Request::Renew`].
    Renewed(Result<EnrollReply, TransportError>),
    /// The answer to [`Request::CheckIn`].
    CheckedIn(Result<CheckInReply, TransportError>),
    /// The answer to [`Action::Fetch`].
    Fetched {
        /// All bytes there are now.
        have: Vec<u8>,
        /// Whether that is all.
        result: Result<(), TransportError>,
    },
    /// The same, from whoever has the whole file already.
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
    /// The app is going away: finish what was begun to be written, give up the rest.
    Shutdown,
}
