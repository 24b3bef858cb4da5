//! Recently used nonces of signed requests: see [`super::signed_request`].

use std::collections::HashSet;
use std::time::Duration;

use federation::id::Digest;
use federation::time::Timestamp;
use listener::PoisonFreeMutex;
use wire::signature::WINDOW;

/// Maximum validity of a signed request: from the earliest allowed arrival to its expiry.
const LIFETIME: Duration = WINDOW.saturating_mul(2);
/// Maximum nonces of one generation; some 40 MB for both. Above 4,200 requests per second, nonces of read-only requests are forgotten
/// before their request expires. Nonces of changing requests are also stored as rows.
const GENERATION_MAX: usize = 500_000;

/// Nonces recently seen by this process.
#[derive(Default)]
pub(crate) struct Nonces(PoisonFreeMutex<Generations>);

#[derive(Default)]
struct Generations {
    /// When the young generation began.
    since: Option<Timestamp>,
    young: HashSet<Digest>,
    old: HashSet<Digest>,
}

impl Nonces {
    /// Records a nonce; returns whether it is new.
    pub(in crate::http) fn is_first(&self, nonce: Digest, now: Timestamp) -> bool {
        self.0.with(|seen| {
            let is_over = seen.since.is_none_or(|since| now.since(since) > LIFETIME);
            if is_over || seen.young.len() >= GENERATION_MAX {
                seen.old = std::mem::take(&mut seen.young);
                seen.since = Some(now);
            }
            !seen.old.contains(&nonce) && seen.young.insert(nonce)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_remembered_for_as_long_as_its_request_may_count_and_then_forgotten() {
        let nonces = Nonces::default();
        let digest = |n: u8| Digest([n; 32]);
        let at = |s: i64| Timestamp(1_750_000_000_000 + s * 1000);
        assert!(nonces.is_first(digest(1), at(0)));
        assert!(nonces.is_first(digest(2), at(119)));
        for s in [0, 100, 121, 239] {
            assert!(!nonces.is_first(digest(2), at(s)), "after {s} s");
        }
        for (n, s) in [(3, 250), (4, 400)] {
            assert!(nonces.is_first(digest(n), at(s)));
        }
        let kept = nonces.0.with(|seen| seen.young.len() + seen.old.len());
        assert_eq!(kept, 2, "those of the last two generations");
        assert!(nonces.is_first(digest(1), at(400)));
    }
}
