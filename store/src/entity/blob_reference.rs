//! The blobs that rows still need; every other blob is garbage.

use std::collections::HashSet;

use federation::id::{Digest, TaskId};

use crate::error::Result;
use crate::transaction::Transaction;

/// That a row needs a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobReference {
    pub digest: Digest,
    pub used_as: BlobUse,
    pub task: TaskId,
    /// Of the model version, or of the round.
    pub number: u32,
    /// Size of the blob, if the row has it.
    pub bytes: Option<u64>,
}

task_spec::named_enum! {
    /// Use of a blob by a row.
    pub enum BlobUse: "use of a blob" {
        /// A published model version.
        Model = "model",
        /// The server optimizer's state of a model version.
        OptimizerState = "optimizer_state",
        /// The released sum of an open round.
        NoisedSum = "noised_sum",
        /// The folded inputs of an open round.
        PartialSum = "partial_sum",
        /// An admitted input of an open round that is not folded yet, or a part of one that may be admitted.
        Input = "input",
    }
}

values! { BlobUse: |used_as| used_as.as_str(), |column| crate::driver::parse(column); }

columns!(BlobReference { digest, used_as, task, number, bytes });

impl Transaction<'_> {
    /// Addresses that rows need: of model versions until they are removed; of optimizer states for the two newest versions of a task
    /// and the base of an open round; of partial and noised sums until their round has ended; of admitted inputs until
    /// they are folded or their round has ended; of parts of inputs until [`Transaction::forget_uploads`]; of
    /// uploaded models until [`Transaction::forget_model_uploads`].
    pub async fn referenced_blobs(&mut self) -> Result<HashSet<Digest>> {
        let uploaded: Vec<Digest> = self.list("SELECT sha256 FROM model_upload", ()).await?;
        let named = self.blob_references().await?.into_iter().map(|reference| reference.digest);
        Ok(named.chain(uploaded).collect())
    }

    /// The same without uploaded models, with the use of each. A blob that several rows need is there as often.
    pub async fn blob_references(&mut self) -> Result<Vec<BlobReference>> {
        self.list(
            "WITH open_round AS (SELECT task, number, attempt, base_version FROM round
                                 WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))
             SELECT sha256 AS digest, 'model' AS used_as, task, version AS number, bytes FROM model_version
                 WHERE removed_at IS NULL
             UNION ALL SELECT optimizer_state, 'optimizer_state', task, version, NULL FROM model_version AS kept
                 WHERE optimizer_state IS NOT NULL
                   AND (version >= (SELECT max(version) - 1 FROM model_version WHERE task = kept.task)
                        OR EXISTS (SELECT 1 FROM open_round WHERE task = kept.task AND base_version = kept.version))
             UNION ALL SELECT blob, 'noised_sum', task, number, NULL
                 FROM noised_sum JOIN open_round USING (task, number, attempt)
             UNION ALL SELECT blob, 'partial_sum', task, number, NULL
                 FROM partial_sum JOIN open_round USING (task, number, attempt)
             UNION ALL SELECT sha256, 'input', task, number,
                     CASE WHEN EXISTS (SELECT 1 FROM upload WHERE task = input.task AND number = input.number
                                       AND attempt = input.attempt AND participant = input.participant AND root = sha256)
                          THEN NULL ELSE bytes END
                 FROM admitted AS input JOIN open_round USING (task, number, attempt) WHERE folded = 0
             UNION ALL SELECT root, 'input', task, number, NULL
                 FROM upload JOIN open_round USING (task, number, attempt) WHERE whole = 1
             UNION ALL SELECT sha256, 'input', task, number, NULL
                 FROM upload_part JOIN open_round USING (task, number, attempt)",
            (),
        )
        .await
    }
}
