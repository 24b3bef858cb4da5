//! The withdrawal of a participant at its own request, while it is stopped.

use wire::contributions::SignedContributions;

use super::builder::Builder;
use crate::participant::api::build_error::BuildError;
use crate::participant::api::error::{ParticipantError, problem_of};
use crate::transport::retry::{Verdict, judge};
use crate::transport::{Request, Response, Transport, TransportError};

/// Number of requests before the coordinator counts as unreachable.
const MAX_TRIES: u32 = 6;

/// Why a withdrawal has failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithdrawalError {
    /// A setting or the journal cannot be used, or the coordinator rejected the request. The participant is not withdrawn.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The coordinator is unreachable. It may have received the request: repeat it.
    #[error("the coordinator cannot be reached: {0}; repeat the withdrawal")]
    Unreachable(TransportError),
    /// The participant is withdrawn, and the coordinator's statement proves nothing.
    #[error("the participant is withdrawn, but the coordinator's statement about its contributions is rejected: {0}")]
    Statement(String),
}

impl From<ParticipantError> for WithdrawalError {
    fn from(error: ParticipantError) -> Self {
        Self::Build(error.into())
    }
}

impl Builder {
    /// Withdraws the participant: the coordinator revokes it for good, and rejects what it has not accepted yet of an update. Returns the
    /// coordinator's signed statement about the rounds and versions that contain its updates; store it as evidence. Verified: the
    /// signature, by the key that the app names or that signed the models, and the participant's id.
    ///
    /// The participant must be stopped, since it locks the journal, and needs no trainer. Repeated, it returns a new statement. It leaves the
    /// journal as it is: delete it to delete the personalized models.
    ///
    /// # Errors
    /// [`WithdrawalError`].
    pub async fn withdraw(mut self) -> Result<SignedContributions, WithdrawalError> {
        let mut machine = self.machine()?;
        let identity = machine.identity().ok_or(ParticipantError::NotEnrolled)?;
        let participant = identity.certified.participant;
        let transport = self.chosen_transport()?;
        transport.identify(identity).map_err(ParticipantError::Certificate)?;
        let mut tries = 0;
        let signed = loop {
            tries += 1;
            let error = match ask(&*transport).await {
                Ok(signed) => break signed,
                Err(error) => error,
            };
            let after = match judge(&error) {
                Verdict::Again(after) if tries < MAX_TRIES => after,
                Verdict::Again(_) => return Err(WithdrawalError::Unreachable(error)),
                Verdict::Expired => return Err(ParticipantError::Expired(problem_of(error)).into()),
                Verdict::Revoked => return Err(ParticipantError::Revoked(problem_of(error)).into()),
                Verdict::RoundOver | Verdict::Refused => {
                    return Err(ParticipantError::Refused { what: "withdraw", problem: problem_of(error) }.into());
                }
            };
            let retry = &machine.core.settings.retry;
            let pause = retry.delay(tries, retry.most, after, &mut machine.core.rng);
            tokio::time::sleep(pause.min(retry.most)).await;
        };
        let statement = signed.open().map_err(|error| WithdrawalError::Statement(error.to_string()))?;
        let keys = machine.core.shown.keys(&machine.core.settings.coordinator_keys);
        let wrong = if statement.participant != participant {
            Some(format!("it is about participant {}", statement.participant))
        } else if !keys.is_empty() && !keys.contains(&statement.coordinator) {
            Some(format!("{} has signed it, which is another coordinator's key", statement.coordinator))
        } else if statement.revoked_at.is_none() {
            Some("it does not state that the participant is revoked".to_owned())
        } else {
            None
        };
        wrong.map_or(Ok(signed), |wrong| Err(WithdrawalError::Statement(wrong)))
    }
}

async fn ask(transport: &dyn Transport) -> Result<SignedContributions, TransportError> {
    match transport.send(&Request::Withdraw).await {
        Response::Withdrawn(result) => result,
        _ => Err(TransportError::protocol("the transport has answered another request")),
    }
}
