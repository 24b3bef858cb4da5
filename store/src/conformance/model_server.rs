//! Guarantees of servers of models.

use super::sample::{after, task, task_id};
use crate::entity::model_server::ModelServer;
use crate::{Result, Store};

/// The report of a server of this task at this time; it is valid for 100 ms.
fn server(of: u128, name: &str, at: i64) -> ModelServer {
    let report = format!("{{\"said\":{at}}}");
    ModelServer { task: task_id(of), name: name.to_owned(), report, told_at: after(at), expires_at: after(at + 100) }
}

/// A server is listed with its last report, by its name, until that expires or the server leaves.
pub async fn a_server_counts_until_it_leaves_or_is_silent(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                tx.insert_task(&task(2, "two")).await?;
                for told in [server(1, "b", 0), server(1, "a:80", 1), server(1, "Z", 2), server(2, "b", 3)] {
                    assert!(tx.put_model_server(&told, 9).await?);
                }
                assert_eq!(tx.noted_events(), 2 + 4, "of two tasks and four servers");
                assert!(tx.put_model_server(&server(1, "b", 50), 9).await?);
                assert_eq!(tx.noted_events(), 6, "it counted already");
                // By their bytes.
                let all = [server(1, "Z", 2), server(1, "a:80", 1), server(1, "b", 50)];
                assert_eq!(tx.model_servers(task_id(1), None, after(50), 9).await?, all);
                assert_eq!(tx.model_servers(task_id(1), None, after(50), 2).await?, all[..2]);
                assert_eq!(tx.model_servers(task_id(1), Some("a:80"), after(50), 9).await?, all[2..]);
                assert_eq!(tx.model_servers(task_id(2), None, after(50), 9).await?, [server(2, "b", 3)]);
                assert_eq!(tx.model_servers(task_id(1), None, after(101), 9).await?, [all[0].clone(), all[2].clone()]);
                assert!(tx.remove_model_server(task_id(1), "Z", after(101)).await?);
                assert!(!tx.remove_model_server(task_id(1), "Z", after(101)).await?);
                assert_eq!(tx.noted_events(), 7, "it left once");
                assert_eq!(tx.forget_model_servers(after(102)).await?, 1, "a:80 alone");
                assert_eq!(tx.forget_model_servers(after(103)).await?, 1, "that of the other task");
                assert_eq!(tx.model_servers(task_id(1), None, after(149), 9).await?, [all[2].clone()]);
                assert!(tx.model_servers(task_id(1), None, after(150), 9).await?.is_empty());
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let orphan = &server(3, "b", 0);
    refused!(store, |tx| tx.put_model_server(orphan, 9));
}

/// The number of reporting servers of a task is bounded. A silent server takes no place.
pub async fn servers_of_a_task_are_bounded(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                tx.insert_task(&task(2, "two")).await?;
                assert!(tx.put_model_server(&server(1, "a", 0), 2).await?);
                assert!(tx.put_model_server(&server(1, "b", 50), 2).await?);
                assert!(!tx.put_model_server(&server(1, "c", 50), 2).await?, "two count");
                assert!(tx.put_model_server(&server(2, "c", 50), 2).await?, "of another task");
                assert!(tx.put_model_server(&server(1, "b", 60), 2).await?, "it counts already");
                assert!(tx.put_model_server(&server(1, "c", 100), 2).await?, "one is silent");
                assert!(!tx.put_model_server(&server(1, "a", 100), 2).await?, "its place is taken");
                let listed = tx.model_servers(task_id(1), None, after(100), 9).await?;
                assert_eq!(listed, [server(1, "b", 60), server(1, "c", 100)]);
                Ok(())
            })
        })
        .await;
    result.unwrap();
}
