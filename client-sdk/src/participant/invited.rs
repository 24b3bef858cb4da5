//! Makes keys for a round that is about to draw its cohort, persists them, and checks in with them.

use secure_agg::rejection::Refusal;
use wire::participant::{Declined, Invitation};
use wire::{Attempt, Digest};

use super::core::{Core, persist};
use super::event::Event;
use super::join::advertise;
use super::session::SessionError;
use super::state::{AwaitAbortProof, CheckIn, State};
use super::used_bases::BaseId;
use crate::clock::Now;

/// Checks that an input from the base named by an invitation, if any, may be sent.
fn check_base(core: &Core, base: Option<Digest>, place: Attempt) -> Result<(), SessionError> {
    base.map_or(Ok(()), |base| core.used_bases.check(BaseId::from(base), place))
}

impl CheckIn {
    pub(super) fn invited(self, core: &mut Core, invitation: Invitation, now: Now) -> State {
        let Invitation { task, round, attempt, terms, base } = invitation;
        let place = Attempt { task, round, attempt };
        let made = match core.session.as_ref().filter(|session| session.place == place) {
            Some(session) if session.terms == terms => {
                // The keys were already sent or drawn: the coordinator has not processed that yet.
                return self.invited_again(core, &"the keys that were asked for exist already", now);
            }
            Some(_) => Err(Refusal::Different { what: "configuration" }.into()),
            // The round's number first: only this check detects a round that was already answered, which must be
            // reported.
            None => match core.check_fresh(place).and_then(|()| check_base(core, base, place)) {
                Ok(()) => advertise(core, place, terms),
                Err(error @ (SessionError::Released | SessionError::Over)) => Err(error),
                Err(error) => {
                    return match base.and_then(|base| core.used_bases.latest(base.into())) {
                        Some(input) => State::AwaitAbortProof(AwaitAbortProof::new(place, input, self)),
                        None => self.declined(core, place, &error, now),
                    };
                }
            },
        };
        match made {
            Ok(session) => {
                core.behind = None;
                core.events.push(Event::Invited { place });
                let records = core.session_record(&session, None);
                core.session = Some(session);
                persist(records, State::CheckIn(Self::default()))
            }
            Err(error @ SessionError::Released) => self.behind(core, place, &error, now),
            Err(error) => self.declined(core, place, &error, now),
        }
    }

    /// The coordinator does not know of rounds that this participant has answered. Report that with the next check-in,
    /// at once if it is new; repeated invitations to such rounds are answered after a pause.
    fn behind(self, core: &mut Core, place: Attempt, error: &SessionError, now: Now) -> State {
        let sent = core.released.iter().filter(|round| round.task == place.task).map(|round| round.number).max();
        let told = core.behind;
        core.behind = sent.map(|sent| Declined { task: place.task, sent });
        let state = self.declined(core, place, error, now);
        if core.behind == told { state } else { State::CheckIn(Self::default()) }
    }

    /// Nothing was promised yet, so nothing is abandoned; the next check-in follows after a pause.
    pub(super) fn declined(self, core: &mut Core, place: Attempt, error: &SessionError, now: Now) -> State {
        if core.declined != Some(place) {
            core.declined = Some(place);
            core.events.push(Event::Refused { place, reason: error.to_string() });
        }
        self.invited_again(core, error, now)
    }

    fn invited_again(self, core: &mut Core, error: &dyn std::fmt::Display, now: Now) -> State {
        State::CheckIn(Self { attempts: self.attempts.in_vain(core, now, "join the round", error) })
    }
}
