//! What the participant has sent and received, today and ever, as the journal remembers it.

use serde::{Deserialize, Serialize};
use wire::Timestamp;

use super::core::{Core, persist};
use super::event::Event;
use super::record::Record;
use super::snapshot;
use super::state::State;
use crate::clock::Now;
use crate::conditions::{DeviceState, Readiness, Unmet};
use crate::transport::Traffic;

/// A process that is killed forgets at most so many bytes.
const UNSAVED: u64 = 256 << 10;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// Bytes sent and received, without those of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataUse {
    /// The day, in days of UTC since 1970.
    pub day: i64,
    pub today: Traffic,
    /// Since the participant was enrolled with this journal.
    pub total: Traffic,
}

/// The data use, and how much of it the journal does not know yet.
#[derive(Default)]
pub(super) struct TrafficLedger {
    pub(super) used: DataUse,
    unsaved: u64,
}

impl TrafficLedger {
    pub(super) fn new(used: DataUse) -> Self {
        Self { used, unsaved: 0 }
    }

    pub(super) fn add(&mut self, more: Traffic) {
        self.used.today.add(more);
        self.used.total.add(more);
        self.unsaved = self.unsaved.saturating_add(more.bytes());
    }

    /// Begins a new day, if it is one. A calendar that jumps begins one, too.
    fn turn(&mut self, wall: Timestamp) {
        let day = wall.0.div_euclid(DAY_MS);
        if day != self.used.day {
            (self.used.day, self.used.today) = (day, Traffic::default());
        }
    }
}

impl Core {
    /// What holds the participant up, by the policy on the device's state.
    pub(super) fn unmet(&self, state: &DeviceState) -> Option<Unmet> {
        self.settings.device.as_ref()?.unmet(state, self.traffic.used.today.bytes())
    }

    /// Decides whether work may be done, and tells when another condition holds it up.
    pub(super) fn look_at_conditions(&mut self, now: Now) {
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

    /// Writes the data use before a state that nothing waits for, if much is not written yet.
    pub(super) fn with_traffic_saved(&mut self, state: State) -> State {
        let cap = self.settings.device.and_then(|policy| policy.max_bytes_per_day);
        let most = cap.map_or(UNSAVED, |cap| UNSAVED.min(cap / 16));
        let is_quiet = matches!(state, State::CheckIn(_) | State::Upload(_) | State::Train(_) | State::Abandon(_));
        if self.traffic.unsaved <= most || !is_quiet {
            return state;
        }
        self.traffic.unsaved = 0;
        let bytes = self.traffic.used.encode();
        persist(bytes.map(|bytes| vec![Record::new(snapshot::TRAFFIC.to_owned(), bytes)]), state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_at_midnight_of_utc_and_the_total_goes_on() {
        let mut ledger = TrafficLedger::default();
        let at = |hours: i64| Timestamp(hours * 3_600_000);
        ledger.turn(at(47));
        ledger.add(Traffic { sent: 3, received: 4 });
        ledger.turn(at(47));
        assert_eq!((ledger.used.day, ledger.used.today.bytes()), (1, 7));
        ledger.turn(at(48));
        ledger.add(Traffic { sent: 1, received: 0 });
        assert_eq!((ledger.used.day, ledger.used.today.bytes(), ledger.used.total.bytes()), (2, 1, 8));
        let record = ledger.used.encode().unwrap();
        assert_eq!(DataUse::restore(Some(&record)).unwrap(), ledger.used);
        assert_eq!(DataUse::restore(None).unwrap(), DataUse::default());
    }
}
