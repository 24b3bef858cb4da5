//! How slow participants' lines are, as they told with their last check-ins.
//!
//! Kept in memory alone: whoever is on a slow line says so with each check-in, and what follows from it for a round is kept in
//! the round's row when its cohort is drawn.

use std::collections::HashMap;
use std::sync::Arc;

use federation::id::ParticipantId;
use federation::round_trip;

use crate::guarded::Guarded;

/// Slow lines remembered; more make no difference to what most of a cohort need.
const REMEMBERED_MAX: usize = 200_000;

/// Round trips in milliseconds, of slow lines. Clones share them.
#[derive(Clone, Default)]
pub struct RoundTrips(Arc<Guarded<HashMap<ParticipantId, u32>>>);

impl RoundTrips {
    /// Notes what a participant tells of its line, or that it tells nothing.
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

    /// What a cohort's lines need.
    pub(crate) fn of_cohort(&self, cohort: &[ParticipantId]) -> u32 {
        let slow = self.0.lock();
        round_trip::of_cohort(cohort.iter().map(|member| slow.get(member).copied().unwrap_or_default()).collect())
    }
}
