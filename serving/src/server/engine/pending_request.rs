//! Pending requests, and why one can fail.

use std::sync::Arc;

use client_sdk::train::TrainError;
use inference::batcher::Refused;
use tokio::sync::oneshot;

use super::super::input::{Input, Prediction};
use super::super::model::Loaded;

/// Callback that compares the classes predicted by canary and stable version for the same examples.
pub(crate) type Compared = Arc<dyn Fn(&[u32], &[u32]) + Send + Sync>;

/// The version, or the pair of versions, that computes a batch.
#[derive(Clone)]
pub(crate) struct ModelPair {
    pub(crate) model: Arc<Loaded>,
    /// The stable version, if the model is a canary.
    pub(crate) comparison: Option<(Arc<Loaded>, Compared)>,
    /// Length of the sequences of a graph, else 0: a batch has one length.
    pub(crate) length: u32,
}

impl ModelPair {
    /// Whether a batch is short enough for a thread that reads requests.
    pub(super) fn is_quick(&self) -> bool {
        self.model.is_quick() && self.comparison.as_ref().is_none_or(|(stable, _)| stable.is_quick())
    }
}

impl PartialEq for ModelPair {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.model, &other.model) && self.length == other.length
    }
}

pub(super) type Answer = Result<Prediction, NoAnswer>;

/// A part of a request that waits for its answer.
pub(super) struct PendingRequest {
    pub(super) input: Input,
    pub(super) answer: oneshot::Sender<Answer>,
}

impl PendingRequest {
    /// Whether the client has disconnected.
    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Unfit(TrainError),
    /// A graph cannot compute these inputs. The node's message is left out, since it quotes an input.
    #[error("an integer among the inputs is outside the model's range, or it divides by 0")]
    Inputs,
    #[error("computing the answer failed")]
    Panicked,
    #[error("shutting down; try again later")]
    ShuttingDown,
}

impl From<TrainError> for NoAnswer {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Prediction(_) => Self::Inputs,
            error => Self::Unfit(error),
        }
    }
}

impl NoAnswer {
    /// Whether the failure counts against the version, given valid inputs.
    pub(crate) fn is_of_version(&self) -> bool {
        match self {
            Self::Unfit(_) | Self::Panicked => true,
            Self::Refused(_) | Self::Inputs | Self::ShuttingDown => false,
        }
    }
}
