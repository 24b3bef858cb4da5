//! The federation under faults: the real coordinators and the real participants in one process, where messages get
//! lost, processes die between any two durable changes, clocks disagree and devices come back with old journals; and
//! after each event what must hold is checked ([`checks`]).
//!
//! A seed writes a [`Schedule`]; [`run`] performs it, the same way each time; [`shrink`] makes one that fails shorter.

mod build;
mod checks;
mod device;
mod disk;
mod network;
mod process;
mod schedule;
mod shrink;
mod work;
mod world;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::SimulationError;

pub use self::schedule::{Operation, Profile, Schedule, TaskKind};
pub use self::shrink::shrink;

/// The task's name.
const TASK: &str = "task";

task_spec::named_enum! {
    /// What must hold; which one did not tells failures apart.
    #[derive(PartialOrd, Ord)]
    pub enum Check: "check" {
        /// Each receipt has one admitted row with its digest, and readable bytes until these are folded.
        Receipts = "receipts",
        /// No update is counted twice, and none that counts is left out.
        Sums = "sums",
        /// Versions are consecutive, one for each round, and never change.
        Versions = "versions",
        /// The ledger only grows, and is charged before the version.
        Ledger = "ledger",
        /// No device gives two inputs from one base, signs twice, or answers a session twice.
        Devices = "devices",
        /// A change of a worker whose lease another has taken since fails.
        Leases = "leases",
        /// Every blob that a row names is there.
        Blobs = "blobs",
        /// What is due is noticed by a wake-up, not only by looking now and then.
        Wakes = "wakes",
        /// Once faults stop, each task ends, or stands where a reason is told.
        Progress = "progress",
        /// No blob and no key is left that nothing names.
        Garbage = "garbage",
        /// Nothing panics, and nobody ends with an error but those whom an operator or a schedule ends.
        Errors = "errors",
    }
}

/// Something that must hold and did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    pub check: Check,
    pub detail: String,
    /// Virtual milliseconds since the beginning.
    pub at_ms: u64,
}

/// One run.
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
    /// Disks lose what was written by a process that loses its power.
    pub forgets_to_flush: bool,
    /// A journal that is set back takes its generation with it.
    pub copies_generation: bool,
    /// Disks say that what they hold cannot have changed.
    pub trusts_disks: bool,
}

/// Runs after which what metrics collect is put together.
const TIDIED: u64 = 50;

/// A place for the files of runs, removed at the end.
pub struct Runner {
    folder: tempfile::TempDir,
    runs: u64,
    flaws: Flaws,
}

impl Runner {
    /// # Errors
    /// [`SimulationError::Files`] if no temporary folder can be made.
    pub fn new(flaws: Flaws) -> Result<Self, SimulationError> {
        // Nothing outlives the run, so memory does where there is such a folder.
        let memory = PathBuf::from("/dev/shm");
        let made = tempfile::Builder::new().prefix("tributary-faults").tempdir_in(memory);
        let folder = made.or_else(|_| tempfile::tempdir()).map_err(SimulationError::files)?;
        Ok(Self { folder, runs: 0, flaws })
    }

    /// Performs a schedule. With `tell`, each event is told as it happens.
    ///
    /// # Errors
    /// [`SimulationError`] if the run cannot be set up.
    pub fn run(&mut self, schedule: &Schedule, tell: Option<&mut dyn FnMut(&str)>) -> Result<Run, SimulationError> {
        self.runs += 1;
        if self.runs.is_multiple_of(TIDIED) {
            // All coordinators of a process share its metrics, which nobody fetches here.
            coordinator::observe::recorder().run_upkeep();
        }
        let folder = self.folder.path().join(format!("run-{}", self.runs));
        std::fs::create_dir_all(&folder).map_err(SimulationError::files)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| SimulationError::Threads(error.to_string()))?;
        let authority = self.folder.path().join("authority");
        let place = build::Place { folder: folder.clone(), authority, flaws: self.flaws };
        let ran = runtime.block_on(world::perform(schedule, place, tell));
        drop(runtime);
        std::fs::remove_dir_all(&folder).map_err(SimulationError::files)?;
        ran
    }
}
