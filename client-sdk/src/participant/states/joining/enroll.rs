//! Exchanges the token for a certificate. The key is already in the journal, so a lost answer can be requested again
//! with the same key.
//!
//! An externally issued certificate is presented in the handshake and admitted by the token. The app keeps it, so
//! persisting it first is unnecessary.
//!
//! A participant whose certificate has expired re-enrols in the same way, with a new token and a new key. Its models
//! and ledgers are kept; a round in progress is left, since its session belongs to the old certificate. So does one whose
//! authority was replaced (`replaced.rs`).

use wire::participant::{EnrollReply, EnrollRequest};
use wire::problem::ProblemType;

use crate::clock::Now;
use crate::identity::Certified;
use crate::participant::api::error::{ParticipantError, problem_of};
use crate::participant::api::event::Event;
use crate::participant::states::action::Action;
use crate::participant::states::core::{Core, Credential};
use crate::participant::states::state::{CheckIn, Enroll, State};
use crate::transport::retry::{Verdict, judge};
use crate::transport::{Request, TransportError};
use recipe::digest::sha256;

impl Enroll {
    /// Re-enrols a participant whose certificate has expired or was revoked, if it has a token for that.
    pub(in crate::participant) fn anew(core: &mut Core, ended: ParticipantError) -> State {
        match ended {
            ParticipantError::Expired(_) | ParticipantError::Revoked(_) if core.may_come_back() => {
                match core.settings.certificates.are_pre_issued() {
                    false => core.with_next_key(State::Enroll(Self::default())),
                    true if core.pre_issued_certificate.is_some() => State::Enroll(Self::default()),
                    true => State::Finished(Err(ended)),
                }
            }
            ended => State::Finished(Err(ended)),
        }
    }

    pub(in crate::participant) fn action(&self, core: &Core, now: Now) -> Action {
        if let Some(wait) = self.attempts.wait(now) {
            return wait;
        }
        let Some(token) = &core.token else { return Action::Finished(Err(ParticipantError::NotEnrolled)) };
        match core.credential(now) {
            Ok(Credential { csr_pem, certificate_pem, evidence }) => Action::Send(Request::Enroll(EnrollRequest {
                token: token.as_str().to_owned(),
                csr_pem,
                certificate_pem,
                evidence,
                name: core.settings.name.clone(),
                labels: core.settings.labels.clone(),
            })),
            Err(error) => Action::Finished(Err(error)),
        }
    }

    pub(in crate::participant) fn enrolled(
        self,
        core: &mut Core,
        result: Result<EnrollReply, TransportError>,
        now: Now,
    ) -> State {
        let error = match result {
            Ok(reply) => {
                let certified = match Certified::checked(reply, core.wanted_key(), &core.settings.members) {
                    Ok(certified) => certified,
                    Err(error) => return State::Finished(Err(ParticipantError::Uncertified(error))),
                };
                let (participant, name) = (certified.participant, certified.name.clone());
                let is_another = core.was_replaced(participant);
                core.events.push(Event::Enrolled { participant, name });
                core.certify(certified);
                core.token_sha256 = core.token.as_ref().map(|token| sha256(token.as_bytes()));
                let mut enrolled = core.save_identity(State::CheckIn(CheckIn::default()));
                if is_another {
                    enrolled = core.as_another(enrolled);
                }
                return core.forget_keys(enrolled);
            }
            Err(error) => error,
        };
        match judge(&error) {
            Verdict::Again(after) => {
                State::Enroll(Self { attempts: self.attempts.again(core, now, "enrol", &error, after) })
            }
            Verdict::RoundOver | Verdict::Revoked | Verdict::Expired | Verdict::Refused => {
                State::Finished(Err(refused(error)))
            }
        }
    }
}

fn refused(error: TransportError) -> ParticipantError {
    let problem = problem_of(error);
    if problem.problem_type() == Some(ProblemType::EnrollmentRefused) {
        ParticipantError::EnrollmentRefused(problem)
    } else {
        ParticipantError::Refused { what: "enrol", problem }
    }
}
