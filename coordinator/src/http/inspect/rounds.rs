//! `GET /v1/tasks/{task}/rounds` and `…/rounds/{round}`.

use std::sync::Arc;

use axum::extract::State;
use federation::id::{Attempt, RoundKey};
use federation::round::RoundState;
use serde::Deserialize;
use store::entity::round::{RoundFilter, RoundRow};
use store::entity::task::TaskRow;
use store::{StoreError, Transaction, WakeEvent};
use utoipa::IntoParams;
use wire::inspect::{Page, RoundView};
use wire::route;

use super::attempt::attempt_at;
use super::narrow::{NarrowedQuery, When};
use super::round_view::views;
use super::wait::{Wait, Woken};
use super::{List, page};
use crate::http::app::App;
use crate::http::auth::operators::{OfTask, Viewer};
use crate::http::extract::{Json, Path, Query};
use crate::http::reply::etag::{IfNoneMatch, Revised, Tagged};
use crate::http::reply::problem::{Error, Result};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct RoundsQuery {
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Items per page, 1 to 500; default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// States, separated by commas; default all.
    state: Option<String>,
    /// Only rounds whose latest attempt was opened then or later.
    #[param(inline)]
    since: Option<When>,
    /// Only rounds whose sum, that of the latest attempt, was added or unmasked by a device of this name.
    device: Option<String>,
}

/// List rounds by their latest attempts, newest first.
#[utoipa::path(
    get, path = route::ROUNDS, params(RoundsQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = Page<RoundView>)),
)]
pub(in crate::http) async fn list(
    OfTask { task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
    Query(RoundsQuery { cursor, limit, state, since, device }): Query<RoundsQuery>,
) -> Result<Json<Page<RoundView>>> {
    let (paging, states, since) = NarrowedQuery { cursor, limit, state, since }.read(&RoundState::ALL)?;
    let (limit, before) = (paging.limit()?, paging.place::<u32>(List::Rounds)?);
    let filter = RoundFilter { states, since, device };
    let (app, task, filter) = (&*app, &task, &filter);
    let page = app
        .store
        .read("list_rounds", |tx| {
            Box::pin(async move {
                let rows = tx.rounds_where(task.id, filter, before, limit + 1).await?;
                let Page { items, next_cursor } = page(List::Rounds, rows, limit, |row| row.round.key.round, |row| row);
                Ok::<_, StoreError>(Page { items: views(tx, app, task, items).await?, next_cursor })
            })
        })
        .await;
    Ok(Json(page?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct RoundQuery {
    /// The attempt; default the latest.
    attempt: Option<u32>,
    /// Wait while the round is in this state.
    after_state: Option<RoundState>,
    /// Maximum wait, in milliseconds, also for a round that does not exist yet.
    wait_ms: u64,
}

/// Get one round.
#[utoipa::path(
    get, path = route::ROUND, params(RoundQuery, IfNoneMatch), security(("token" = ["viewer"])),
    responses((status = 200, body = RoundView), (status = 304, description = "it shows the same still")),
)]
pub(in crate::http) async fn show(
    OfTask { task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
    Path((_, number)): Path<(String, u32)>,
    Query(query): Query<RoundQuery>,
) -> Result<Tagged<RoundView>> {
    let key = RoundKey { task: task.id, number };
    let mut wait = Wait::begin(&app, query.wait_ms);
    loop {
        let found = find(&app, &task, key, query.attempt).await?;
        // A client may also wait for a future round.
        let found = match found {
            Some(view) if query.after_state != Some(view.state) => return Ok(Tagged(view)),
            found => found,
        };
        match wait.next(|event| matches!(event, WakeEvent::Round(round) if *round == key)).await {
            Woken::Changed => {}
            Woken::TimeIsUp => {
                return found.map(Tagged).ok_or_else(|| Error::NotFound(format!("the task has no round {number} yet")));
            }
            Woken::ShuttingDown => return found.map(Tagged).ok_or(Error::ShuttingDown),
        }
    }
}

async fn find(app: &App, task: &TaskRow, key: RoundKey, attempt: Option<u32>) -> Result<Option<RoundView>> {
    app.store
        .read("show_round", |tx| {
            Box::pin(async move {
                let row = attempt_at(tx, key, attempt).await?;
                views(tx, app, task, row.into_iter().collect()).await
            })
        })
        .await
        .map(|mut views| views.pop())
        .map_err(Error::Store)
}

/// The view of one attempt within a transaction.
///
/// # Errors
/// The store cannot be read.
pub(in crate::http) async fn read(
    tx: &mut Transaction<'_>,
    app: &App,
    task: &TaskRow,
    row: RoundRow,
) -> std::result::Result<Option<RoundView>, StoreError> {
    Ok(views(tx, app, task, vec![row]).await?.pop())
}

/// The revision of an attempt's view: only its identity, since writes do not depend on the progress.
///
/// # Errors
/// JSON serialization failed.
pub(in crate::http) fn revision(Attempt { task, round, attempt }: Attempt) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&(task, round, attempt))
}

impl Revised for RoundView {
    fn revision(&self) -> serde_json::Result<Vec<u8>> {
        revision(Attempt { task: self.task, round: self.number, attempt: self.attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_attempt_is_another_revision() {
        let sample = include_str!("../../../../wire/tests/compat/v1/round_view.json");
        let view: RoundView = serde_json::from_str(sample).unwrap();
        let key = Attempt { task: view.task, round: view.number, attempt: view.attempt };
        assert_eq!(revision(key).unwrap(), view.revision().unwrap());
        let revision = |view: &RoundView| view.revision().unwrap();
        let later = RoundView { state: RoundState::Cancelled, reported: 9, seconds: 7.0, ..view.clone() };
        assert_eq!(revision(&later), revision(&view));
        for other in [RoundView { attempt: 2, ..view.clone() }, RoundView { number: 4, ..view.clone() }] {
            assert_ne!(revision(&other), revision(&view));
        }
    }
}
