//! Guarantees of the counts for gauges.

use federation::task_status::TaskStatus;

use super::sample::{NOW, collecting, model_version, participant_id, task};
use crate::entity::census::Census;
use crate::{Result, Store};

/// Existing rows are counted; ended and revoked ones are left out.
pub async fn what_is_there_is_counted(store: &Store) {
    let empty: Result<Census> = store.read("test", |tx| Box::pin(async move { tx.census().await })).await;
    let none = TaskStatus::ALL.map(|status| (status, 0)).to_vec();
    assert_eq!(empty.unwrap(), Census { tasks: none, ..Census::default() });
    collecting(store, 3).await;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(7, "seven")).await?;
                let live = [TaskStatus::Active];
                tx.set_task_status(task(7, "seven").id, &live, TaskStatus::Cancelled, NOW, None).await?;
                tx.insert_model_version(&model_version(1, 0)).await?;
                let before = tx.census().await?;
                let count = |status| before.tasks.iter().find(|(own, _)| *own == status).map(|(_, count)| *count);
                assert_eq!((count(TaskStatus::Active), count(TaskStatus::Cancelled)), (Some(1), Some(1)));
                assert_eq!((before.open_rounds, before.participants), (1, 3));
                assert!(before.model_bytes > 0, "{before:?}");
                assert!(tx.revoke_participant(participant_id(1), NOW).await?);
                assert_eq!(tx.census().await?, Census { participants: 2, ..before });
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
