//! `GET /v1/tasks/{task}/servers`: the model servers of a task, as they report.

use std::sync::Arc;

use axum::extract::State;
use store::entity::model_server::ModelServer;
use wire::inspect::{Page, ServerView};
use wire::route;

use super::{List, PageQuery, page};
use crate::http::app::App;
use crate::http::auth::operators::{OfTask, Viewer};
use crate::http::extract::{Json, Query};
use crate::http::reply::problem::Result;

/// List who serves the task's model, by name.
///
/// A server that has said nothing for two minutes is not listed.
#[utoipa::path(
    get, path = route::TASK_SERVERS, params(PageQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = Page<ServerView>)),
)]
pub(in crate::http) async fn list(
    OfTask { task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
    Query(paging): Query<PageQuery>,
) -> Result<Json<Page<ServerView>>> {
    let (limit, place) = (paging.limit()?, paging.place::<String>(List::Servers)?);
    let (task, now, after) = (task.id, app.now(), place.as_deref());
    let rows = app
        .store
        .read("list_model_servers", |tx| Box::pin(async move { tx.model_servers(task, after, now, limit + 1).await }))
        .await?;
    let Page { items, next_cursor } = page(List::Servers, rows, limit, |row| row.name.clone(), view);
    Ok(Json(Page { items: items.into_iter().flatten().collect(), next_cursor }))
}

/// Returns `None` for an unreadable report, stored by a newer coordinator.
fn view(row: ModelServer) -> Option<ServerView> {
    let ModelServer { task, name, report, told_at, expires_at: _ } = row;
    match serde_json::from_str(&report) {
        Ok(report) => Some(ServerView { name, told_at, report }),
        Err(error) => {
            tracing::debug!(%task, server = name, "what {name} said is not listed: {error}");
            None
        }
    }
}
