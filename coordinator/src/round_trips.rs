//! Round-trip times of participants on slow connections, from their last check-ins.
//!
//! In memory only: participants repeat the report with each check-in, and the result for a round is stored in its row
//! when the cohort is drawn.

use std::collections::HashMap;
use std::sync::Arc;

use federation::id::ParticipantId;
use federation::round_trip;

use crate::guarded::Guarded;

/// Maximum number of participants remembered; more make no difference to most of a cohort.
const REMEMBERED_MAX: usize = 200_000;

/// Round-trip times in milliseconds, of slow connections. Clones share them.
#[derive(Clone, Default)]
pub struct RoundTrips(Arc<Guarded<HashMap<ParticipantId, u32>>>);

impl RoundTrips {
    /// Records a participant's report, or its absence.
    pub(crate) fn note(&self, participant: ParticipantId, round_trip_ms: Option<u32>) {
        let mut slow = self.0.lock();
        match round_trip_ms {
            Some(millis) if slow.len() < REMEMBERED_MAX || slow.contains_key(&participant) => {
                slow.insert(participant, millis);
            }
            Some(_) => {}
            None => {
                slow.remove(&participant);
            }
        }
    }

    /// The round-trip time to allow for in a cohort, in milliseconds.
    pub(crate) fn of_cohort(&self, cohort: &[ParticipantId]) -> u32 {
        let slow = self.0.lock();
        round_trip::of_cohort(cohort.iter().map(|member| slow.get(member).copied().unwrap_or_default()).collect())
    }
}
