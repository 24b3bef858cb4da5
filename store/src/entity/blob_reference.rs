//! The blobs that rows still need; every other blob is garbage.

use std::collections::HashSet;

use federation::id::Digest;

use crate::error::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Addresses that rows need: of model versions always; of optimizer states for the two newest versions of a task
    /// and the base of an open round; of partial and noised sums until their round has ended; of admitted inputs until
    /// they are folded or their round has ended.
    pub async fn referenced_blobs(&mut self) -> Result<HashSet<Digest>> {
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
