//! Extension of deadlines for slow connections.
//!
//! A participant that has measured its round-trip time reports it with its check-ins, coarsely and only if it is significant. When a cohort
//! is drawn, the deadlines of its phases are extended by the 90th percentile of its members' needs: [`RoundLimits::extended_for`]. The
//! reports are unverified, so a deadline at most doubles, and a few false reports in a large cohort have no effect.

use std::time::Duration;

use crate::quantile::quantile;
use crate::round::RoundLimits;

/// Reported round-trip times are multiples of this, rounded up.
const STEP_MS: u32 = 250;
/// Maximum round-trip time in a report.
const MOST_MS: u32 = 30_000;
/// Number of round trips added to a deadline: to learn of the phase, to fetch its data, and to answer.
const ROUND_TRIPS: u64 = 3;

/// A round-trip time as reported, in milliseconds; `None` if too short to matter.
#[must_use]
pub fn reported(round_trip: Duration) -> Option<u32> {
    let millis = u32::try_from(round_trip.as_millis()).unwrap_or(u32::MAX).min(MOST_MS);
    (millis >= STEP_MS).then(|| millis.next_multiple_of(STEP_MS))
}

/// 90th percentile of a cohort's reported round-trip times, in milliseconds, with 0 for members that report none. For
/// fewer than ten members, the maximum.
#[must_use]
pub fn of_cohort(cohort: impl IntoIterator<Item = Option<u32>>) -> u32 {
    let mut reported: Vec<_> = cohort.into_iter().map(Option::unwrap_or_default).collect();
    reported.sort_unstable();
    quantile(&reported, 0.9).unwrap_or_default().min(MOST_MS)
}

impl RoundLimits {
    /// The limits for a cohort with this round-trip time, in milliseconds: each waiting phase is extended by the time to learn of it, fetch
    /// and answer, to at most twice the task's deadline.
    #[must_use]
    pub fn extended_for(mut self, round_trip_ms: u32) -> Self {
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
        let reported = |millis| reported(Duration::from_millis(millis));
        assert_eq!([0, 249, 250, 251, 4000].map(reported), [None, None, Some(250), Some(500), Some(4000)]);
        assert_eq!(reported(u64::MAX), Some(30_000));
    }

    #[test]
    fn few_who_lie_in_a_large_cohort_move_nothing() {
        assert_eq!(of_cohort([]), 0);
        assert_eq!(of_cohort([None, Some(4000), None]), 4000);
        let mut cohort = vec![Some(500); 20];
        cohort[..2].fill(Some(u32::MAX));
        assert_eq!(of_cohort(cohort.clone()), 500);
        cohort[2] = Some(u32::MAX);
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
        let moved = limits(600_000, 3000).extended_for(4000);
        assert_eq!(moved, RoundLimits { round_trip_ms: Some(4000), ..limits(612_000, 6000) });
        assert_eq!(limits(600_000, 3000).extended_for(0), limits(600_000, 3000));
    }
}
