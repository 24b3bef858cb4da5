//! Nonces of signed requests that change something: each counts once, whichever coordinator it reaches.

use federation::id::Digest;
use federation::time::Timestamp;

use crate::error::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Uses a nonce: `digest` is SHA-256 of the signer's certificate and the nonce. Returns whether nobody has used it.
    pub async fn use_nonce(&mut self, digest: Digest, expires_at: Timestamp) -> Result<bool> {
        self.change_one(
            "INSERT INTO used_nonce (digest, expires_at) VALUES (?1, ?2) ON CONFLICT (digest) DO NOTHING",
            (digest, expires_at),
        )
        .await
    }

    /// Forgets nonces of requests that expired by `before`; returns their number.
    pub async fn forget_nonces(&mut self, before: Timestamp) -> Result<u32> {
        self.change("DELETE FROM used_nonce WHERE expires_at <= ?1", before).await
    }
}
