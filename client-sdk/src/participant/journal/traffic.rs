//! The participant's traffic, today and in total, in the journal.

use serde::{Deserialize, Serialize};
use wire::Timestamp;

use crate::transport::Traffic;

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
pub(in crate::participant) struct TrafficLedger {
    pub(in crate::participant) used: DataUse,
    pub(in crate::participant) unsaved: u64,
}

impl TrafficLedger {
    pub(in crate::participant) fn new(used: DataUse) -> Self {
        Self { used, unsaved: 0 }
    }

    pub(in crate::participant) fn add(&mut self, more: Traffic) {
        self.used.today.add(more);
        self.used.total.add(more);
        self.unsaved = self.unsaved.saturating_add(more.bytes());
    }

    /// Begins a new day, if it is one. A calendar that jumps begins one, too.
    pub(in crate::participant) fn turn(&mut self, wall: Timestamp) {
        let day = wall.0.div_euclid(DAY_MS);
        if day != self.used.day {
            (self.used.day, self.used.today) = (day, Traffic::default());
        }
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
