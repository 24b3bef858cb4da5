//! `GET /v1/tasks` and `/v1/tasks/{task}`.

use std::sync::Arc;

use axum::extract::State;
use federation::id::TaskId;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use http::HeaderValue;
use store::entity::task::{TaskChange, TaskFilter, TaskRow};
use store::{StoreError, Transaction};
use wire::headers::LAST_EVENT_ID;
use wire::inspect::{CertifiedBy, Page, StatusChange, TaskSummary, TaskView};
use wire::route;

use super::narrow::NarrowedQuery;
use super::protection::protection;
use super::{List, page};
use crate::http::app::App;
use crate::http::auth::operators::{InScope, OfTask, Viewer};
use crate::http::extract::{Json, Query};
use crate::http::reply::etag::{IfNoneMatch, Revised, Tagged};
use crate::http::reply::problem::{Error, Result};
use crate::rounds::models::Models;
use crate::rounds::reported_rounds::behind;
use crate::rounds::waiting::retries::Retries;
use crate::rounds::waiting::shortage::{participants, shortage};
use crate::rounds::waiting::waiting_for::waiting_for;

/// List tasks, newest first.
#[utoipa::path(
    get, path = route::TASKS, params(NarrowedQuery), security(("token" = ["viewer"])),
    responses((
        status = 200, body = Page<TaskSummary>,
        headers(("last-event-id" = u64, description = "A position in the log of events: a stream after it misses nothing that is not shown here.")),
    )),
)]
pub(in crate::http) async fn list(
    InScope(bearer): InScope,
    State(app): State<Arc<App>>,
    Query(query): Query<NarrowedQuery>,
) -> Result<([(&'static str, HeaderValue); 1], Json<Page<TaskSummary>>)> {
    let (paging, statuses, since) = query.read(&TaskStatus::ALL)?;
    let (limit, cursor) = (paging.limit()?, paging.place::<TaskId>(List::Tasks)?);
    let filter = &TaskFilter { statuses, since, scope: bearer.scope };
    let (end, rows) = app
        .store
        .read("list_tasks", |tx| {
            Box::pin(async move {
                // The position is read before the tasks: the tasks may be newer, and some events may then be repeated.
                let end = tx.last_event().await?.map_or(0, |(position, _)| position);
                Ok::<_, StoreError>((end, tx.tasks_where(filter, cursor, limit + 1).await?))
            })
        })
        .await?;
    let page = page(List::Tasks, rows, limit, |row| row.id, |row| summary(&row));
    Ok(([(LAST_EVENT_ID, HeaderValue::from(end))], Json(page)))
}

/// Get one task, by id or name.
#[utoipa::path(
    get, path = route::TASK, params(IfNoneMatch), security(("token" = ["viewer"])), responses((status = 200, body = TaskView), (status = 304, description = "it shows the same still")),
)]
pub(in crate::http) async fn show(
    OfTask { task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
) -> Result<Tagged<TaskView>> {
    Ok(Tagged(find(&app, task.id).await?))
}

pub(in crate::http) async fn find(app: &App, id: TaskId) -> Result<TaskView> {
    let (terms, now) = (ViewTerms::of(app), app.now());
    let found = app.store.read("show_task", |tx| Box::pin(async move { read(tx, id, terms, now).await }));
    let found = found.await?;
    found.ok_or_else(|| Error::NotFound(format!("there is no task {id}")))
}

/// The parts of a task's view that depend on its coordinator.
#[derive(Clone, Copy)]
pub(in crate::http) struct ViewTerms<'a> {
    models: &'a Models,
    certified_by: CertifiedBy,
    retries: Retries,
}

impl<'a> ViewTerms<'a> {
    pub(in crate::http) fn of(app: &'a App) -> Self {
        Self { models: &app.models, certified_by: app.members.certified_by(), retries: app.retries }
    }
}

/// Reads the view within a transaction.
pub(in crate::http) async fn read(
    tx: &mut Transaction<'_>,
    id: TaskId,
    terms: ViewTerms<'_>,
    now: Timestamp,
) -> std::result::Result<Option<TaskView>, StoreError> {
    let Some(row) = tx.task(id).await? else { return Ok(None) };
    let history = tx.task_history(id).await?;
    let behind = behind(tx, &row).await?;
    let latest = tx.round(row.next_round()).await?;
    let shortage = shortage(tx, &row, latest.as_ref().map(|row| &row.round), now).await?;
    let since = history.last().map_or(row.created_at, |change| change.at);
    let waiting_for = Some(waiting_for(tx, &row, since, latest.as_ref(), shortage.as_ref(), terms.retries, now).await?);
    let protection = Some(protection(tx, terms.models, &row, terms.certified_by).await?);
    let participants = participants(tx, &row, now).await?;
    Ok(Some(TaskView { protection, behind, shortage, participants, waiting_for, ..view(row, history) }))
}

impl Revised for TaskView {
    /// Excludes completed and lost rounds, their versions and spent epsilon, and the waiting participants. A restored version shows as more
    /// versions than rounds.
    fn revision(&self) -> serde_json::Result<Vec<u8>> {
        let Self {
            summary,
            rounds_forfeited: _,
            spec,
            protection: _,
            history,
            promoted_version,
            behind: _,
            shortage: _,
            participants: _,
            waiting_for: _,
        } = self;
        let restored = summary.model_version.saturating_sub(summary.rounds_completed);
        serde_json::to_vec(&(summary.id, summary.status, spec, history, promoted_version, restored))
    }
}

fn view(row: TaskRow, history: Vec<TaskChange>) -> TaskView {
    let change =
        |change: TaskChange| StatusChange { status: change.status.to_string(), at: change.at, detail: change.detail };
    TaskView {
        summary: summary(&row),
        rounds_forfeited: row.rounds_forfeited,
        promoted_version: row.promoted_version,
        spec: row.spec,
        protection: None,
        history: history.into_iter().map(change).collect(),
        behind: None,
        shortage: None,
        participants: None,
        waiting_for: None,
    }
}

fn summary(row: &TaskRow) -> TaskSummary {
    TaskSummary {
        id: row.id,
        name: row.spec.name.clone(),
        status: row.status,
        rounds_completed: row.rounds_completed,
        rounds_total: row.spec.rounds.count,
        model_version: row.model_version,
        parameters: row.parameters,
        created_at: row.created_at,
    }
}
