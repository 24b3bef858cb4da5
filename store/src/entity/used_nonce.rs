//! Nonces of signed requests that change something: each counts once, whichever coordinator it reaches.

use std::time::Duration;

use federation::id::Digest;
use federation::time::Timestamp;

use crate::error::Result;
use crate::transaction::Transaction;

/// How long a nonce is kept after its request's end: longer than the clocks of coordinators differ.
pub const NONCES_KEPT: Duration = Duration::from_secs(600);

impl Transaction<'_> {
    /// Uses a nonce: `digest` is SHA-256 of the signer's certificate and the nonce. Returns whether it was unused. If the
    /// shared database's time is past `expires_at` by [`NONCES_KEPT`], that is unknown, and it counts as used.
    pub async fn use_nonce(&mut self, digest: Digest, expires_at: Timestamp) -> Result<bool> {
        self.change_one(
            "INSERT INTO used_nonce (digest, expires_at) SELECT ?1, ?2 WHERE coalesce({now}, 0) < ?3
             ON CONFLICT (digest) DO NOTHING",
            (digest, expires_at, expires_at.plus(NONCES_KEPT)),
        )
        .await
    }

    /// Forgets nonces of requests that expired [`NONCES_KEPT`] ago; returns their number.
    pub async fn forget_nonces(&mut self, now: Timestamp) -> Result<u32> {
        let before = Timestamp(now.0.saturating_sub(i64::try_from(NONCES_KEPT.as_millis()).unwrap_or(i64::MAX)));
        self.change("DELETE FROM used_nonce WHERE expires_at <= ?1", before).await
    }
}
