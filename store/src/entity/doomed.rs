//! Blobs that garbage collection removes. Transactions cannot name a doomed blob: it may be gone a moment later, even
//! if it was stored again just now.
//!
//! A collector dooms unreferenced blobs in the transaction that finds them, removes them, and records the removal. Only
//! one collects at a time. The rows stay for a while afterwards, for transactions that name a blob stored before its
//! removal.

use federation::id::Digest;
use federation::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

/// How far the removal of a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It may be removed at any moment.
    UnderWay,
    /// Its removal has ended. If it is stored, it was stored again.
    Over,
}

impl Transaction<'_> {
    /// Dooms the unreferenced ones of the blobs, and returns them.
    pub async fn doom(&mut self, blobs: &[Digest], now: Timestamp) -> Result<Vec<Digest>> {
        let needed = self.referenced_blobs().await?;
        let doomed: Vec<_> = blobs.iter().filter(|blob| !needed.contains(blob)).copied().collect();
        self.change_all(
            "INSERT INTO doomed (digest, doomed_at) SELECT digest, ?2 FROM {?1 digest:bytes} AS new WHERE TRUE
             ON CONFLICT (digest) DO UPDATE SET doomed_at = excluded.doomed_at, collected_at = NULL",
            (doomed.as_slice(), now),
        )
        .await?;
        Ok(doomed)
    }

    /// Records that the removal of these blobs has ended.
    pub async fn set_collected(&mut self, blobs: &[Digest], now: Timestamp) -> Result<()> {
        self.change_all("UPDATE doomed SET collected_at = ?2 WHERE digest IN {?1 digest:bytes}", (blobs, now)).await
    }

    /// Blobs doomed by a collector that did not note their removal: it died.
    pub async fn abandoned_blobs(&mut self) -> Result<Vec<Digest>> {
        self.list("SELECT digest FROM doomed WHERE collected_at IS NULL", ()).await
    }

    /// Forgets the blobs that were collected before `before`; returns their number.
    pub async fn forget_collected(&mut self, before: Timestamp) -> Result<u32> {
        self.change("DELETE FROM doomed WHERE collected_at < ?1", before).await
    }

    /// Forgets that a blob was collected: it is stored again.
    pub(crate) async fn spare(&mut self, blob: Digest) -> Result<bool> {
        self.change_one("DELETE FROM doomed WHERE digest = ?1 AND collected_at IS NOT NULL", blob).await
    }

    /// How far the removal of a blob is; `None` if it is not doomed.
    pub(crate) async fn removal(&mut self, blob: Digest) -> Result<Option<Removal>> {
        let is_over: Option<bool> =
            self.find("SELECT collected_at IS NOT NULL FROM doomed WHERE digest = ?1", blob).await?;
        Ok(is_over.map(|is_over| if is_over { Removal::Over } else { Removal::UnderWay }))
    }

    /// Called before a row names a blob.
    ///
    /// # Errors
    /// `BeingRemoved`.
    pub(crate) async fn must_not_be_doomed(&mut self, blob: Digest) -> Result<()> {
        match self.removal(blob).await? {
            None => Ok(()),
            Some(Removal::UnderWay | Removal::Over) => {
                self.note_doomed(blob);
                Err(StoreError::BeingRemoved(blob))
            }
        }
    }
}
