//! Renews the certificate in good time. As long as the old one holds, a failure is not worth stopping for.

use std::sync::Arc;
use std::time::Duration;

use wire::participant::{EnrollReply, RenewRequest};

use super::check_in::CheckIn;
use super::core::Core;
use super::error::ParticipantError;
use super::event::Event;
use super::machine::{Action, Request, State};
use crate::clock::Now;
use crate::identity::{Certified, Identity};
use crate::transport::TransportError;
use crate::transport::retry::judge;

/// Least time between two renewals, whatever the calendar says.
const PAUSE: Duration = Duration::from_secs(60);

/// The certificate is due.
pub(super) struct Renew {
    /// Goes on where it was, and not before its time.
    pub(super) then: CheckIn,
}

impl Renew {
    pub(super) fn action(&self, core: &Core) -> Action {
        match core.key.signing_request() {
            Ok(csr_pem) => {
                Action::Send(Request::Renew(RenewRequest { evidence: core.settings.evidence.of(&csr_pem), csr_pem }))
            }
            Err(error) => Action::Finished(Err(error.into())),
        }
    }

    pub(super) fn renewed(self, core: &mut Core, result: Result<EnrollReply, TransportError>, now: Now) -> State {
        core.next_renewal = now.elapsed.saturating_add(PAUSE);
        let error = match result {
            Ok(reply) if Some(reply.participant) == core.identity.as_ref().map(|own| own.certified.participant) => {
                match Certified::checked(reply, &core.key, &core.settings.members) {
                    Ok(certified) => {
                        core.events.push(Event::Renewed);
                        core.identity = Some(Arc::new(Identity { key: Arc::clone(&core.key), certified }));
                        return core.save_identity(State::CheckIn(self.then));
                    }
                    Err(error) => TransportError::Protocol(format!("the renewed certificate is refused: {error}")),
                }
            }
            Ok(_) => TransportError::Protocol("the renewed certificate is another participant's".to_owned()),
            Err(error) => error,
        };
        if let Some(end) = core.fatal(&error, judge(&error)) {
            return State::Finished(Err::<_, ParticipantError>(end));
        }
        core.events.push(Event::Retry { what: "renew the certificate", error: error.to_string(), after: PAUSE });
        State::CheckIn(self.then)
    }
}
