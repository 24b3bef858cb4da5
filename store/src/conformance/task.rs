//! Guarantees of tasks.

use federation::task_status::TaskStatus;

use super::sample::{after, task, task_id};
use crate::entity::task::{TaskFilter, TaskRow};
use crate::entity::token::TaskScope;
use crate::{Result, Store};

/// Of the tasks of one name only one is not over; the name leads to it, or to the newest.
pub async fn a_name_is_free_again_once_its_task_is_over(store: &Store) {
    let result: Result<()> =
        store.transact("test", |tx| Box::pin(async move { tx.insert_task(&task(1, "one")).await })).await;
    result.unwrap();
    for twin in &[task(2, "one"), task(1, "other")] {
        refused!(store, |tx| tx.insert_task(twin));
    }
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let live = [TaskStatus::Active, TaskStatus::Paused];
                assert!(tx.set_task_status(task_id(1), &live, TaskStatus::Cancelled, after(9), None).await?);
                assert_eq!(tx.task_by_name("one").await?.unwrap().id, task_id(1));
                tx.insert_task(&task(2, "one")).await?;
                assert_eq!(tx.task_by_name("one").await?, Some(task(2, "one")));
                assert!(tx.set_task_status(task_id(2), &live, TaskStatus::Completed, after(10), None).await?);
                assert_eq!(tx.task_by_name("one").await?.unwrap().id, task_id(2));
                assert_eq!(tx.task_by_name("two").await?, None);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// A change that expects another status is ignored; effective changes are recorded.
pub async fn status_changes_by_compare_and_swap_with_history(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let (active, paused) = (TaskStatus::Active, TaskStatus::Paused);
                tx.insert_task(&task(1, "one")).await?;
                assert!(tx.set_task_status(task_id(1), &[active], paused, after(5), Some("ann")).await?);
                assert!(!tx.set_task_status(task_id(1), &[active], TaskStatus::Completed, after(6), None).await?);
                assert!(!tx.set_task_status(task_id(1), &[], TaskStatus::Completed, after(6), None).await?);
                assert!(!tx.set_task_status(task_id(2), &[active], paused, after(6), None).await?);
                let history = tx.task_history(task_id(1)).await?;
                let seen: Vec<_> = history.iter().map(|c| (c.status, c.at, c.detail.as_deref())).collect();
                assert_eq!(seen, [(active, after(1), None), (paused, after(5), Some("ann"))]);
                assert_eq!(tx.active_tasks().await?, []);

                assert!(tx.task_advanced(task_id(1), 3, 4).await?);
                assert!(!tx.task_advanced(task_id(2), 3, 4).await?);
                let row = tx.task(task_id(1)).await?.unwrap();
                assert_eq!((row.status, row.rounds_completed, row.model_version), (paused, 3, 4));
                assert_eq!(tx.task(task_id(2)).await?, None);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Pages are contiguous and end.
pub async fn tasks_are_listed_newest_first(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for n in [2, 1, 3] {
                    tx.insert_task(&task(n, &format!("task-{n}"))).await?;
                }
                let first = tx.tasks(None, 2).await?;
                assert_eq!(first, [task(3, "task-3"), task(2, "task-2")]);
                assert_eq!(tx.tasks(Some(task_id(2)), 2).await?, [task(1, "task-1")]);
                assert_eq!(tx.tasks(Some(task_id(1)), 2).await?, []);
                let live = [TaskStatus::Active];
                assert!(tx.set_task_status(task_id(2), &live, TaskStatus::Paused, after(9), None).await?);
                for (statuses, since, cursor, found) in [
                    (vec![], Some(2), None, &[3, 2][..]),
                    (vec![TaskStatus::Active], None, None, &[3, 1]),
                    (vec![TaskStatus::Paused, TaskStatus::Cancelled], None, None, &[2]),
                    (vec![TaskStatus::Active], Some(2), None, &[3]),
                    // A cursor that the filter does not take.
                    (vec![TaskStatus::Active], None, Some(2), &[1]),
                ] {
                    for (tasks, scope) in [
                        (vec![1, 2, 3], TaskScope::All),
                        (vec![1, 2], TaskScope::Only(vec![task_id(2), task_id(1), task_id(9)])),
                        (vec![], TaskScope::Only(vec![])),
                    ] {
                        let filter = TaskFilter { statuses: statuses.clone(), since: since.map(after), scope };
                        let rows = tx.tasks_where(&filter, cursor.map(task_id), 9).await?;
                        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
                        let found = found.iter().copied().filter(|found| tasks.contains(found));
                        assert_eq!(ids, found.map(task_id).collect::<Vec<_>>(), "{filter:?}");
                    }
                }
                assert!(
                    tx.set_task_status(task_id(2), &[TaskStatus::Paused], TaskStatus::Active, after(9), None).await?
                );
                let active = tx.active_tasks().await?;
                assert_eq!(active.iter().map(|task| task.id).collect::<Vec<_>>(), [1, 2, 3].map(task_id));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}

/// Forfeited rounds do not count as completed, and end without a version.
pub async fn forfeited_rounds_are_counted(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&TaskRow { rounds_forfeited: 3, ..task(1, "one") }).await?;
                assert!(tx.forfeit_rounds(task_id(1), 1).await?);
                assert!(tx.forfeit_rounds(task_id(1), 4).await?);
                assert!(!tx.forfeit_rounds(task_id(2), 1).await?);
                let expected = TaskRow { rounds_forfeited: 8, ..task(1, "one") };
                assert_eq!(tx.task(task_id(1)).await?, Some(expected));
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
