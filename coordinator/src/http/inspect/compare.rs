//! `GET /v1/compare`: tasks or rounds side by side.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use federation::id::{RoundKey, TaskId};
use federation::round::RoundState;
use serde::Deserialize;
use store::StoreError;
use store::entity::round::RoundFilter;
use store::entity::round_summary::RoundSums;
use task_spec::keys;
use utoipa::IntoParams;
use wire::inspect::{Column, Comparison, RoundTotals};
use wire::route;

use super::attempt::attempt_at;
use super::round_view::views;
use crate::http::app::App;
use crate::http::auth::operators::{Bearer, InScope};
use crate::http::extract::{Json, Query};
use crate::http::reply::problem::{Error, Result};

/// Number of columns in a comparison.
const COLUMNS: std::ops::RangeInclusive<usize> = 2..=8;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct CompareQuery {
    /// A task by id or name; 2 to 8 times.
    task: Vec<String>,
    /// A round as TASK/NUMBER, which is its latest attempt, or TASK/NUMBER/ATTEMPT; 2 to 8 times, and then no task.
    round: Vec<String>,
}

/// Compare tasks or rounds.
#[utoipa::path(
    get, path = route::COMPARE, params(CompareQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = Comparison), (status = 404)),
)]
pub(in crate::http) async fn compare(
    InScope(bearer): InScope,
    State(app): State<Arc<App>>,
    Query(CompareQuery { task, round }): Query<CompareQuery>,
) -> Result<Json<Comparison>> {
    let mut columns = Vec::new();
    match (task.as_slice(), round.as_slice()) {
        (tasks, []) if COLUMNS.contains(&tasks.len()) => {
            for named in tasks {
                columns.push(of_task(&app, &bearer, named).await?);
            }
        }
        ([], rounds) if COLUMNS.contains(&rounds.len()) => {
            for named in rounds {
                columns.push(of_round(&app, &bearer, named).await?);
            }
        }
        _ => {
            let detail = "send task= between 2 and 8 times, or round= between 2 and 8 times";
            return Err(Error::InvalidValue(detail.to_owned()));
        }
    }
    Ok(Json(Comparison::of(&columns)))
}

async fn of_task(app: &App, bearer: &Bearer, named: &str) -> Result<(TaskId, Column)> {
    let task = &app.task_within(&bearer.scope, named).await?;
    let now = app.now();
    let completed = &RoundFilter { states: vec![RoundState::Completed], ..RoundFilter::default() };
    let read = app.store.read("compare_rounds", |tx| {
        Box::pin(async move {
            let sums = tx.sum_rounds(task.id, now).await?;
            let last = tx.rounds_where(task.id, completed, None, 1).await?;
            Ok::<_, StoreError>((sums, views(tx, app, task, last).await?))
        })
    });
    let (sums, last) = read.await?;
    let keys = keys(&task.spec).map_err(Error::fault)?;
    Ok((task.id, Column::of_task(task.spec.name.clone(), keys, &totals(&sums), last.first())))
}

fn totals(sums: &[RoundSums]) -> RoundTotals {
    let mut totals = RoundTotals::default();
    for RoundSums { state, rounds, millis, bytes_up, bytes_down } in sums {
        match state {
            RoundState::Completed => totals.completed += rounds,
            RoundState::Failed => totals.failed += rounds,
            RoundState::Cancelled
            | RoundState::Selecting
            | RoundState::Sharing
            | RoundState::Collecting
            | RoundState::Confirming
            | RoundState::Unmasking
            | RoundState::Aggregating => {}
        }
        totals.rounds += rounds;
        totals.took += Duration::from_millis(*millis);
        totals.bytes_up += bytes_up;
        totals.bytes_down += bytes_down;
    }
    totals
}

async fn of_round(app: &App, bearer: &Bearer, named: &str) -> Result<(TaskId, Column)> {
    let unreadable = || Error::InvalidValue(format!("round: {named:?} is not TASK/NUMBER or TASK/NUMBER/ATTEMPT"));
    let number = |text: &str| text.parse::<u32>().map_err(|_| unreadable());
    let (task, number, attempt) = match named.split('/').collect::<Vec<_>>().as_slice() {
        [task, round] => (*task, number(round)?, None),
        [task, round, attempt] => (*task, number(round)?, Some(number(attempt)?)),
        _ => return Err(unreadable()),
    };
    let task = &app.task_within(&bearer.scope, task).await?;
    let key = RoundKey { task: task.id, number };
    let read = app.store.read("compare_round", |tx| {
        Box::pin(async move {
            let row = attempt_at(tx, key, attempt).await?;
            Ok::<_, StoreError>(views(tx, app, task, row.into_iter().collect()).await?.pop())
        })
    });
    let Some(round) = read.await? else {
        return Err(Error::NotFound(format!("there is no round {named:?}, or no such attempt at it")));
    };
    let name = format!("{}/{}/{}", task.spec.name, round.number, round.attempt);
    Ok((task.id, Column::of_round(name, keys(&task.spec).map_err(Error::fault)?, &round)))
}
