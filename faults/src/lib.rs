//! The federation under faults: the real coordinators and the real participants in one process, where messages get
//! lost, processes die between any two durable changes, clocks disagree and devices come back with old journals. The
//! invariants are checked after each event (`checks`).
//!
//! A seed writes a [`Schedule`]; a [`Runner`] performs it, the same way each time; [`search`] runs many of them in
//! parallel, and [`shrink`] makes one that fails shorter. The executable `faults` does that from the command line.
//! Releases exclude this crate.

mod base;
mod build;
mod checks;
mod device;
mod disk;
mod journal;
mod leases;
mod network;
mod outcome;
mod perform;
mod private;
mod process;
mod runner;
mod schedule;
mod search;
mod shrink;
mod work;
mod world;

pub use self::outcome::{Check, Flaws, Run, SetupError, Violation};
pub use self::runner::Runner;
pub use self::schedule::{Operation, Profile, Schedule, TaskKind};
pub use self::search::search;
pub use self::shrink::shrink;
