//! Reasons why a request has failed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use wire::problem::Problem;

/// Reasons why a request has failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The coordinator rejected the request.
    #[error("{problem}")]
    Problem {
        problem: Box<Problem>,
        /// When to come back (`Retry-After`).
        retry_after: Option<Duration>,
    },
    /// The request or its answer got lost; whether it took effect is not known.
    #[error("the coordinator could not be reached: {}{}", with_causes(.0), advised(.0.as_ref()))]
    Unreachable(#[source] Arc<dyn Error + Send + Sync>),
    /// An answer that the contract does not have.
    #[error("the answer was not understood: {}", with_causes(.0))]
    Protocol(#[source] Arc<dyn Error + Send + Sync>),
}

impl TransportError {
    /// [`TransportError::Unreachable`], because of an error or in these words.
    pub fn unreachable(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreachable(cause.into().into())
    }

    /// [`TransportError::Protocol`], because of an error or in these words.
    pub fn protocol(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Protocol(cause.into().into())
    }
}

/// Appends the causes: the outermost error of a rejected certificate only reports a failed send.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// The likely cause, to append to the error; empty without the HTTPS transport.
fn advised(error: &(dyn Error + 'static)) -> String {
    #[cfg(feature = "https")]
    if let Some(advice) = super::advice(error) {
        return format!("; {advice}");
    }
    let _ = error;
    String::new()
}

impl From<Problem> for TransportError {
    fn from(problem: Problem) -> Self {
        Self::Problem { problem: Box::new(problem), retry_after: None }
    }
}
