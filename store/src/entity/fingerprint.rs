//! Fingerprints of what all processes that use the database must have in common.

use federation::id::Digest;

use crate::error::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Stores the fingerprint of `what` unless there is one; returns the stored one.
    pub async fn first_fingerprint(&mut self, what: &str, fingerprint: Digest) -> Result<Digest> {
        self.change_all(
            "INSERT INTO fingerprint (what, sha256) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            (what, fingerprint),
        )
        .await?;
        self.get("SELECT sha256 FROM fingerprint WHERE what = ?1", what).await
    }
}
