//! The results of a run, and the errors of setting one up.

use serde::{Deserialize, Serialize};
use simulation::SimulationError;

task_spec::named_enum! {
    /// The properties to check; the violated one identifies a failure.
    #[derive(PartialOrd, Ord)]
    pub enum Check: "check" {
        /// Each receipt has one admitted row with its digest, and readable bytes until these are folded.
        Receipts = "receipts",
        /// Every update that counts is in exactly one sum.
        Sums = "sums",
        /// Versions are consecutive, one for each round, and immutable.
        Versions = "versions",
        /// The ledger only grows, and is charged before the version.
        Ledger = "ledger",
        /// Each device gives at most one input from one base, one signature, and one answer to a session.
        Devices = "devices",
        /// A change of a worker whose lease another has taken since fails.
        Leases = "leases",
        /// Every blob that a row names is there.
        Blobs = "blobs",
        /// A wake-up announces due work, not only an occasional poll.
        Wakes = "wakes",
        /// Once faults stop, each task ends, or reports a reason.
        Progress = "progress",
        /// All blobs and keys are referenced.
        Garbage = "garbage",
        /// All code runs without panics, and only participants that an operator or a schedule ends return an error.
        Errors = "errors",
    }
}

/// The violated check, and the details.
pub(super) type Broken = (Check, String);

/// Something that must hold and did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    pub check: Check,
    pub detail: String,
    /// Virtual milliseconds since the beginning.
    pub at_ms: u64,
}

/// Outcome of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Messages, steps, deaths and other events that were performed.
    pub events: u64,
    /// Rounds that published a version.
    pub rounds: u32,
    /// Digest of everything that happened, in order.
    pub trace: u64,
    pub violation: Option<Violation>,
}

/// Mistakes of the simulated surroundings, for tests that must notice them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flaws {
    /// Disks lose unflushed data of a process that loses its power.
    pub forgets_to_flush: bool,
    /// A journal that is set back takes its generation with it.
    pub copies_generation: bool,
    /// Disks claim that their content cannot have changed.
    pub trusts_disks: bool,
    /// Coordinators miss wake-ups for background work.
    pub loses_wakes: bool,
}

/// Errors of setting up a run.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The task of a schedule is invalid, or its sums cannot be checked.
    #[error("the task: {0}")]
    Task(String),
    #[error("the coordinator failed: {0}")]
    Coordinator(String),
    /// A device, by its name.
    #[error("{0} was not enrolled")]
    NotEnrolled(String),
    /// Threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(String),
    /// The files of a run cannot be made or removed.
    #[error("cannot keep the files of a run: {0}")]
    Files(String),
    /// The coordinator rejected a request of its operator.
    #[error(transparent)]
    Operator(#[from] SimulationError),
}

impl SetupError {
    pub(crate) fn files(error: impl std::fmt::Display) -> Self {
        Self::Files(error.to_string())
    }
}
