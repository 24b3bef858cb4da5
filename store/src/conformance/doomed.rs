//! Guarantees of blobs that garbage collection removes.

use bytes::Bytes;
use federation::id::Digest;

use super::sample::{admitted, after, collecting, digest, model_version};
use crate::entity::admitted::Admitted;
use crate::entity::noised_sum::NoisedSumRow;
use crate::entity::partial_sum::PartialSum;
use crate::{Result, Store, StoreError};

async fn doom(store: &Store, blobs: &[Digest]) -> Vec<Digest> {
    store.transact("doom", |tx| Box::pin(async move { tx.doom(blobs, after(1)).await })).await.unwrap()
}

async fn collected(store: &Store, blobs: &[Digest]) {
    store.transact("collected", |tx| Box::pin(async move { tx.set_collected(blobs, after(2)).await })).await.unwrap();
}

async fn name(store: &Store, sha256: Digest) -> Result<()> {
    let version = federation::model_version::ModelVersion { sha256, ..model_version(1, 0) };
    let version = &version;
    store.transact("name", |tx| Box::pin(async move { tx.insert_model_version(version).await })).await
}

fn is_refused<T>(named: &Result<T>, blob: Digest) -> bool {
    matches!(named, Err(StoreError::BeingRemoved(found)) if *found == blob)
}

/// Covers all rows that name blobs: models, states, inputs, sums. A named blob is not doomed.
pub async fn no_row_names_a_doomed_blob(store: &Store) {
    let open = &collecting(store, 2).await;
    let kept: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_model_version(&model_version(1, 0)).await?;
                tx.insert_model_version(&model_version(1, 1)).await?;
                tx.insert_admitted(&[admitted(open, 1)]).await.map(drop)
            })
        })
        .await;
    kept.unwrap();
    let [model, state, input] = [digest(201), digest(221), digest(101)];
    let all = [model, state, input, digest(50)];
    assert_eq!(doom(store, &all).await, [digest(50)]);

    let blob = digest(50);
    assert!(is_refused(&name(store, blob).await, blob));
    let with_state = federation::model_version::ModelVersion { optimizer_state: Some(blob), ..model_version(1, 2) };
    let with_state = &with_state;
    let named = store.transact("test", |tx| Box::pin(async move { tx.insert_model_version(with_state).await })).await;
    assert!(is_refused(&named, blob));
    let input = &Admitted { sha256: blob, ..admitted(open, 2) };
    assert!(is_refused(
        &store.transact("test", |tx| Box::pin(async move { tx.insert_admitted(&[*input]).await })).await,
        blob
    ));
    let sum = &PartialSum { attempt: open.key, blob, inputs: 1 };
    let named = store.transact("test", |tx| Box::pin(async move { tx.put_partial_sum(sum, None).await })).await;
    assert!(is_refused(&named, blob));
    let sum = &NoisedSumRow { attempt: open.key, blob, participants: 1, created_at: after(2), work: None };
    let named = store.transact("test", |tx| Box::pin(async move { tx.insert_noised_sum(sum).await })).await;
    assert!(is_refused(&named, blob));
}

/// A collector races with a writer that stores the same bytes again: the blob is there whenever a row names it.
pub async fn what_is_stored_during_its_removal_is_stored_once_more(store: &Store) {
    super::sample::collecting(store, 1).await;
    let (blobs, bytes) = (store.blobs(), Bytes::from_static(b"the same again"));
    let blob = blobs.put_bytes(bytes.clone()).await.unwrap();
    assert_eq!(doom(store, &[blob]).await, [blob]);
    // It has looked at the age, and removes now.
    blobs.put_bytes(bytes.clone()).await.unwrap();
    assert!(blobs.delete(blob).await.unwrap());
    assert!(is_refused(&name(store, blob).await, blob), "while it is being removed");
    collected(store, &[blob]).await;
    assert!(is_refused(&name(store, blob).await, blob), "after it was removed");
    blobs.put_bytes(bytes).await.unwrap();
    name(store, blob).await.unwrap();
    assert!(blobs.len(blob).await.unwrap().is_some());
    assert_eq!(doom(store, &[blob]).await, []);
}

/// A writer that stored the blob in time may name it immediately, in its first attempt.
pub async fn a_blob_that_was_spared_is_named_when_that_is_known(store: &Store) {
    super::sample::collecting(store, 1).await;
    let blob = store.blobs().put_bytes(Bytes::from_static(b"young again")).await.unwrap();
    doom(store, &[blob]).await;
    let naming = name(store, blob);
    let ending = async {
        tokio::task::yield_now().await;
        collected(store, &[blob]).await;
    };
    let (named, ()) = futures_util::future::join(naming, ending).await;
    named.unwrap();
}

/// The next collector finds the blobs that a dead one has doomed. Collected blobs are forgotten after a time.
pub async fn dooms_are_found_again_and_forgotten(store: &Store) {
    let [first, second] = [digest(1), digest(2)];
    doom(store, &[first, second]).await;
    collected(store, &[second]).await;
    let abandoned = || store.read("test", |tx| Box::pin(async move { tx.abandoned_blobs().await }));
    assert_eq!(abandoned().await.unwrap(), [first]);
    let forget = |ms| store.transact("test", move |tx| Box::pin(async move { tx.forget_collected(after(ms)).await }));
    assert_eq!(forget(2).await.unwrap(), 0);
    assert_eq!(forget(3).await.unwrap(), 1);
    assert_eq!(abandoned().await.unwrap(), [first]);
    // Doomed once more, it is being removed again.
    collected(store, &[first]).await;
    assert_eq!(doom(store, &[first]).await, [first]);
    assert_eq!(abandoned().await.unwrap(), [first]);
}

/// A blob is either named or doomed, whichever comes first.
pub async fn naming_and_dooming_take_turns(store: &Store) {
    let open = super::sample::collecting(store, 1).await;
    for n in 1..=20 {
        let (blob, attempt, store_too) = (digest(n), open.key, store.clone());
        let naming = tokio::spawn(async move {
            let sum = &PartialSum { attempt, blob, inputs: 1 };
            let name = store_too.transact("name", |tx| {
                Box::pin(async move {
                    tx.delete_partial_sum(attempt).await?;
                    tx.put_partial_sum(sum, None).await
                })
            });
            name.await
        });
        let doomed = doom(store, &[blob]).await;
        // Records the removal immediately, so that the naming transaction need not wait.
        collected(store, &doomed).await;
        let named = naming.await.unwrap();
        match doomed.is_empty() {
            true => assert!(named.unwrap()),
            false => assert!(is_refused(&named, blob), "{named:?}"),
        }
    }
}
