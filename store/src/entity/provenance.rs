//! Signed records of where model versions come from. The store keeps text and signature; their author checks them.

use federation::id::TaskId;

use crate::error::Result;
use crate::transaction::Transaction;

/// The record of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenanceRow {
    pub task: TaskId,
    pub version: u32,
    /// JSON: the text that was signed.
    pub record: String,
    /// Ed25519 signature of the record, 64 bytes.
    pub signature: Vec<u8>,
}

columns!(ProvenanceRow { task, version, record, signature });

impl Transaction<'_> {
    /// Stores the record of a version, in place of one that was signed before.
    ///
    /// # Errors
    /// `Conflict` if the version does not exist, the record is not JSON, or the signature has another length.
    pub async fn put_provenance(&mut self, row: &ProvenanceRow) -> Result<()> {
        self.must_change_one(
            "INSERT INTO provenance (task, version, record, signature) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (task, version) DO UPDATE SET record = excluded.record, signature = excluded.signature",
            (row.task, row.version, &row.record, &row.signature),
        )
        .await
    }

    pub async fn provenance(&mut self, task: TaskId, version: u32) -> Result<Option<ProvenanceRow>> {
        self.find("SELECT * FROM provenance WHERE task = ?1 AND version = ?2", (task, version)).await
    }
}
