//! What a slow line adds to the time that a phase needs.
//!
//! A participant that has measured how long a request and its answer take on its line tells it with its check-ins, coarsely and
//! only where it is worth telling. When a cohort is drawn, the deadlines of its phases move by what most of its lines need:
//! [`RoundLimits::for_lines`]. What participants say is not proven, so no deadline more than doubles, and few who lie in a large
//! cohort move nothing.

use std::time::Duration;

use crate::quantile::quantile;
use crate::round::RoundLimits;

/// Round trips are told in multiples of this, rounded up.
const STEP_MS: u32 = 250;
/// The longest that is told or counted.
const MOST_MS: u32 = 30_000;
/// Round trips by which a deadline moves: to hear that the phase has begun, to fetch what it is about, and to answer.
const ROUND_TRIPS: u64 = 3;

/// A round trip as it is told, in milliseconds; none if it is too short to make a difference.
#[must_use]
pub fn told(round_trip: Duration) -> Option<u32> {
    let millis = u32::try_from(round_trip.as_millis()).unwrap_or(u32::MAX).min(MOST_MS);
    (millis >= STEP_MS).then(|| millis.next_multiple_of(STEP_MS))
}

/// What nine of ten of a cohort's lines do not exceed, in milliseconds, of what its members told; 0 for each that told nothing.
/// Of fewer than ten that is the slowest.
#[must_use]
pub fn of_cohort(mut told: Vec<u32>) -> u32 {
    told.sort_unstable();
    quantile(&told, 0.9).unwrap_or_default().min(MOST_MS)
}

impl RoundLimits {
    /// The same for a cohort whose lines take so long for a round trip, in milliseconds: each phase that waits for members has
    /// as much more time as they need to hear of it, fetch and answer, and at most twice what the task says.
    #[must_use]
    pub fn for_lines(mut self, round_trip_ms: u32) -> Self {
        self.round_trip_ms = (round_trip_ms > 0).then_some(round_trip_ms);
        let more = u64::from(round_trip_ms) * ROUND_TRIPS;
        let extend = |deadline_ms: &mut u64| *deadline_ms = deadline_ms.saturating_add(more.min(*deadline_ms));
        extend(&mut self.collect.deadline_ms);
        if let Some(secure) = &mut self.secure {
            extend(&mut secure.share_deadline_ms);
            extend(&mut secure.confirm_deadline_ms);
            extend(&mut secure.unmask_deadline_ms);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::{PhaseLimits, SecureLimits};

    #[test]
    fn short_round_trips_are_not_told_and_long_ones_coarsely() {
        let told = |millis| told(Duration::from_millis(millis));
        assert_eq!([0, 249, 250, 251, 4000].map(told), [None, None, Some(250), Some(500), Some(4000)]);
        assert_eq!(told(u64::MAX), Some(30_000));
    }

    #[test]
    fn few_who_lie_in_a_large_cohort_move_nothing() {
        assert_eq!(of_cohort(Vec::new()), 0);
        assert_eq!(of_cohort(vec![0, 4000, 0]), 4000);
        let mut cohort = vec![500; 20];
        cohort[..2].fill(u32::MAX);
        assert_eq!(of_cohort(cohort.clone()), 500);
        cohort[2] = u32::MAX;
        assert_eq!(of_cohort(cohort), 30_000, "whatever they say");
    }

    #[test]
    fn deadlines_move_by_what_lines_need_and_at_most_double() {
        let limits = |collect, share| RoundLimits {
            select: PhaseLimits { min: 2, max: 9, deadline_ms: 1000 },
            collect: PhaseLimits { min: 2, max: 9, deadline_ms: collect },
            aggregate_deadline_ms: 1000,
            sampled: None,
            secure: Some(SecureLimits {
                threshold: 2,
                share_deadline_ms: share,
                confirm_deadline_ms: share,
                unmask_deadline_ms: share,
            }),
            groups: None,
            round_trip_ms: None,
        };
        let moved = limits(600_000, 3000).for_lines(4000);
        assert_eq!(moved, RoundLimits { round_trip_ms: Some(4000), ..limits(612_000, 6000) });
        assert_eq!(limits(600_000, 3000).for_lines(0), limits(600_000, 3000));
    }
}
