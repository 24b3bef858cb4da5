//! Why a step did not finish. Every one of these is tried again; what can never succeed ends with its round's deadline.

use std::error::Error;

use aggregation::AggregationError;
use store::StoreError;

/// Why a step did not finish.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The device that sums.
    #[error(transparent)]
    Aggregation(#[from] AggregationError),
    /// Another worker has taken over; this one wrote nothing.
    #[error("another worker holds the lease {0:?}")]
    LeaseLost(String),
    /// A stored fact that this program cannot work with.
    #[error("stored state cannot be worked with: {0}")]
    Unworkable(#[source] Box<dyn Error + Send + Sync>),
    /// A thread of a step ended in a panic.
    #[error("a thread of the step was lost")]
    Thread(#[source] tokio::task::JoinError),
    /// A test let the worker die.
    #[error("stopped at {0}")]
    Stopped(&'static str),
}

impl StepError {
    /// [`StepError::Unworkable`], because of an error or in these words.
    pub(crate) fn unworkable(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unworkable(cause.into())
    }

    /// A short name for metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(StoreError::Full) => "store_full",
            Self::Store(StoreError::ReadOnly) => "store_read_only",
            Self::Store(StoreError::Busy) => "store_busy",
            Self::Store(StoreError::TooManyFiles) => "store_too_many_files",
            Self::Store(StoreError::MissingBlob(_) | StoreError::Corrupt(_)) => "store_damaged",
            Self::Store(_) => "store",
            Self::Aggregation(_) => "aggregation",
            Self::LeaseLost(_) => "lease_lost",
            Self::Unworkable(_) => "unworkable",
            Self::Thread(_) => "thread",
            Self::Stopped(_) => "stopped",
        }
    }

    /// Whether bytes that were stored can no longer be read, as opposed to: not now.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self, Self::Store(StoreError::MissingBlob(_) | StoreError::Corrupt(_)))
    }
}
