//! Renews the certificate in good time, for a new key. The key is in the journal before it is sent, the certificate before it is
//! used: killed in between, the participant goes on with the old one, or asks again for the same key. As long as the old
//! one holds, a failure is not worth stopping for.

use std::time::Duration;

use wire::participant::{EnrollReply, RenewRequest};

use super::check_in::CheckIn;
use super::core::Core;
use super::error::ParticipantError;
use super::event::Event;
use super::machine::{Action, Request, State};
use crate::clock::Now;
use crate::identity::Certified;
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
    /// Lets go of keys whose cohort was not drawn: they are of the certificate that ends.
    pub(super) fn enter(core: &mut Core, then: CheckIn) -> State {
        let renew = core.with_next_key(State::Renew(Self { then }));
        if core.session.is_some() { core.forget_keys(renew) } else { renew }
    }

    pub(super) fn action(&self, core: &Core) -> Action {
        match core.wanted_key().signing_request() {
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
                match Certified::checked(reply, core.wanted_key(), &core.settings.members) {
                    Ok(certified) => {
                        core.events.push(Event::Renewed);
                        core.certify(certified);
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
