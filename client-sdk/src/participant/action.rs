//! What the machine and its caller say to each other.

use std::sync::Arc;
use std::time::Duration;

use wire::TaskId;
use wire::participant::ModelRef;
use zeroize::Zeroizing;

use super::error::ParticipantError;
use super::event::Outcome;
use super::model_file::ModelFile;
use super::plan_error::WorkError;
use super::record::Record;
use super::work::{Contribution, RoundWork};
use crate::journal::JournalError;
use crate::transport::{Request, Response, TransportError};

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

/// What has happened since the last poll.
pub enum Input {
    /// Nothing but that time has passed.
    Tick,
    /// The answer to [`Action::Send`].
    Response(Response),
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
    /// The certificate cannot be used.
    Unidentified(TransportError),
    /// The app is going away: finish what was begun to be written, give up the rest.
    Shutdown,
}
