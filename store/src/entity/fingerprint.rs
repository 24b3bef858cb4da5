//! Fingerprints of settings that all processes on the database must share.

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

    /// Names of the keys that have a fingerprint.
    pub async fn fingerprints(&mut self) -> Result<Vec<String>> {
        self.list("SELECT what FROM fingerprint ORDER BY what", ()).await
    }

    /// Whether the database has a task or a participant.
    pub async fn is_used(&mut self) -> Result<bool> {
        self.get("SELECT EXISTS (SELECT 1 FROM task) OR EXISTS (SELECT 1 FROM participant)", ()).await
    }
}
