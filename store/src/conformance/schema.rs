//! Guarantees of the schema.

use super::sample::{collecting, task, task_id};
use crate::entity::participant::ParticipantFilter;
use crate::{Result, Store};

/// Reverting removes everything, and migrating again gives the schema of an empty database.
pub async fn it_goes_down_and_up_again(store: &Store) {
    collecting(store, 2).await;
    store.rows.revert_schema().await.unwrap();
    store.rows.migrate_schema().await.unwrap();
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.task(task_id(1)).await?, None);
                assert_eq!(tx.participants(&ParticipantFilter::default(), None, 9).await?, []);
                tx.insert_task(&task(1, "one")).await
            })
        })
        .await;
    result.unwrap();
    // The schema is complete, so this has no effect.
    store.rows.migrate_schema().await.unwrap();
    let found: Result<_> = store.read("test", |tx| Box::pin(async move { tx.task(task_id(1)).await })).await;
    assert_eq!(found.unwrap(), Some(task(1, "one")));
}
