//! The desired number of replicas, as a recommendation for an autoscaler.

use std::time::Duration;

/// A slower 99th percentile requires more replicas.
const SLOW: Duration = Duration::from_millis(100);
/// A faster one allows fewer replicas, if the processor is idle.
const FAST: Duration = Duration::from_millis(20);
/// Processor use above which more, and below which fewer, replicas are recommended.
const BUSY: f64 = 0.8;
const IDLE: f64 = 0.2;
/// A longer queue requires more replicas.
const LONG_QUEUE: usize = 100;

/// Minimum and maximum number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    pub min: u32,
    pub max: u32,
}

impl Default for Replicas {
    fn default() -> Self {
        Self { min: 1, max: 10 }
    }
}

/// The recent load of a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// 99th percentile of the latency; zero without requests.
    pub latency: Duration,
    /// Fraction of processor time in use, 0 to 1.
    pub processor: f64,
    /// Maximum queue length, including rejected requests.
    pub queue: usize,
}

impl Replicas {
    /// The desired number of replicas, given `now`: doubled if one signal is too high, decreased by one if all are low,
    /// always within the limits. Ignores a load that is not a number.
    #[must_use]
    pub fn desired(&self, now: u32, load: Load) -> u32 {
        let is_short = load.latency > SLOW || load.processor > BUSY || load.queue > LONG_QUEUE;
        let is_ample = load.latency < FAST && load.processor < IDLE;
        let wanted = match (is_short, is_ample) {
            (true, _) => now.saturating_mul(2),
            (false, true) => now.saturating_sub(1),
            (false, false) => now,
        };
        wanted.max(self.min).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_by_its_cases() {
        let limits = Replicas::default();
        for (now, latency_ms, processor, queue, desired, why) in [
            (1, 101, 0.0, 0, 2, "slow"),
            (3, 50, 0.81, 0, 6, "the processor is busy"),
            (3, 10, 0.1, 101, 6, "many wait, however idle the rest"),
            (6, 101, 0.9, 101, 10, "never more than the most"),
            (10, 500, 1.0, 500, 10, "already the most"),
            (5, 19, 0.19, 0, 4, "fast and idle"),
            (5, 19, 0.19, 100, 4, "a queue of exactly 100 is not long"),
            (1, 1, 0.0, 0, 1, "never fewer than the least"),
            (5, 20, 0.1, 0, 5, "not fast enough to lose one"),
            (5, 10, 0.2, 0, 5, "not idle enough to lose one"),
            (5, 100, 0.8, 100, 5, "the limits themselves ask for nothing"),
            (0, 1, 0.0, 0, 1, "none is fewer than the least"),
            (40, 50, 0.5, 0, 10, "more than the most is too many"),
            (u32::MAX, 200, 0.5, 0, 10, "no overflow"),
            (4, 10, f64::NAN, 0, 4, "a share that is no number says nothing"),
        ] {
            let load = Load { latency: Duration::from_millis(latency_ms), processor, queue };
            assert_eq!(limits.desired(now, load), desired, "{why}");
        }
        let fixed = Replicas { min: 3, max: 3 };
        let slow = Load { latency: Duration::from_secs(1), processor: 1.0, queue: 1000 };
        assert_eq!(fixed.desired(3, slow), 3);
    }
}
