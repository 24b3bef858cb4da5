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
use wire::inspect::{Page, StatusChange, TaskSummary, TaskView};
use wire::route;

use super::narrow::NarrowedQuery;
use super::{List, page};
use crate::http::app::App;
use crate::http::etag::{IfNoneMatch, Revised, Tagged};
use crate::http::extract::{Json, Query};
use crate::http::operators::{InScope, OfTask, Viewer};
use crate::http::problem::{Error, Result};
use crate::reported_rounds::behind;
use crate::shortage::shortage;
use crate::waiting_for::waiting_for;

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
                // Before the tasks: what these show may be newer, and is told once more.
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
    let now = app.now();
    let found = app.store.read("show_task", |tx| Box::pin(async move { read(tx, id, now).await }));
    let found = found.await?;
    found.ok_or_else(|| Error::NotFound(format!("there is no task {id}")))
}

/// The same within a transaction.
pub(in crate::http) async fn read(
    tx: &mut Transaction<'_>,
    id: TaskId,
    now: Timestamp,
) -> std::result::Result<Option<TaskView>, StoreError> {
    let Some(row) = tx.task(id).await? else { return Ok(None) };
    let history = tx.task_history(id).await?;
    let behind = behind(tx, &row).await?;
    let latest = tx.round(row.next_round()).await?;
    let shortage = shortage(tx, &row, latest.as_ref().map(|row| &row.round), now).await?;
    let since = history.last().map_or(row.created_at, |change| change.at);
    let waiting_for = Some(waiting_for(tx, &row, since, latest.as_ref(), shortage.as_ref(), now).await?);
    Ok(Some(TaskView { behind, shortage, waiting_for, ..view(row, history) }))
}

impl Revised for TaskView {
    /// Without rounds that complete, their versions, and who waits for them. What versions were restored shows in how many more
    /// there are than rounds.
    fn revision(&self) -> serde_json::Result<Vec<u8>> {
        let Self {
            summary,
            spec,
            updates_readable_by: _,
            history,
            promoted_version,
            behind: _,
            shortage: _,
            waiting_for: _,
        } = self;
        let restored = summary.model_version.saturating_sub(summary.rounds_completed);
        serde_json::to_vec(&(summary.id, summary.status, spec, history, promoted_version, restored))
    }
}

fn view(row: TaskRow, history: Vec<TaskChange>) -> TaskView {
    let change =
        |change: TaskChange| StatusChange { status: change.status.to_string(), at: change.at, detail: change.detail };
    let secure = row.spec.secure_aggregation.enabled;
    TaskView {
        summary: summary(&row),
        promoted_version: row.promoted_version,
        spec: row.spec,
        // Without secure aggregation the coordinator, and so its operator, sees each update.
        updates_readable_by: if secure { "nobody" } else { "operator" }.to_owned(),
        history: history.into_iter().map(change).collect(),
        behind: None,
        shortage: None,
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
