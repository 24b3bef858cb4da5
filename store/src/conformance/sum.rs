//! Guarantees of partial and noised sums.

use federation::device_reason::DeviceReason;
use federation::id::Attempt;

use super::sample::{after, collecting, digest};
use crate::entity::noised_sum::{NoisedSumRow, SumWork};
use crate::entity::partial_sum::PartialSum;
use crate::{Result, Store};

/// A caller that read an older sum cannot overwrite a newer one.
pub async fn a_partial_sum_is_replaced_by_compare_and_swap(store: &Store) {
    let open = &collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let sum = |n: u8| PartialSum { attempt: open.key, blob: digest(n), inputs: n.into() };
                assert_eq!(tx.partial_sum(open.key).await?, None);
                assert!(!tx.put_partial_sum(&sum(1), Some(digest(9))).await?);
                assert!(tx.put_partial_sum(&sum(1), None).await?);
                assert!(!tx.put_partial_sum(&sum(2), None).await?);
                assert!(!tx.put_partial_sum(&sum(2), Some(digest(9))).await?);
                assert!(tx.put_partial_sum(&sum(2), Some(digest(1))).await?);
                assert_eq!(tx.partial_sum(open.key).await?, Some(sum(2)));
                assert!(tx.delete_partial_sum(open.key).await?);
                assert!(!tx.delete_partial_sum(open.key).await?);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let nowhere = &PartialSum { attempt: Attempt { attempt: 2, ..open.key }, blob: digest(1), inputs: 1 };
    refused!(store, |tx| tx.put_partial_sum(nowhere, None));
}

/// The first one stays.
pub async fn a_round_has_one_noised_sum(store: &Store) {
    let open = &collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let sum = |n: u8| NoisedSumRow {
                    attempt: open.key,
                    blob: digest(n),
                    participants: n.into(),
                    created_at: after(n.into()),
                    work: None,
                };
                assert_eq!(tx.noised_sum(open.key).await?, None);
                assert!(tx.insert_noised_sum(&sum(1)).await?);
                assert!(!tx.insert_noised_sum(&sum(2)).await?);
                assert_eq!(tx.noised_sum(open.key).await?, Some(sum(1)));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// All of it comes back.
pub async fn what_a_sum_took_is_kept(store: &Store) {
    let open = &collecting(store, 1).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let work = SumWork {
                    coordinator: Some("north".to_owned()),
                    sum_device: "cuda:0".to_owned(),
                    sum_because: Some(DeviceReason::BestPresent),
                    unmask_device: "cpu".to_owned(),
                    unmask_because: Some(DeviceReason::ChosenFailed),
                    device_failure: Some("cuda:0: it gave a wrong answer".to_owned()),
                    sum_ms: 1,
                    unmask_ms: 2,
                    keystream_bytes: 1 << 40,
                };
                let sum = NoisedSumRow {
                    attempt: open.key,
                    blob: digest(1),
                    participants: 1,
                    created_at: after(1),
                    work: Some(work),
                };
                assert!(tx.insert_noised_sum(&sum).await?);
                assert_eq!(tx.noised_sum(open.key).await?, Some(sum));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
