//! Inputs in parts: announced, sent part by part, and completed.
//!
//! [`super::enter`] validates announcements, so a participant can only fill the disk with one input of the task's size. Parts may be lost
//! or sent to another replica in between: rows record the progress of an input.

use federation::id::{Attempt, Digest, ParticipantId};
use federation::round::RoundState;
use federation::time::Timestamp;
use secure_agg::upload::PartTree;
use store::entity::upload::{PartedUpload, StoredPart};
use store::{Store, StoreError};

use super::gate::{AdmissionError, Rejection, may_answer, open};

/// Permission to send a part.
pub(crate) struct PartPermit {
    attempt: Attempt,
    participant: ParticipantId,
    root: Digest,
    part: u32,
    /// SHA-256 of the part, from the manifest.
    pub(crate) sha256: Digest,
    /// Length of the part: 8 MiB, or the rest for the last one.
    pub(crate) bytes: u64,
    /// Whether the part is already stored.
    pub(crate) is_stored: bool,
}

/// Announces an input; returns its missing parts in ascending order.
///
/// # Errors
/// [`Rejection::DifferentInput`] if another one was announced before.
pub(crate) async fn announce(
    store: &Store,
    attempt: Attempt,
    participant: ParticipantId,
    tree: &PartTree,
    now: Timestamp,
) -> Result<Vec<u32>, AdmissionError> {
    let root = Digest(tree.root());
    let (bytes, encoded) = (tree.bytes(), tree.encode().into());
    let upload = PartedUpload { attempt, participant, root, bytes, tree: encoded, whole: false, announced_at: now };
    let stored = store
        .transact("announce_upload", |tx| {
            let upload = &upload;
            Box::pin(async move {
                let counts = tx.announce_upload(upload).await?;
                if counts.root != upload.root {
                    return Err(AdmissionError::from(Rejection::DifferentInput { stored: counts.root }));
                }
                Ok(tx.upload_parts(attempt, participant).await?)
            })
        })
        .await?;
    Ok(without(tree, &stored))
}

/// The parts missing from the sorted list `stored`.
fn without(tree: &PartTree, stored: &[u32]) -> Vec<u32> {
    (0..count(tree)).filter(|part| stored.binary_search(part).is_err()).collect()
}

fn count(tree: &PartTree) -> u32 {
    u32::try_from(tree.parts().len()).unwrap_or(u32::MAX)
}

/// Validates a part before it is read.
///
/// # Errors
/// [`Rejection::PartNotExpected`] if it belongs to no announced input; rejections of the round and the participant's place.
pub(crate) async fn enter_part(
    store: &Store,
    attempt: Attempt,
    participant: ParticipantId,
    part: u32,
) -> Result<PartPermit, AdmissionError> {
    store
        .read("part_gate", |tx| {
            Box::pin(async move {
                let standing = tx.standing(attempt, participant).await?;
                let round = standing.round.ok_or(Rejection::NoSuchRound)?;
                may_answer(standing.place)?;
                open(round.state, RoundState::Collecting)?;
                let unexpected = Rejection::PartNotExpected { part };
                let Some(upload) = tx.upload(attempt, participant).await? else { return Err(unexpected.into()) };
                let tree = PartTree::decode(&upload.tree)
                    .ok_or_else(|| StoreError::corrupt("the parts of an announced input cannot be read"))?;
                let (digest, bytes) = tree.part(part).ok_or(unexpected)?;
                let is_stored = tx.upload_parts(attempt, participant).await?.contains(&part);
                let (sha256, root) = (Digest(digest), upload.root);
                Ok(PartPermit { attempt, participant, root, part, sha256, bytes, is_stored })
            })
        })
        .await
}

/// Records that the part is stored as a blob.
///
/// # Errors
/// [`Rejection::PartNotExpected`] if the input was deleted with its round.
pub(crate) async fn store_part(store: &Store, permit: &PartPermit) -> Result<(), AdmissionError> {
    let &PartPermit { attempt, participant, root, part, sha256, .. } = permit;
    let counts = store
        .transact("store_part", |tx| {
            let stored = StoredPart { attempt, participant, part, sha256 };
            Box::pin(async move { tx.insert_upload_part(root, &stored).await })
        })
        .await?;
    if counts { Ok(()) } else { Err(Rejection::PartNotExpected { part }.into()) }
}

/// Marks all parts of an input as missing, after one was unreadable.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn forget_parts(
    store: &Store,
    attempt: Attempt,
    participant: ParticipantId,
) -> Result<(), StoreError> {
    let forget = store.transact("forget_upload_parts", |tx| {
        Box::pin(async move { tx.forget_upload_parts(attempt, participant).await })
    });
    forget.await
}

/// Records that the input was validated, and that the list of its parts is a blob: from then on it can be read by its name. Returns its
/// missing parts. If there are any, because another request found one unreadable, the input is not recorded.
///
/// # Errors
/// [`Rejection::DifferentInput`] if the participant announced another input, [`Rejection::NotAnnounced`] if it announced none, or the round
/// has ended.
pub(crate) async fn set_whole(
    store: &Store,
    attempt: Attempt,
    participant: ParticipantId,
    tree: &PartTree,
) -> Result<Vec<u32>, AdmissionError> {
    let root = Digest(tree.root());
    store
        .transact("set_upload_whole", |tx| {
            Box::pin(async move {
                if tx.set_upload_whole(attempt, participant, root, count(tree)).await? {
                    return Ok(Vec::new());
                }
                match tx.upload(attempt, participant).await? {
                    None => Err(Rejection::NotAnnounced { root }.into()),
                    Some(other) if other.root != root => Err(Rejection::DifferentInput { stored: other.root }.into()),
                    Some(_) => Ok(without(tree, &tx.upload_parts(attempt, participant).await?)),
                }
            })
        })
        .await
}
