//! Addresses of blobs in SQLite.

use std::collections::HashSet;

use async_trait::async_trait;
use federation::id::Digest;

use super::SqliteTransaction;
use crate::entity::blob_reference::BlobReferences;
use crate::error::Result;

#[async_trait]
impl BlobReferences for SqliteTransaction {
    async fn referenced_blobs(&mut self) -> Result<HashSet<Digest>> {
        let blobs: Vec<Digest> = self
            .list(
                "WITH open_round AS (SELECT task, number, attempt, base_version FROM round
                                     WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))
                 SELECT sha256 FROM model_version
                 UNION SELECT optimizer_state FROM model_version AS kept
                     WHERE optimizer_state IS NOT NULL
                       AND (version >= (SELECT max(version) - 1 FROM model_version WHERE task = kept.task)
                            OR EXISTS (SELECT 1 FROM open_round WHERE task = kept.task AND base_version = kept.version))
                 UNION SELECT blob FROM noised_sum JOIN open_round USING (task, number, attempt)
                 UNION SELECT blob FROM partial_sum JOIN open_round USING (task, number, attempt)
                 UNION SELECT sha256 FROM admitted JOIN open_round USING (task, number, attempt) WHERE folded = 0",
                (),
            )
            .await?;
        Ok(blobs.into_iter().collect())
    }
}
