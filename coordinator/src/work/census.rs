//! Gauges of stored rows and blobs, counted periodically so that a scrape needs no database query.

use std::time::Duration;

use federation::task_status::TaskStatus;
use learning::privacy::SealedRow;
use store::StoreError;
use store::entity::census::Census;
use store::entity::task::{TaskFilter, TaskRow};
use tokio_util::sync::CancellationToken;

use super::Environment;

/// Time between two counts.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of private tasks examined.
const PRIVATE_MAX: u32 = 1000;

/// Counts periodically until `shutdown`.
pub(super) async fn keep_counting(env: Environment, shutdown: CancellationToken) {
    describe();
    loop {
        match count(&env).await {
            Ok((census, spent)) => show(&census, spent),
            // Old figures stay; a database failure is reported elsewhere.
            Err(error) => tracing::debug!(%error, "nothing was counted for the gauges"),
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
            return;
        }
    }
}

/// The counts, and the largest fraction of its privacy budget spent by a task.
async fn count(env: &Environment) -> Result<(Census, f64), StoreError> {
    env.store
        .read("census", |tx| {
            Box::pin(async move {
                let statuses = TaskStatus::ALL.into_iter().filter(|status| !status.is_terminal()).collect();
                let filter = TaskFilter { statuses, ..TaskFilter::default() };
                let mut spent: f64 = 0.0;
                for task in tx.tasks_where(&filter, None, PRIVATE_MAX).await? {
                    let Some(last) = tx.privacy_count(task.id).await?.checked_sub(1) else { continue };
                    let row = tx.privacy_rows(task.id, last, 1).await?.pop();
                    spent = spent.max(row.and_then(|row| part_spent(&task, &row.row)).unwrap_or_default());
                }
                Ok((tx.census().await?, spent))
            })
        })
        .await
}

/// The spent fraction of a task's budget after this row of its ledger. This is only a gauge: seals are verified where the figure matters.
fn part_spent(task: &TaskRow, row: &str) -> Option<f64> {
    let SealedRow { row, .. } = serde_json::from_str(row).ok()?;
    let budget = task.spec.privacy.epsilon.filter(|budget| *budget > 0.0)?;
    Some(row.total.against(task.spec.privacy.against) / budget)
}

#[expect(clippy::cast_precision_loss, reason = "measurements, which nothing depends on")]
fn show(census: &Census, spent: f64) {
    for (status, count) in &census.tasks {
        metrics::gauge!("tributary_tasks", "status" => status.as_str()).set(*count as f64);
    }
    metrics::gauge!("tributary_open_rounds").set(census.open_rounds as f64);
    metrics::gauge!("tributary_participants").set(census.participants as f64);
    metrics::gauge!("tributary_model_stored_bytes").set(census.model_bytes as f64);
    metrics::gauge!("tributary_privacy_budget_spent_ratio").set(spent);
}

fn describe() {
    metrics::describe_gauge!("tributary_tasks", "Tasks by status, as counted once a minute");
    metrics::describe_gauge!("tributary_open_rounds", "Rounds that have not ended, as counted once a minute");
    metrics::describe_gauge!(
        "tributary_participants",
        "Participants enrolled and not revoked, as counted once a minute"
    );
    metrics::describe_gauge!(
        "tributary_model_stored_bytes",
        "Size of the model versions that are kept, one copy of each, as counted once a minute"
    );
    metrics::describe_gauge!(
        "tributary_privacy_budget_spent_ratio",
        "Largest part of its epsilon that a task has spent, of those that are not over, as counted once a minute"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::recorder;

    #[test]
    fn gauges_show_what_was_counted() {
        let metrics = recorder();
        let tasks = vec![(TaskStatus::Active, 2), (TaskStatus::Completed, 5)];
        show(&Census { tasks, open_rounds: 1, participants: 40, model_bytes: 7_000 }, 0.25);
        let shown = metrics.render();
        for line in [
            "tributary_tasks{status=\"ACTIVE\"} 2",
            "tributary_tasks{status=\"COMPLETED\"} 5",
            "tributary_open_rounds 1",
            "tributary_participants 40",
            "tributary_model_stored_bytes 7000",
            "tributary_privacy_budget_spent_ratio 0.25",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
        }
    }
}
