//! `POST /v1/tasks/{task}/pause`, `…/resume` and `…/cancel`.

use std::sync::Arc;

use axum::extract::State;
use federation::id::{RoundKey, TaskId};
use federation::round::{AssignmentState, Round, RoundState};
use federation::task::TaskStatus;
use federation::time::Timestamp;
use store::{StoreError, Transaction, WakeEvent};
use wire::inspect::TaskView;

use crate::http::app::App;
use crate::http::authenticate::{Bearer, Operator};
use crate::http::extract::{Json, Path};
use crate::http::inspect::tasks;
use crate::http::problem::{Error, Result};
use crate::ledger;
use crate::release_keys::Use;
use crate::seal::Sealer;
use crate::session::{forget, keep_unopened};

/// Whatever is not over.
const RUNNING: [TaskStatus; 3] = [TaskStatus::Active, TaskStatus::Paused, TaskStatus::BudgetExhausted];

pub(in crate::http) async fn pause(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    Path(task): Path<String>,
) -> Result<Json<TaskView>> {
    change(&app, &task, &bearer, &[TaskStatus::Active], TaskStatus::Paused).await
}

pub(in crate::http) async fn resume(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    Path(task): Path<String>,
) -> Result<Json<TaskView>> {
    change(&app, &task, &bearer, &[TaskStatus::Paused, TaskStatus::BudgetExhausted], TaskStatus::Active).await
}

pub(in crate::http) async fn cancel(
    Operator(bearer): Operator,
    State(app): State<Arc<App>>,
    Path(task): Path<String>,
) -> Result<Json<TaskView>> {
    change(&app, &task, &bearer, &RUNNING, TaskStatus::Cancelled).await
}

async fn change(
    app: &App,
    named: &str,
    bearer: &Bearer,
    from: &[TaskStatus],
    to: TaskStatus,
) -> Result<Json<TaskView>> {
    let (id, now) = (app.task(named).await?.id, app.now());
    let detail = format!("by operator {}", bearer.name);
    let (detail, sealer) = (detail.as_str(), &*app.sealer);
    let (view, ended) = app
        .store
        .transact("change_task_status", |tx| {
            Box::pin(async move {
                let changed = tx.set_task_status(id, from, to, now, Some(detail)).await?;
                let view = tasks::read(tx, id).await?.ok_or_else(|| Error::fault("a task vanished"))?;
                // Asked for twice, the second time finds it done.
                if !changed && view.summary.status != to {
                    return Err(Error::TaskStatus(view.summary.status));
                }
                let cancelled = changed && to == TaskStatus::Cancelled;
                let ended = if cancelled { end_round(tx, sealer, id, now).await? } else { None };
                Ok((view, ended))
            })
        })
        .await?;
    if to.is_terminal() {
        let of_the_task = (RoundKey { task: id, number: 0 }, 0);
        let of_its_round = ended.as_ref().map(|round| (round.key, round.attempt));
        destroy_keys(app, of_its_round.into_iter().chain([of_the_task]).collect()).await;
    }
    app.store.wake().publish(WakeEvent::Task(id));
    if let Some(round) = ended {
        app.store.wake().publish(WakeEvent::Round(round.key));
    }
    app.store.wake().publish(WakeEvent::Work);
    tracing::info!(task = %id, operator = bearer.name, "task {id} is now {to}, by operator {}", bearer.name);
    Ok(Json(view))
}

/// Destroys what opens sums that will not be released, after the rows that it opened are forgotten. What is left if that fails is
/// garbage, and is collected.
async fn destroy_keys(app: &App, uses: Vec<Use>) {
    let sealer = Arc::clone(&app.sealer);
    let destroy = move || uses.into_iter().try_for_each(|of| sealer.destroy_keys(of).map(drop));
    let destroyed =
        tokio::task::spawn_blocking(destroy).await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    if let Err(error) = destroyed {
        tracing::warn!(%error, "keys of a release are left until garbage is collected: {error}");
    }
}

/// Ends the task's open round, and lets go those it waits for.
async fn end_round(
    tx: &mut (dyn Transaction + '_),
    sealer: &Sealer,
    task: TaskId,
    now: Timestamp,
) -> std::result::Result<Option<Round>, StoreError> {
    ledger::forget_tree(tx, task).await?;
    let Some(row) = tx.open_rounds().await?.into_iter().find(|row| row.round.key.task == task) else {
        return Ok(None);
    };
    let before = row.round;
    let after = Round { state: RoundState::Cancelled, state_since: now, ..before.clone() };
    if !tx.transition_round(&before, &after).await? {
        return Err(StoreError::Busy);
    }
    if let Some(task) = tx.task(task).await? {
        ledger::charge_unpublished(tx, &task, &before, sealer, now).await?;
    }
    tx.set_pending_assignments(before.key, before.attempt, AssignmentState::Released, now).await?;
    keep_unopened(tx, &before).await?;
    forget(tx, before.key, before.attempt).await?;
    Ok(Some(after))
}
