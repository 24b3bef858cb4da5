//! A signed request counts once.
//!
//! What was seen lately is in memory, so that a repetition is refused wherever it meets the same process. Requests that
//! change something are also rows, which all coordinators share and which survive a restart. Reading something again, and
//! checking in again, are no rows: they would cost every poll a commit, and whoever can repeat a request could as well hold
//! back its answer, or keep the poll itself open, for as long. Every request may be repeated by its sender anyhow
//! (docs/PROTOCOL.md); what a nonce prevents is that an old one comes after a newer one.

use std::collections::HashSet;
use std::time::Duration;

use federation::id::Digest;
use federation::time::Timestamp;
use http::Method;
use http::request::Parts;
use wire::route;
use wire::signature::{SignedRequest, WINDOW};

use crate::guarded::Guarded;
use crate::http::app::App;
use crate::http::problem::{Error, Result};

/// How long a signed request may count: dated as far ahead as is allowed, to its end.
const LIFETIME: Duration = WINDOW.saturating_mul(2);
/// Nonces of one generation; some 40 MB for both.
const GENERATION_MAX: usize = 500_000;

/// A request whose signature holds; in its extensions.
#[derive(Clone, Copy)]
pub(in crate::http) struct Signed {
    /// SHA-256 of its signer's certificate and its nonce.
    nonce: Digest,
    expires: Timestamp,
}

impl Signed {
    pub(super) fn new(certificate: Digest, claim: &SignedRequest) -> Self {
        let nonce = crate::digest(&[&certificate.0[..], claim.nonce.as_bytes()].concat());
        Self { nonce, expires: claim.expires }
    }

    /// Uses the request's nonce.
    ///
    /// # Errors
    /// [`Error::Replayed`] if it was used before; those of the store.
    pub(in crate::http) async fn use_once(self, app: &App, parts: &Parts) -> Result<()> {
        if !app.nonces.is_first(self.nonce, app.now()) {
            return Err(Error::Replayed);
        }
        if parts.method == Method::GET || parts.uri.path() == route::CHECK_IN {
            return Ok(());
        }
        let Self { nonce, expires } = self;
        let is_first =
            app.store.transact("use_nonce", |tx| Box::pin(async move { tx.use_nonce(nonce, expires).await }));
        if is_first.await? { Ok(()) } else { Err(Error::Replayed) }
    }
}

/// Nonces that this process has seen lately.
#[derive(Default)]
pub(crate) struct Nonces(Guarded<Generations>);

#[derive(Default)]
struct Generations {
    /// When the young ones began.
    since: Option<Timestamp>,
    young: HashSet<Digest>,
    old: HashSet<Digest>,
}

impl Nonces {
    /// Notes a nonce; whether it was not there.
    fn is_first(&self, nonce: Digest, now: Timestamp) -> bool {
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
