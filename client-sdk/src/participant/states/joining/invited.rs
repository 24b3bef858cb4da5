//! Makes keys for a round that is about to draw its cohort, persists them, and checks in with them.

use std::time::Duration;

use secure_agg::rejection::Refusal;
use wire::Attempt;
use wire::participant::{Declined, Invitation};

use super::join::advertise;
use crate::clock::Now;
use crate::participant::api::event::Event;
use crate::participant::journal::session::SessionError;
use crate::participant::states::attempts::Attempts;
use crate::participant::states::core::{Core, persist};
use crate::participant::states::state::{CheckIn, State};

impl CheckIn {
    pub(in crate::participant) fn invited(self, core: &mut Core, invitation: Invitation, now: Now) -> State {
        let Invitation { task, round, attempt, terms } = invitation;
        let place = Attempt { task, round, attempt };
        let made = match core.session.as_ref().filter(|session| session.place == place) {
            // A coordinator does not invite to an attempt that has drawn its cohort, so this one has lost the draw.
            Some(session) if session.keys().is_none() => Err(SessionError::Over),
            Some(session) if session.terms == terms => {
                // The keys were already sent or drawn: the coordinator has not processed that yet.
                return self.invited_again(core, &"the keys that were asked for exist already", now);
            }
            Some(_) => Err(Refusal::Different { what: "configuration" }.into()),
            // The round's number first: only this check detects a round that was already answered, which must be
            // reported.
            None => core.check_fresh(place).and_then(|()| advertise(core, place, terms)),
        };
        match made {
            Ok(session) => {
                core.behind = None;
                core.events.push(Event::Invited { place });
                let records = core.session_record(&session, None);
                core.session = Some(session);
                persist(records, State::CheckIn(Self::default()))
            }
            Err(error @ (SessionError::Released | SessionError::Over)) => self.behind(core, place, &error, now),
            Err(error) => self.declined(core, place, &error, now),
        }
    }

    /// Reports that the coordinator has lost rounds that this participant answered, or an attempt that it was drawn for.
    /// The next check-in carries the report, and follows at once if the report is new. Repeated invitations to such
    /// rounds are answered after a pause.
    fn behind(self, core: &mut Core, place: Attempt, error: &SessionError, now: Now) -> State {
        let sent = core.released.iter().filter(|round| round.task == place.task).map(|round| round.number).max();
        // Reporting a lost attempt's round keeps its number from being used again. Otherwise this participant could take
        // part only in that round's next attempt.
        let sent = if matches!(error, SessionError::Over) { sent.max(Some(place.round)) } else { sent };
        let told = core.behind;
        core.behind = sent.map(|sent| Declined { task: place.task, sent });
        note_declined(core, place, error);
        if core.behind == told { self.invited_again(core, error, now) } else { State::CheckIn(Self::default()) }
    }

    /// Declines an invitation. This participant has not been assigned yet, so it need not abandon a place. A check-in
    /// reports a new refusal immediately, because other tasks may need this participant.
    pub(in crate::participant) fn declined(
        self,
        core: &mut Core,
        place: Attempt,
        error: &SessionError,
        now: Now,
    ) -> State {
        note_declined(core, place, error);
        if core.report_refusal(place.task, error.code(), now) {
            return State::CheckIn(Self { attempts: Attempts { ready_at: Duration::ZERO, ..self.attempts } });
        }
        self.invited_again(core, error, now)
    }

    fn invited_again(self, core: &mut Core, error: &dyn std::fmt::Display, now: Now) -> State {
        State::CheckIn(Self { attempts: self.attempts.in_vain(core, now, "join the round", error) })
    }
}

/// Notifies the app of a declined invitation, unless the last notification was for the same attempt.
fn note_declined(core: &mut Core, place: Attempt, error: &SessionError) {
    if core.declined != Some(place) {
        core.declined = Some(place);
        core.events.push(Event::Refused { place, reason: error.to_string() });
    }
}
