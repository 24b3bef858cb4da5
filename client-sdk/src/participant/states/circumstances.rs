//! Checks the device's conditions, and writes the app's records: data use and refusals.

use super::core::{Core, persist};
use super::state::State;
use crate::clock::Now;
use crate::conditions::{DeviceState, Readiness, Unmet};
use crate::journal::JournalError;
use crate::participant::api::event::{Event, Outcome};
use crate::participant::journal::record::Record;
use crate::participant::journal::snapshot;

/// A process that is killed forgets at most so many bytes.
const UNSAVED: u64 = 256 << 10;

impl Core {
    /// The unmet condition, by the policy on the device's state.
    pub(in crate::participant) fn unmet(&self, state: &DeviceState) -> Option<Unmet> {
        self.settings.device.as_ref()?.unmet(state, self.traffic.used.today.bytes())
    }

    /// Decides whether work may be done, and reports a change of the unmet condition.
    pub(in crate::participant) fn look_at_conditions(&mut self, now: Now) {
        self.traffic.turn(now.wall);
        let unmet = self.unmet(&self.device);
        let name = |unmet: Option<Unmet>| unmet.map(|unmet| unmet.name());
        if let Some(unmet) = unmet.filter(|_| name(unmet) != name(self.held_up)) {
            self.events.push(Event::HeldUp { unmet });
        }
        self.held_up = unmet;
        self.readiness = match (unmet, &self.settings.device) {
            (Some(_), Some(policy)) => Readiness::NotReady { ask_again: policy.ask_again() },
            _ => self.app_readiness,
        };
    }

    /// Writes the refusals, and the data use if much of it is unwritten, before a state without urgency.
    pub(in crate::participant) fn with_notes_saved(&mut self, state: State) -> State {
        let cap = self.settings.device.and_then(|policy| policy.max_bytes_per_day);
        let most = cap.map_or(UNSAVED, |cap| UNSAVED.min(cap / 16));
        let is_quiet = matches!(
            state,
            State::CheckIn(_)
                | State::Upload(_)
                | State::Train(_)
                | State::Abandon(_)
                | State::FetchFinal(_)
                | State::Finished(Ok(Outcome::TaskOver { .. }))
        );
        let has_more = [self.refusals.unsaved, self.traffic.unsaved > most];
        if has_more == [false; 2] || !is_quiet {
            return state;
        }
        persist(self.notes(has_more), state)
    }

    fn notes(&mut self, [refusals, traffic]: [bool; 2]) -> Result<Vec<Record>, JournalError> {
        let mut records = Vec::new();
        if refusals {
            self.refusals.unsaved = false;
            records.push(Record::new(snapshot::REFUSALS.to_owned(), self.refusals.encode()?));
        }
        if traffic {
            self.traffic.unsaved = 0;
            records.push(Record::new(snapshot::TRAFFIC.to_owned(), self.traffic.used.encode()?));
        }
        Ok(records)
    }
}
