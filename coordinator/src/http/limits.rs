//! Rate limits: GCRA (ITU-T I.371, virtual scheduling) per key, in a bounded map.

use std::collections::HashMap;

use federation::time::Timestamp;
use listener::{Key, PoisonFreeMutex};

/// Requests per second on average, and the number of seconds' worth allowed at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// At least 1.
    pub(crate) per_second: u32,
    /// At least 1.
    pub(crate) burst_s: u32,
}

/// The limits for each kind of peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) participant: Rate,
    pub(crate) operator: Rate,
    pub(crate) address: Rate,
}

impl Rates {
    /// For permanent log events caused by read-only tokens, including sign-ins: a burst of two for each possible server of a task, then one
    /// a second.
    pub(crate) const OF_LOG: Self = {
        let rate = Rate { per_second: 1, burst_s: 200 };
        Self { participant: rate, operator: rate, address: rate }
    };
}

/// Maximum number of tracked peers; some 6 MB.
const KEYS_MAX: usize = 100_000;

/// Stores for every recent peer when its full allowance is restored.
pub(crate) struct Limiter {
    rates: Rates,
    /// Microseconds since the epoch.
    whole_again_at: PoisonFreeMutex<HashMap<Key, i64>>,
}

impl Limiter {
    #[must_use]
    pub(crate) fn new(rates: Rates) -> Self {
        Self { rates, whole_again_at: PoisonFreeMutex::new(HashMap::new()) }
    }

    /// Counts one request.
    ///
    /// # Errors
    /// Milliseconds until the next request is accepted.
    pub(crate) fn admit(&self, key: Key, now: Timestamp) -> Result<(), u64> {
        let rate = self.rate(key);
        self.count(key, 1_000_000 / i64::from(rate.per_second.max(1)), rate, now)
    }

    /// Counts a costly request, as many as a second allows.
    ///
    /// # Errors
    /// As for [`Self::admit`].
    pub(crate) fn admit_costly(&self, key: Key, now: Timestamp) -> Result<(), u64> {
        self.count(key, 1_000_000, self.rate(key), now)
    }

    fn rate(&self, key: Key) -> Rate {
        match key {
            Key::Participant(_) | Key::Signer(_) => self.rates.participant,
            Key::Operator(_) | Key::Identity(_) => self.rates.operator,
            Key::Address(_) => self.rates.address,
        }
    }

    /// Counts a request that takes `interval` microseconds of the allowance.
    fn count(&self, key: Key, interval: i64, rate: Rate, now: Timestamp) -> Result<(), u64> {
        let now = now.0.saturating_mul(1000);
        let tolerance = i64::from(rate.burst_s) * 1_000_000;
        let mut map = self.whole_again_at.lock();
        if map.len() >= KEYS_MAX && !map.contains_key(&key) {
            map.retain(|_, at| *at > now);
            if map.len() >= KEYS_MAX {
                // Forgetting all peers grants each a new burst, a lesser harm than rejecting all.
                map.clear();
            }
        }
        let at = map.entry(key).or_insert(now);
        // More than one full burst ahead means a clock set back: start over.
        if *at - now > tolerance + interval {
            *at = now;
        }
        let next = (*at).max(now) + interval;
        if next - now > tolerance {
            return Err(u64::try_from((next - now - tolerance).div_euclid(1000) + 1).unwrap_or(1));
        }
        *at = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> Limiter {
        let rate = Rate { per_second: 10, burst_s: 2 };
        Limiter::new(Rates { participant: rate, operator: rate, address: rate })
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let limiter = limiter();
        let key = Key::address("10.0.0.1".parse().unwrap());
        let served = |from: i64, n: usize| (0..n).filter(|_| limiter.admit(key, Timestamp(from)).is_ok()).count();
        assert_eq!(served(1_000_000, 100), 20);
        assert_eq!(limiter.admit(key, Timestamp(1_000_000)), Err(101));
        assert_eq!(served(1_000_500, 100), 5);
        assert_eq!(served(1_010_000, 100), 20);
        assert_eq!(limiter.admit(Key::address("10.0.0.2".parse().unwrap()), Timestamp(1_010_000)), Ok(()));
    }

    #[test]
    fn costly_requests_pass_once_a_second() {
        let limiter = limiter();
        let key = Key::address("10.0.0.1".parse().unwrap());
        let served =
            |from: i64, n: usize| (0..n).filter(|_| limiter.admit_costly(key, Timestamp(from)).is_ok()).count();
        assert_eq!(served(1_000_000, 10), 2);
        assert!(limiter.admit(key, Timestamp(1_000_000)).is_err(), "they share one allowance");
        assert_eq!(served(1_001_000, 10), 1);
        assert_eq!(served(1_010_000, 10), 2);
    }

    #[test]
    fn a_clock_that_is_set_back_locks_nobody_out() {
        let limiter = limiter();
        let key = Key::address("10.0.0.1".parse().unwrap());
        while limiter.admit(key, Timestamp(9_000_000)).is_ok() {}
        assert_eq!(limiter.admit(key, Timestamp(1_000_000)), Ok(()));
    }
}
