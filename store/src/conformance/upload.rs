//! Guarantees of inputs that arrive in parts.

use std::collections::HashSet;

use federation::id::{Attempt, Digest, ParticipantId};
use federation::round::{Round, RoundState};

use super::sample::{admitted, after, collecting, digest, moved, participant_id};
use crate::entity::admitted::Admitted;
use crate::entity::upload::{PartedUpload, StoredPart};
use crate::{Result, Store, StoreError};

fn upload(round: &Round, participant: u8, root: u8) -> PartedUpload {
    PartedUpload {
        attempt: round.key,
        participant: participant_id(participant.into()),
        root: digest(root),
        bytes: 40,
        tree: vec![root; 40].into(),
        whole: false,
        announced_at: after(1),
    }
}

fn part(round: &Round, participant: u8, part: u32, sha256: u8) -> StoredPart {
    let (attempt, participant) = (round.key, participant_id(participant.into()));
    StoredPart { attempt, participant, part, sha256: digest(sha256) }
}

/// The first that was announced counts; a part that is stored again is one; parts of another input are not taken.
pub async fn the_first_announced_input_counts(store: &Store) {
    let open = &collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (key, who): (Attempt, ParticipantId) = (open.key, participant_id(1));
                assert_eq!(tx.upload(key, who).await?, None);
                let (first, second) = (upload(open, 1, 10), upload(open, 1, 20));
                assert_eq!(tx.announce_upload(&first).await?, first);
                assert!(tx.insert_upload_part(first.root, &part(open, 1, 1, 11)).await?);
                assert!(tx.insert_upload_part(first.root, &part(open, 1, 0, 12)).await?);
                assert!(tx.insert_upload_part(first.root, &part(open, 1, 1, 11)).await?);
                let later = PartedUpload { announced_at: after(9), ..first.clone() };
                assert_eq!(tx.announce_upload(&later).await?, first);
                assert_eq!(tx.upload_parts(key, who).await?, [0, 1]);
                assert_eq!(tx.announce_upload(&second).await?, first);
                assert_eq!(tx.upload_parts(key, who).await?, [0, 1]);
                assert!(!tx.insert_upload_part(second.root, &part(open, 1, 0, 21)).await?);
                assert!(!tx.set_upload_whole(key, who, first.root, 3).await?, "a part is missing");
                assert!(!tx.set_upload_whole(key, who, second.root, 2).await?, "it was not announced");
                assert!(tx.set_upload_whole(key, who, first.root, 2).await?);
                let whole = PartedUpload { whole: true, ..first };
                assert_eq!(tx.announce_upload(&second).await?, whole);
                assert_eq!(tx.upload(key, who).await?, Some(whole));
                tx.forget_upload_parts(key, who).await?;
                assert!(tx.upload_parts(key, who).await?.is_empty());
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let stranger = &upload(open, 9, 10);
    refused!(store, |tx| tx.announce_upload(stranger));
}

/// Parts are needed until their round ends or a partial sum holds the input. An admitted input that is a tree of parts
/// lacks a size to compare its blob with. Afterwards all of it is forgotten.
pub async fn parts_are_needed_until_their_input_is_folded_or_its_round_has_ended(store: &Store) {
    let open = &collecting(store, 3).await;
    let needed = |expected: &'static [u8]| {
        let expected: HashSet<Digest> = expected.iter().copied().map(digest).collect();
        async move {
            let found: Result<_> = store.read("test", |tx| Box::pin(async move { tx.referenced_blobs().await })).await;
            assert_eq!(found.unwrap(), expected);
        }
    };
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for (participant, root) in [(1, 10), (2, 20), (3, 30)] {
                    let upload = upload(open, participant, root);
                    tx.announce_upload(&upload).await?;
                    assert!(tx.insert_upload_part(upload.root, &part(open, participant, 0, root + 1)).await?);
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
    needed(&[11, 21, 31]).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for (participant, root) in [(1, 10), (2, 20)] {
                    assert!(tx.set_upload_whole(open.key, participant_id(participant), digest(root), 1).await?);
                    let participant = u8::try_from(participant).unwrap();
                    tx.insert_admitted(&[Admitted { sha256: digest(root), ..admitted(open, participant) }]).await?;
                }
                tx.insert_admitted(&[admitted(open, 3)]).await?;
                let sizes = tx.blob_references().await?;
                let sized: Vec<_> =
                    sizes.iter().filter(|found| found.bytes.is_some()).map(|found| found.digest).collect();
                assert_eq!(sized, [digest(103)]);
                assert_eq!(tx.forget_uploads().await?, 0);
                tx.mark_folded(open.key, &[participant_id(1)]).await?;
                assert_eq!(tx.forget_uploads().await?, 1);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    needed(&[20, 21, 31, 103]).await;
    let ended = &moved(open, RoundState::Cancelled, after(3));
    let has_moved: Result<bool> =
        store.transact("test", |tx| Box::pin(async move { tx.transition_round(open, ended).await })).await;
    assert!(has_moved.unwrap());
    needed(&[]).await;
    let forgotten: Result<u32> = store.transact("test", |tx| Box::pin(async move { tx.forget_uploads().await })).await;
    assert_eq!(forgotten.unwrap(), 2);
}

/// An upload cannot name a doomed part or a doomed tree.
pub async fn no_upload_names_a_doomed_blob(store: &Store) {
    let open = &collecting(store, 1).await;
    let doomed = &[digest(11), digest(10)];
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.announce_upload(&upload(open, 1, 10)).await?;
                assert_eq!(tx.doom(doomed, after(1)).await?, doomed);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let stored = &part(open, 1, 0, 11);
    let named: Result<bool> =
        store.transact("test", |tx| Box::pin(async move { tx.insert_upload_part(digest(10), stored).await })).await;
    assert!(matches!(named, Err(StoreError::BeingRemoved(_))), "{named:?}");
    let key = open.key;
    let named: Result<bool> = store
        .transact("test", |tx| {
            Box::pin(async move { tx.set_upload_whole(key, participant_id(1), digest(10), 0).await })
        })
        .await;
    assert!(matches!(named, Err(StoreError::BeingRemoved(_))), "{named:?}");
}
