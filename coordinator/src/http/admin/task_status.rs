//! `POST /v1/tasks/{task}/pause`, `…/resume` and `…/cancel`.

use std::sync::Arc;

use axum::extract::State;
use federation::id::{Attempt, TaskId};
use federation::round::{AssignmentState, Round, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction, WakeEvent};
use wire::admin::RebaseTask;
use wire::inspect::{BehindView, TaskView};
use wire::route;

use crate::http::app::App;
use crate::http::auth::operators::{Bearer, OfTask, Operator};
use crate::http::extract::Json;
use crate::http::inspect::tasks;
use crate::http::reply::etag::{IfMatch, Tagged};
use crate::http::reply::problem::{Error, Result};
use crate::privacy::ledger::{self, Charger};
use crate::privacy::release_keys::of_the_task;
use crate::rounds::reported_rounds::behind;
use crate::rounds::session::forget;

/// Maximum number of round numbers that one call skips.
const REBASE_MAX: u32 = 1_000_000;
/// All statuses of a running task.
const RUNNING: [TaskStatus; 3] = [TaskStatus::Active, TaskStatus::Paused, TaskStatus::BudgetExhausted];

/// Stop opening rounds.
#[utoipa::path(
    post, path = route::TASK_PAUSE, params(IfMatch), security(("token" = ["operator"])),
    responses((status = 200, body = TaskView), (status = 409), (status = 412)),
)]
pub(in crate::http) async fn pause(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
) -> Result<Tagged<TaskView>> {
    change(&app, &task, &bearer, &if_match, &[TaskStatus::Active], TaskStatus::Paused).await
}

/// Resume a paused task.
#[utoipa::path(
    post, path = route::TASK_RESUME, params(IfMatch), security(("token" = ["operator"])),
    responses((status = 200, body = TaskView), (status = 409), (status = 412)),
)]
pub(in crate::http) async fn resume(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
) -> Result<Tagged<TaskView>> {
    let from = [TaskStatus::Paused, TaskStatus::BudgetExhausted];
    if from.contains(&task.status) {
        let model = app.models.of(&task)?;
        if let Some(why) = ledger::why_untrusted(&app.store, &app.sealer, &task, model.private.as_deref()).await? {
            return Err(Error::Conflict(format!("the task stays {}, and releases nothing: {why}", task.status)));
        }
    }
    change(&app, &task, &bearer, &if_match, &from, TaskStatus::Active).await
}

/// Skip all round numbers that participants have seen, after an older database was restored.
///
/// The current round ends, and the next one comes after all of them.
#[utoipa::path(
    post, path = route::TASK_REBASE, params(IfMatch), request_body = RebaseTask, security(("token" = ["operator"])),
    responses((status = 200, body = TaskView), (status = 409), (status = 412)),
)]
pub(in crate::http) async fn rebase(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
    Json(RebaseTask { beyond }): Json<RebaseTask>,
) -> Result<Tagged<TaskView>> {
    let (id, terms, now) = (task.id, tasks::ViewTerms::of(&app), app.now());
    let (name, actor, if_match) = (bearer.name.as_str(), &bearer.actor(), &if_match);
    let charger = &Charger::of_task(&app.models, &app.sealer, &task).await?;
    let (view, ended) = app
        .store
        .transact("rebase_task", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                expect(tx, if_match, id, terms, now).await?;
                let row = tx.task(id).await?.ok_or_else(|| Error::fault("a task vanished"))?;
                let rounds = rounds_to_forfeit(&row, beyond, behind(tx, &row).await?)?;
                let last = row.next_round().number - 1 + rounds;
                let ended = end_round(tx, charger, id, now).await?;
                let detail = format!("no round up to {last} is used again, by operator {name}");
                tx.rebase_task(id, row.status, rounds, now, &detail).await?;
                let view = tasks::read(tx, id, terms, now).await?.ok_or_else(|| Error::fault("a task vanished"))?;
                Ok::<_, Error>((view, ended))
            })
        })
        .await?;
    app.store.wake().publish(WakeEvent::Task(id));
    if let Some(round) = ended {
        app.store.wake().publish(WakeEvent::Round(round.key.round_key()));
    }
    app.store.wake().publish(WakeEvent::Work);
    tracing::warn!(task = %id, operator = bearer.name, "the rounds of task {id} go on beyond those that were seen");
    Ok(Tagged(view))
}

/// The number of rounds to skip.
fn rounds_to_forfeit(task: &TaskRow, beyond: Option<u32>, behind: Option<BehindView>) -> Result<u32> {
    if task.status.is_terminal() {
        return Err(Error::TaskStatus(task.status));
    }
    if task.spec.privacy.is_private() {
        return Err(Error::Conflict(
            "the task is private, and its ledger has forgotten what was released in the rounds that participants have seen: \
             cancel it, and create it anew with a budget that counts them"
                .to_owned(),
        ));
    }
    let next = task.next_round().number;
    let Some(beyond) = beyond.or(behind.map(|behind| behind.seen_round)) else {
        return Err(Error::Conflict(format!(
            "no participant says that it has seen round {next} or a later one; say `beyond` which round to go on"
        )));
    };
    match beyond.checked_sub(next - 1) {
        Some(rounds @ 1..=REBASE_MAX) => Ok(rounds),
        _ => Err(Error::InvalidValue(format!(
            "beyond must be between {next}, the round whose turn it is, and {}",
            (next - 1).saturating_add(REBASE_MAX)
        ))),
    }
}

/// End the task and its current round.
#[utoipa::path(
    post, path = route::TASK_CANCEL, params(IfMatch), security(("token" = ["operator"])),
    responses((status = 200, body = TaskView), (status = 409), (status = 412)),
)]
pub(in crate::http) async fn cancel(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
) -> Result<Tagged<TaskView>> {
    change(&app, &task, &bearer, &if_match, &RUNNING, TaskStatus::Cancelled).await
}

async fn change(
    app: &App,
    task: &TaskRow,
    bearer: &Bearer,
    if_match: &IfMatch,
    from: &[TaskStatus],
    to: TaskStatus,
) -> Result<Tagged<TaskView>> {
    let (id, terms, now) = (task.id, tasks::ViewTerms::of(app), app.now());
    let detail = format!("by operator {}", bearer.name);
    let detail = detail.as_str();
    // Ending a task may charge its round in any state.
    let charger = match to.is_terminal() {
        true => Some(Charger::of_task(&app.models, &app.sealer, task).await?),
        false => None,
    };
    let (charger, actor) = (charger.as_ref(), &bearer.actor());
    let (view, ended) = app
        .store
        .transact("change_task_status", |tx| {
            Box::pin(async move {
                tx.act_for(actor.clone());
                expect(tx, if_match, id, terms, now).await?;
                let changed = tx.set_task_status(id, from, to, now, Some(detail)).await?;
                let view = tasks::read(tx, id, terms, now).await?.ok_or_else(|| Error::fault("a task vanished"))?;
                // Idempotent: a repeated request succeeds.
                if !changed && view.summary.status != to {
                    return Err(Error::TaskStatus(view.summary.status));
                }
                let mut ended = None;
                if let Some(charger) = charger.filter(|_| changed) {
                    ledger::forget_correlated_noise(tx, id).await?;
                    ended = end_round(tx, charger, id, now).await?;
                }
                Ok((view, ended))
            })
        })
        .await?;
    if to.is_terminal() {
        let of_its_round = ended.as_ref().map(|round| round.key);
        destroy_keys(app, of_its_round.into_iter().chain([of_the_task(id)]).collect()).await;
    }
    app.store.wake().publish(WakeEvent::Task(id));
    if let Some(round) = ended {
        app.store.wake().publish(WakeEvent::Round(round.key.round_key()));
    }
    app.store.wake().publish(WakeEvent::Work);
    tracing::info!(task = %id, operator = bearer.name, "task {id} is now {to}, by operator {}", bearer.name);
    Ok(Tagged(view))
}

/// Checks that the task's view matches the request's `If-Match`.
async fn expect(
    tx: &mut Transaction<'_>,
    if_match: &IfMatch,
    id: TaskId,
    terms: tasks::ViewTerms<'_>,
    now: Timestamp,
) -> Result<()> {
    if if_match.asks() {
        let view = tasks::read(tx, id, terms, now).await?.ok_or_else(|| Error::fault("a task vanished"))?;
        if_match.check(&view)?;
    }
    Ok(())
}

/// Destroys the keys of sums that will not be released, after their rows are deleted. If this fails, garbage collection removes the rest.
async fn destroy_keys(app: &App, uses: Vec<Attempt>) {
    let sealer = Arc::clone(&app.sealer);
    let destroy = move || uses.into_iter().try_for_each(|of| sealer.destroy_keys(of).map(drop));
    let destroyed = tokio::task::spawn_blocking(destroy).await.unwrap_or_else(|error| Err(StoreError::fault(error)));
    if let Err(error) = destroyed {
        tracing::warn!(%error, "keys of a release are left until garbage is collected: {error}");
    }
}

/// Ends the task's open round, and releases its pending participants.
async fn end_round(
    tx: &mut Transaction<'_>,
    charger: &Charger<'_>,
    task: TaskId,
    now: Timestamp,
) -> std::result::Result<Option<Round>, StoreError> {
    let Some(row) = tx.open_rounds().await?.into_iter().find(|row| row.round.key.task == task) else {
        return Ok(None);
    };
    let before = row.round;
    let after = Round { state: RoundState::Cancelled, state_since: now, ..before.clone() };
    if !tx.transition_round(&before, &after).await? {
        return Err(StoreError::Busy);
    }
    if let Some(task) = tx.task(task).await? {
        ledger::charge_unpublished(tx, &task, &before, charger, now).await?;
    }
    tx.set_pending_assignments(before.key, AssignmentState::Released, now).await?;
    forget(tx, before.key).await?;
    Ok(Some(after))
}
