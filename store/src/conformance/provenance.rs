//! Guarantees of records of where versions come from.

use super::sample::{model_version, task, task_id};
use crate::entity::provenance::ProvenanceRow;
use crate::{Result, Store};

fn row(version: u32, record: &str) -> ProvenanceRow {
    ProvenanceRow { task: task_id(1), version, record: record.to_owned(), signature: vec![7; 64] }
}

/// A version has one record, byte for byte as it was signed, and only its author replaces it.
pub async fn a_record_belongs_to_its_version_and_may_be_signed_again(store: &Store) {
    // The store preserves white space and the order of keys.
    let (first, again) = (&row(0, "{ \"b\":1,\"a\":1.0}"), &row(0, "{}"));
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                for version in 0..=1 {
                    tx.insert_model_version(&model_version(1, version)).await?;
                }
                assert_eq!(tx.provenance(task_id(1), 0).await?, None);
                tx.put_provenance(first).await?;
                assert_eq!(tx.provenance(task_id(1), 0).await?.as_ref(), Some(first));
                tx.put_provenance(again).await?;
                assert_eq!(tx.provenance(task_id(1), 0).await?.as_ref(), Some(again));
                assert_eq!(tx.provenance(task_id(1), 1).await?, None);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    for bad in &[row(2, "{}"), row(1, "{"), ProvenanceRow { signature: vec![7; 63], ..row(1, "{}") }] {
        refused!(store, |tx| tx.put_provenance(bad));
    }
}
