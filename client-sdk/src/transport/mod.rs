//! The connection to the coordinator: one method per route, and errors that distinguish whether a retry can help.
//!
//! The trait is small so that it can be wrapped (a flaky network in a test, a vanishing participant in a demo) or
//! replaced (a simulation). It transfers bytes and has no state; [`retry`] decides on retries.

#[cfg(feature = "https")]
pub mod https;
pub mod retry;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use wire::participant::{
    AbandonReason, Announcement, Answer, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, ModelRef, Receipt,
    RefusalCode, RenewRequest,
};
use wire::problem::Problem;
use wire::{Attempt, Digest, ParticipantId, TaskId};

use crate::identity::Identity;

#[cfg(feature = "https")]
pub use https::HttpsTransport;

/// Reasons a request has no answer.
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
    #[error("the coordinator could not be reached: {}", with_causes(.0))]
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

/// The outermost error of a refused certificate only says that sending failed.
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

impl From<Problem> for TransportError {
    fn from(problem: Problem) -> Self {
        Self::Problem { problem: Box::new(problem), retry_after: None }
    }
}

/// A masked input on its way.
#[derive(Clone)]
pub struct Upload {
    pub place: Attempt,
    pub participant: ParticipantId,
    pub sha256: Digest,
    /// The packed words.
    pub body: Bytes,
    /// With secure aggregation: `secure_agg::messages::MaskedInput`, the participant's signature on the body.
    pub signed: Option<Bytes>,
}

/// A place to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandonment {
    pub place: Attempt,
    pub participant: ParticipantId,
    pub reason: AbandonReason,
    /// What was refused, with [`AbandonReason::Refused`].
    pub refusal: Option<RefusalCode>,
}

/// The coordinator's routes for participants.
///
/// Futures may be dropped at any time; every request may be repeated.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Uses this identity from now on. Called before the first request that needs one, and after each renewal.
    ///
    /// # Errors
    /// [`TransportError::Protocol`] if the certificate cannot be used.
    fn identify(&self, identity: &Identity) -> Result<(), TransportError>;

    /// Exchanges a one-time token for a certificate.
    async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollReply, TransportError>;

    async fn renew(&self, request: &RenewRequest) -> Result<EnrollReply, TransportError>;

    async fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReply, TransportError>;

    /// Appends a model version's safetensors file, from byte `sink.len()` on, to `sink`, which must not grow beyond
    /// `model.bytes`. After an error `sink` keeps the bytes received, and the next call continues from there.
    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Vec<u8>) -> Result<(), TransportError>;

    /// Uploads a masked input.
    async fn upload(&self, upload: &Upload) -> Result<Receipt, TransportError>;

    /// An announcement of the coordinator in a secure aggregation session, encoded. Waits up to `wait`; `None` if it is
    /// not available yet.
    async fn announcement(
        &self,
        what: Announcement,
        place: Attempt,
        participant: ParticipantId,
        wait: Duration,
    ) -> Result<Option<Bytes>, TransportError>;

    /// What a dealer dealt, as it signed it: asked for when something of it does not open.
    async fn evidence(&self, place: Attempt, dealer: ParticipantId) -> Result<Bytes, TransportError>;

    /// Sends a secure aggregation message, encoded.
    async fn answer(
        &self,
        what: Answer,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError>;

    /// Gives up a place.
    async fn abandon(&self, abandonment: &Abandonment) -> Result<(), TransportError>;

    /// Sends an encoded `secure_agg::unopened::AbortStatement`: the participant left the session for good without
    /// answering.
    async fn abort_statement(
        &self,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError>;

    /// What members of a session said who have left it, with its roster: an encoded `secure_agg::unopened::AbortProof`. None as long as
    /// they are too few.
    async fn abort_statements(&self, place: Attempt) -> Result<Option<Bytes>, TransportError>;
}

#[async_trait]
impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        (**self).identify(identity)
    }

    async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollReply, TransportError> {
        (**self).enroll(request).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<EnrollReply, TransportError> {
        (**self).renew(request).await
    }

    async fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        (**self).check_in(request).await
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Vec<u8>) -> Result<(), TransportError> {
        (**self).fetch_model(task, model, sink).await
    }

    async fn upload(&self, upload: &Upload) -> Result<Receipt, TransportError> {
        (**self).upload(upload).await
    }

    async fn announcement(
        &self,
        what: Announcement,
        place: Attempt,
        participant: ParticipantId,
        wait: Duration,
    ) -> Result<Option<Bytes>, TransportError> {
        (**self).announcement(what, place, participant, wait).await
    }

    async fn evidence(&self, place: Attempt, dealer: ParticipantId) -> Result<Bytes, TransportError> {
        (**self).evidence(place, dealer).await
    }

    async fn answer(
        &self,
        what: Answer,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        (**self).answer(what, place, participant, body).await
    }

    async fn abandon(&self, abandonment: &Abandonment) -> Result<(), TransportError> {
        (**self).abandon(abandonment).await
    }

    async fn abort_statement(
        &self,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        (**self).abort_statement(place, participant, body).await
    }

    async fn abort_statements(&self, place: Attempt) -> Result<Option<Bytes>, TransportError> {
        (**self).abort_statements(place).await
    }
}
