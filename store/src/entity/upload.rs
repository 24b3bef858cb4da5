//! Inputs that arrive in parts: the parts of each, and which of them are stored.
//!
//! A participant has at most one of them in an attempt: the first that it announced. If another could take its place,
//! parts of one after the other would fill the disk until they are collected.

use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId};
use federation::time::Timestamp;

use crate::error::Result;
use crate::transaction::Transaction;

/// An input as its manifest announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartedUpload {
    pub attempt: Attempt,
    pub participant: ParticipantId,
    /// SHA-256 of `tree`, which identifies the input.
    pub root: Digest,
    /// Size of the input, in bytes.
    pub bytes: u64,
    /// Its size and the digests of its parts, in the form that is hashed; opaque here.
    pub tree: Bytes,
    /// Whether all parts were judged together, and `tree` is stored as a blob.
    pub whole: bool,
    pub announced_at: Timestamp,
}

/// A part that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPart {
    pub attempt: Attempt,
    pub participant: ParticipantId,
    /// Its place in the input, from 0.
    pub part: u32,
    /// Address of its blob.
    pub sha256: Digest,
}

record!("upload", PartedUpload { attempt, participant, root, bytes, tree, whole, announced_at });
record!("upload_part", StoredPart { attempt, participant, part, sha256 });

impl Transaction<'_> {
    /// The input that a participant announced.
    pub async fn upload(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Option<PartedUpload>> {
        self.find(
            "SELECT * FROM upload WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
            (attempt, participant),
        )
        .await
    }

    /// Announces an input, unless one was before; returns the one that was announced first.
    ///
    /// # Errors
    /// `Conflict` if the participant lacks an assignment in that attempt.
    pub async fn announce_upload(&mut self, upload: &PartedUpload) -> Result<PartedUpload> {
        if let Some(first) = self.upload(upload.attempt, upload.participant).await? {
            return Ok(first);
        }
        self.insert(upload).await?;
        Ok(upload.clone())
    }

    /// The parts of an input that are stored, in order.
    pub async fn upload_parts(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<Vec<u32>> {
        self.list(
            "SELECT part FROM upload_part WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4
             ORDER BY part",
            (attempt, participant),
        )
        .await
    }

    /// Forgets which parts of a participant's input are stored.
    pub async fn forget_upload_parts(&mut self, attempt: Attempt, participant: ParticipantId) -> Result<()> {
        self.change_all(
            "DELETE FROM upload_part WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4",
            (attempt, participant),
        )
        .await
    }

    /// Records that a part of the input `root` is stored; a repetition has no effect. Returns false if the participant
    /// has not announced that input, or it was forgotten.
    ///
    /// # Errors
    /// `BeingRemoved`.
    pub async fn insert_upload_part(&mut self, root: Digest, part: &StoredPart) -> Result<bool> {
        self.must_not_be_doomed(part.sha256).await?;
        let counts = self.upload(part.attempt, part.participant).await?.is_some_and(|upload| upload.root == root);
        if counts {
            self.insert_if_absent(part).await?;
        }
        Ok(counts)
    }

    /// Records that all `parts` parts of the input `root` are stored and were judged, and that its tree is a blob. False if one is
    /// missing, or the participant has not announced that input, or it was forgotten.
    ///
    /// # Errors
    /// `BeingRemoved`.
    pub async fn set_upload_whole(
        &mut self,
        attempt: Attempt,
        participant: ParticipantId,
        root: Digest,
        parts: u32,
    ) -> Result<bool> {
        self.must_not_be_doomed(root).await?;
        self.change_one(
            "UPDATE upload SET whole = 1
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4 AND root = ?5
               AND ?6 = (SELECT count(*) FROM upload_part WHERE task = ?1 AND number = ?2 AND attempt = ?3
                                                            AND participant = ?4)",
            (attempt, participant, root, parts),
        )
        .await
    }

    /// Forgets the inputs of ended rounds, and those that a partial sum holds. Returns their number.
    pub async fn forget_uploads(&mut self) -> Result<u32> {
        self.change_all(
            "DELETE FROM upload_part WHERE EXISTS (
                 SELECT 1 FROM round WHERE task = upload_part.task AND number = upload_part.number
                     AND attempt = upload_part.attempt AND state IN ('COMPLETED', 'FAILED', 'CANCELLED'))
               OR EXISTS (
                 SELECT 1 FROM admitted WHERE task = upload_part.task AND number = upload_part.number
                     AND attempt = upload_part.attempt AND participant = upload_part.participant AND folded = 1)",
            (),
        )
        .await?;
        self.change(
            "DELETE FROM upload WHERE EXISTS (
                 SELECT 1 FROM round WHERE task = upload.task AND number = upload.number
                     AND attempt = upload.attempt AND state IN ('COMPLETED', 'FAILED', 'CANCELLED'))
               OR EXISTS (
                 SELECT 1 FROM admitted WHERE task = upload.task AND number = upload.number
                     AND attempt = upload.attempt AND participant = upload.participant AND folded = 1)",
            (),
        )
        .await
    }
}
