//! Rate limits: GCRA (ITU-T I.371, virtual scheduling) per key, in a bounded map.

use std::collections::HashMap;
use std::net::IpAddr;

use federation::id::{Digest, ParticipantId, TokenId};
use federation::time::Timestamp;

use crate::guarded::Guarded;

/// The subject of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Participant(ParticipantId),
    Operator(TokenId),
    /// An operator whom the identity provider knows, by the SHA-256 that the log names.
    Identity(Digest),
    /// Whoever has the key of the certificate with this SHA-256, and signs with it. Whether it counts is another question.
    Signer(Digest),
    /// An unauthenticated peer. An IPv6 peer usually has a whole /64, which counts as one.
    Address(IpAddr),
}

impl Key {
    #[must_use]
    pub(crate) fn address(address: IpAddr) -> Self {
        Self::Address(match address {
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_none() => {
                IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into())
            }
            other => other.to_canonical(),
        })
    }
}

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
    /// For events that tokens which only read may cause, sign-ins among them, and which the log keeps for ever: two for each server that a
    /// task may have at once, and then one a second.
    pub(crate) const OF_LOG: Self = {
        let rate = Rate { per_second: 1, burst_s: 200 };
        Self { participant: rate, operator: rate, address: rate }
    };
}

/// Maximum number of remembered peers; some 6 MB.
const KEYS_MAX: usize = 100_000;

/// Remembers, for every recent peer, when its allowance will be full again.
pub(crate) struct Limiter {
    rates: Rates,
    /// Microseconds since the epoch.
    whole_again_at: Guarded<HashMap<Key, i64>>,
}

impl Limiter {
    #[must_use]
    pub(crate) fn new(rates: Rates) -> Self {
        Self { rates, whole_again_at: Guarded::new(HashMap::new()) }
    }

    /// Counts one request.
    ///
    /// # Errors
    /// Milliseconds until the next request will be served, if this one is rejected.
    pub(crate) fn admit(&self, key: Key, now: Timestamp) -> Result<(), u64> {
        let rate = match key {
            Key::Participant(_) | Key::Signer(_) => self.rates.participant,
            Key::Operator(_) | Key::Identity(_) => self.rates.operator,
            Key::Address(_) => self.rates.address,
        };
        let now = now.0.saturating_mul(1000);
        let interval = 1_000_000 / i64::from(rate.per_second.max(1));
        let tolerance = i64::from(rate.burst_s) * 1_000_000;
        let mut map = self.whole_again_at.lock();
        if map.len() >= KEYS_MAX && !map.contains_key(&key) {
            map.retain(|_, at| *at > now);
            if map.len() >= KEYS_MAX {
                // Forgetting so many peers gives each a new burst, which does less harm than rejecting all.
                map.clear();
            }
        }
        let at = map.entry(key).or_insert(now);
        // More than one full burst ahead means that the clock was set back: start over.
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
    fn a_clock_that_is_set_back_locks_nobody_out() {
        let limiter = limiter();
        let key = Key::address("10.0.0.1".parse().unwrap());
        while limiter.admit(key, Timestamp(9_000_000)).is_ok() {}
        assert_eq!(limiter.admit(key, Timestamp(1_000_000)), Ok(()));
    }

    #[test]
    fn a_v6_network_is_one_peer() {
        let key = |text: &str| Key::address(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::2:3"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
    }
}
