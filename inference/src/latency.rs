//! Quantiles of the latest durations.

use std::collections::VecDeque;
use std::time::Duration;

/// Number of stored durations; the oldest is dropped first.
const REMEMBERED: usize = 1024;

/// The durations of the latest requests.
#[derive(Clone, Debug, Default)]
pub struct Latencies(VecDeque<Duration>);

impl Latencies {
    pub fn note(&mut self, took: Duration) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(took);
    }

    /// The smallest duration that at least this percentage did not exceed; `None` without durations.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted: Vec<_> = self.0.iter().copied().collect();
        let rank = (sorted.len() * percent.min(100)).div_ceil(100).max(1) - 1;
        (rank < sorted.len()).then(|| *sorted.select_nth_unstable(rank).1)
    }

    /// Removes all recorded durations.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_count_by_their_rank() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile(99), None);
        (1..=100).for_each(|ms| latencies.note(Duration::from_millis(ms)));
        assert_eq!(latencies.percentile(99), Some(Duration::from_millis(99)));
        assert_eq!(latencies.percentile(50), Some(Duration::from_millis(50)));
        assert_eq!(latencies.percentile(0), Some(Duration::from_millis(1)));
        (0..REMEMBERED).for_each(|_| latencies.note(Duration::from_millis(3)));
        assert_eq!(latencies.percentile(100), Some(Duration::from_millis(3)), "older ones are forgotten");
    }
}
