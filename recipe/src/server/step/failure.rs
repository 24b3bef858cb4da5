//! The files of a step, and why it fails.

use std::io::{self, Read, Seek};

/// A file that supports slices.
pub trait ReadSeek: Read + Seek {}

impl<T: Read + Seek + ?Sized> ReadSeek for T {}

/// Reasons for a failed step.
#[derive(Debug, thiserror::Error)]
pub enum StepFailure {
    /// Honest participants cannot have made this sum.
    #[error("honest participants cannot have made this sum: {0}")]
    ImplausibleSum(String),
    /// The base version or the optimizer's state is unusable.
    #[error("{0}")]
    UnusableBase(String),
    /// A file could not be read or written.
    #[error("a file of the step failed")]
    Io(#[from] io::Error),
}

pub(super) fn implausible(error: impl std::fmt::Display) -> StepFailure {
    StepFailure::ImplausibleSum(error.to_string())
}

pub(super) fn unusable(what: &str) -> impl Fn(&dyn std::fmt::Display) -> StepFailure {
    move |error| StepFailure::UnusableBase(format!("{what}: {error}"))
}
