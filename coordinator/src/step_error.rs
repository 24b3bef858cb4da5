//! Reasons why a step did not finish. All are retried; an impossible step ends with its round's deadline.

use std::error::Error;

use aggregation::AggregationError;
use store::StoreError;

/// Reasons why a step did not finish.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The aggregation device failed.
    #[error(transparent)]
    Aggregation(#[from] AggregationError),
    /// Another worker holds the lease; this one wrote nothing.
    #[error("another worker holds the lease {0:?}")]
    LeaseLost(String),
    /// The process's clock was wrong, as after its machine was suspended; it has been set, and nothing was written.
    #[error("the clock was off by more than a second, and has been set by the database's")]
    ClockOff,
    /// A stored fact is unusable.
    #[error("stored state cannot be worked with: {0}")]
    Unworkable(#[source] Box<dyn Error + Send + Sync>),
    /// A thread of the step panicked.
    #[error("a thread of the step was lost")]
    Thread(#[source] tokio::task::JoinError),
    /// A test stopped the worker here.
    #[error("stopped at {0}")]
    Stopped(&'static str),
}

impl StepError {
    /// [`StepError::Unworkable`] with an error or message as its cause.
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
            Self::Store(StoreError::Unreachable(_)) => "store_unreachable",
            Self::Store(StoreError::NoAccess(_)) => "store_no_access",
            Self::Store(StoreError::BlobsAway(_)) => "store_blobs_away",
            Self::Store(StoreError::TooManyFiles) => "store_too_many_files",
            Self::Store(StoreError::BeingRemoved(_)) => "store_being_removed",
            Self::Store(StoreError::MissingBlob(_) | StoreError::Corrupt(_)) => "store_damaged",
            Self::Store(_) => "store",
            Self::Aggregation(_) => "aggregation",
            Self::LeaseLost(_) => "lease_lost",
            Self::ClockOff => "clock_off",
            Self::Unworkable(_) => "unworkable",
            Self::Thread(_) => "thread",
            Self::Stopped(_) => "stopped",
        }
    }

    /// Whether stored bytes are permanently unreadable, not just temporarily.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self, Self::Store(StoreError::MissingBlob(_) | StoreError::Corrupt(_)))
    }
}
