//! Uploaded models and parts of them, which are kept for a day: a task that starts from a model copies it.

use std::time::Duration;

use federation::id::Digest;
use federation::time::Timestamp;

use crate::error::Result;
use crate::transaction::Transaction;

/// Time for which an upload is kept after it was last stored.
pub const MODEL_UPLOADS_KEPT: Duration = Duration::from_secs(24 * 3600);

impl Transaction<'_> {
    /// Keeps a stored blob for [`MODEL_UPLOADS_KEPT`] from `now`.
    ///
    /// # Errors
    /// `BeingRemoved`.
    pub async fn keep_model_upload(&mut self, blob: Digest, now: Timestamp) -> Result<()> {
        self.must_not_be_doomed(blob).await?;
        self.change(
            "INSERT INTO model_upload (sha256, expires_at) VALUES (?1, ?2)
             ON CONFLICT (sha256) DO UPDATE SET expires_at = excluded.expires_at",
            (blob, now.plus(MODEL_UPLOADS_KEPT)),
        )
        .await?;
        Ok(())
    }

    /// Releases these uploaded blobs.
    pub async fn drop_model_uploads(&mut self, blobs: &[Digest]) -> Result<()> {
        self.change_all("DELETE FROM model_upload WHERE sha256 IN {?1 sha256:bytes}", blobs).await
    }

    /// Releases uploads that expired at `now` or earlier; returns their number.
    pub async fn forget_model_uploads(&mut self, now: Timestamp) -> Result<u32> {
        self.change("DELETE FROM model_upload WHERE expires_at <= ?1", now).await
    }
}
