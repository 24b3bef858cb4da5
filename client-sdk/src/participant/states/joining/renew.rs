//! Renews the certificate before it expires, for a new key. The key is in the journal before it is sent, the
//! certificate before it is used: after a crash in between, the participant continues with the old certificate or
//! requests a new one for the same key. While the old certificate is valid, a failure does not stop the participant.
//!
//! Externally issued certificates are not requested: a newer one is sent to the coordinator over a connection that
//! presents the current one, and used once it is admitted and persisted.

use std::time::Duration;

use wire::participant::{EnrollReply, RenewRequest};

use crate::clock::Now;
use crate::identity::{CertificateError, Certified};
use crate::participant::api::error::ParticipantError;
use crate::participant::api::event::Event;
use crate::participant::states::action::Action;
use crate::participant::states::core::{Core, Credential};
use crate::participant::states::state::{CheckIn, Renew, State};
use crate::pre_issued::UsableCertificate;
use crate::transport::retry::judge;
use crate::transport::{Request, TransportError};

/// Minimum time between two renewals, even if the wall clock jumps.
pub(in crate::participant) const PAUSE: Duration = Duration::from_secs(60);
/// Maximum time between two checks for a newer external certificate.
const LONGEST_LOOK: Duration = Duration::from_secs(24 * 3600);

const RENEW: &str = "renew the certificate";

fn bad(error: &CertificateError) -> String {
    format!("the certificate that is there: {error}")
}

impl Renew {
    /// Drops keys whose cohort was not drawn: they belong to the expiring certificate.
    pub(in crate::participant) fn enter(core: &mut Core, then: CheckIn, now: Now) -> State {
        let renew = if core.settings.certificates.are_pre_issued() {
            match Self::find(core, now) {
                Ok(true) => State::Renew(Self { then }),
                Ok(false) => return State::CheckIn(then),
                Err((error, after)) => {
                    core.next_renewal = now.elapsed.saturating_add(after);
                    core.events.push(Event::Retry { what: RENEW, error, after });
                    return State::CheckIn(then);
                }
            }
        } else {
            core.with_next_key(State::Renew(Self { then }))
        };
        if core.session.is_some() { core.forget_keys(renew) } else { renew }
    }

    /// The event for an external certificate that cannot be the next one.
    pub(in crate::participant) fn bad(error: &CertificateError) -> Event {
        Event::Retry { what: RENEW, error: bad(error), after: PAUSE }
    }

    /// Looks for a newer external certificate, unless one was found already. Returns whether there is one. If it is
    /// missing although the current one is due, returns the reason and the time until the next check.
    fn find(core: &mut Core, now: Now) -> Result<bool, (String, Duration)> {
        let is_good = |given: &UsableCertificate| given.begins_at() <= now.wall && now.wall < given.expires_at();
        core.pre_issued_certificate = core.pre_issued_certificate.take().filter(is_good);
        let mut begins_at = None;
        if core.pre_issued_certificate.is_none() {
            let found = core.settings.certificates.other_than(core.identity.as_deref(), &core.settings.members);
            let found = found.map_err(|error| (bad(&error), PAUSE))?;
            core.look_again = false;
            begins_at = found.as_ref().map(UsableCertificate::begins_at).filter(|begins_at| *begins_at > now.wall);
            core.pre_issued_certificate = found.filter(is_good);
        }
        if core.pre_issued_certificate.is_some() {
            return Ok(true);
        }
        if core.identity.as_ref().is_some_and(|present| now.wall < present.certified.renew_at) {
            return Ok(false);
        }
        let ends = core.identity.as_ref().map_or(now.wall, |identity| identity.certified.expires_at);
        // More often as the expiry comes closer.
        let left = Duration::from_millis(u64::try_from(ends.0.saturating_sub(now.wall.0)).unwrap_or(0));
        let why = match begins_at {
            Some(begins_at) => format!("it ends at {ends}, and the next one begins at {begins_at}"),
            None => {
                format!("it ends at {ends}, and whoever issues certificates to this device has given it no newer one")
            }
        };
        Err((why, (left / 10).clamp(PAUSE, LONGEST_LOOK)))
    }

    pub(in crate::participant) fn action(&self, core: &Core, now: Now) -> Action {
        match core.credential(now) {
            Ok(Credential { csr_pem, certificate_pem, evidence }) => {
                Action::Send(Request::Renew(RenewRequest { csr_pem, certificate_pem, evidence }))
            }
            Err(error) => Action::Finished(Err(error)),
        }
    }

    pub(in crate::participant) fn renewed(
        self,
        core: &mut Core,
        result: Result<EnrollReply, TransportError>,
        now: Now,
    ) -> State {
        core.next_renewal = now.elapsed.saturating_add(PAUSE);
        let error = match result {
            Ok(reply) if Some(reply.participant) == core.identity.as_ref().map(|own| own.certified.participant) => {
                match Certified::checked(reply, core.wanted_key(), &core.settings.members) {
                    Ok(certified) => {
                        core.events.push(Event::Renewed);
                        core.certify(certified);
                        return core.save_identity(State::CheckIn(self.then));
                    }
                    Err(error) => TransportError::protocol(format!("the renewed certificate is refused: {error}")),
                }
            }
            Ok(_) => TransportError::protocol("the renewed certificate is another participant's"),
            Err(error) => error,
        };
        if let Some(end) = core.fatal(&error, judge(&error)) {
            return State::Finished(Err::<_, ParticipantError>(end));
        }
        core.events.push(Event::Retry { what: RENEW, error: error.to_string(), after: PAUSE });
        State::CheckIn(self.then)
    }
}
