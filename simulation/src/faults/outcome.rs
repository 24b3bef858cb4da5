//! What a run comes to.

use serde::{Deserialize, Serialize};

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

/// What did not hold, and how.
pub(super) type Broken = (Check, String);

/// Something that must hold and did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    pub check: Check,
    pub detail: String,
    /// Virtual milliseconds since the beginning.
    pub at_ms: u64,
}

/// What came of a schedule.
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
