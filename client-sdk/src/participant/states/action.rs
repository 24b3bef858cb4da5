//! The machine's interface: actions out, inputs in.

use std::sync::Arc;
use std::time::Duration;

use learning::{Layout, MetricValue};
use wire::TaskId;
use wire::participant::ModelRef;
use zeroize::Zeroizing;

use crate::journal::JournalError;
use crate::participant::api::error::ParticipantError;
use crate::participant::api::event::Outcome;
use crate::participant::api::plan_error::WorkError;
use crate::participant::journal::record::Record;
use crate::participant::model::last_version::LastVersion;
use crate::participant::model::model_file::ModelFile;
use crate::participant::task::work::{Contribution, RoundWork};
use crate::transport::{Request, Response, TransportError};

/// The caller's next task. Until the caller reports the result, polling again returns the same action.
pub enum Action {
    Send(Request),
    /// Fetch a model file, resuming after the bytes in `have`.
    Fetch {
        task: TaskId,
        model: ModelRef,
        /// The bytes received so far, from the start of the file.
        have: Vec<u8>,
        /// Of the model in it, for a caller that reads a file on disk; `None` for an analysis.
        layout: Option<Arc<Layout>>,
    },
    /// Run this on a thread of its own: it takes as long as training.
    Train(Arc<RoundWork>),
    /// Have the app's trainer evaluate the last version of a task that is over, on a thread of its own.
    Evaluate(Arc<LastVersion>),
    /// Load a record from the journal.
    Load(String),
    /// Save records in the journal, in this order.
    Persist(Arc<[Record]>),
    /// Wait until this moment, on [`Now::elapsed`](crate::clock::Now::elapsed)'s clock.
    WaitUntil(Duration),
    Finished(Result<Outcome, ParticipantError>),
}

/// Result of the last action, or the passage of time.
pub enum Input {
    /// Only time has passed.
    Tick,
    /// The answer to [`Action::Send`].
    Response(Response),
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
    /// The answer to [`Action::Evaluate`]: metrics by name.
    Evaluated(Result<Vec<(String, MetricValue)>, WorkError>),
    /// The answer to [`Action::Load`].
    Loaded(Result<Option<Zeroizing<Vec<u8>>>, JournalError>),
    /// The answer to [`Action::Persist`].
    Persisted(Result<(), JournalError>),
    /// The certificate cannot be used.
    Unidentified(TransportError),
    /// The app shuts down: complete writes in progress and give up the rest.
    Shutdown,
}
