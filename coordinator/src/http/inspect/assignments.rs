//! `GET /v1/tasks/{task}/rounds/{round}/assignments`.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use federation::id::{ParticipantId, RoundKey};
use federation::round::{AssignmentState, Round};
use serde::Deserialize;
use store::entity::assignment::AssignmentChange;
use store::entity::listed_assignment::{AssignmentFilter, ListedAssignment};
use store::entity::session_message::MessageKind;
use store::entity::token::TaskScope;
use store::{StoreError, Transaction};
use utoipa::IntoParams;
use wire::inspect::{AssignmentView, Page, StatusChange};
use wire::route;

use super::attempt::attempt_at;
use super::narrow::{labels, named};
use super::{List, PageQuery, page};
use crate::http::app::App;
use crate::http::auth::operators::{OfTask, Viewer};
use crate::http::extract::{Json, Path, Query};
use crate::http::reply::problem::{Error, Result};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct AssignmentsQuery {
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Items per page, 1 to 500; default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// The attempt; default the latest.
    attempt: Option<u32>,
    /// States, separated by commas; default all.
    state: Option<String>,
    /// Only participants with a label, as `NAME=VALUE`; may be repeated, and then all must be there. Not with a token for some tasks
    /// alone, which may not know labels.
    label: Vec<String>,
}

/// List the cohort of a round.
#[utoipa::path(
    get, path = route::ASSIGNMENTS, params(AssignmentsQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = Page<AssignmentView>)),
)]
pub(in crate::http) async fn list(
    OfTask { bearer, task, .. }: OfTask<Viewer>,
    State(app): State<Arc<App>>,
    Path((_, number)): Path<(String, u32)>,
    Query(query): Query<AssignmentsQuery>,
) -> Result<Json<Page<AssignmentView>>> {
    let key = RoundKey { task: task.id, number };
    let AssignmentsQuery { cursor, limit, attempt, state, label } = query;
    let paging = PageQuery { cursor, limit };
    let (limit, cursor) = (paging.limit()?, paging.place::<ParticipantId>(List::Assignments)?);
    if !label.is_empty() && bearer.scope != TaskScope::All {
        let detail = "the token is for some tasks alone, and labels are of participants, which are of no task";
        return Err(Error::Forbidden(detail.to_owned()));
    }
    let states = named("state", state.as_deref(), &AssignmentState::ALL)?;
    let filter = &AssignmentFilter { states, labels: labels(&label)? };
    let views = app
        .store
        .read("list_assignments", |tx| {
            Box::pin(async move {
                let Some(round) = attempt_at(tx, key, attempt).await?.map(|row| row.round) else {
                    return Err(Error::NotFound(format!("the task has no round {number}, or no such attempt at it")));
                };
                let sets = Sets::read(tx, &round).await?;
                let places = tx.listed_assignments(round.key, filter, cursor, limit + 1).await?;
                Ok(places.into_iter().map(|place| assignment_view(place, &sets)).collect::<Vec<_>>())
            })
        })
        .await?;
    Ok(Json(page(List::Assignments, views, limit, |view| view.participant, |view| view)))
}

/// The members of U2, U3, U4 and U5 in a secure aggregation session.
struct Sets(Vec<(&'static str, HashSet<ParticipantId>)>);

impl Sets {
    async fn read(tx: &mut Transaction<'_>, round: &Round) -> std::result::Result<Self, StoreError> {
        if round.limits.secure.is_none() {
            return Ok(Self(Vec::new()));
        }
        let mut sets = Vec::new();
        for (name, kind) in [
            ("U2", MessageKind::Shares),
            ("U3", MessageKind::Input),
            ("U4", MessageKind::Consistency),
            ("U5", MessageKind::Unmasking),
        ] {
            sets.push((name, tx.message_senders(round.key, kind).await?.into_iter().collect()));
        }
        Ok(Self(sets))
    }

    fn of(&self, participant: ParticipantId) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let members = self.0.iter().filter(|(_, set)| set.contains(&participant)).map(|(name, _)| *name);
        // Every member of the cohort advertised keys.
        ["U1"].into_iter().chain(members).map(str::to_owned).collect()
    }
}

fn assignment_view(place: ListedAssignment, sets: &Sets) -> AssignmentView {
    let ListedAssignment { assignment, name, bytes, anomaly, history } = place;
    let change = |change: AssignmentChange| StatusChange {
        status: change.state.to_string(),
        at: change.at,
        detail: change.detail,
    };
    AssignmentView {
        participant: assignment.participant,
        name,
        state: assignment.state,
        detail: assignment.detail,
        dropped_in: assignment.dropped_in,
        group: assignment.group,
        sets: sets.of(assignment.participant),
        bytes_up: bytes,
        anomaly,
        history: history.into_iter().map(change).collect(),
    }
}
