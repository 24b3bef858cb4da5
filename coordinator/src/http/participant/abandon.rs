//! `POST …/assignments/{participant}/abandon`: a participant gives up its place.

use std::sync::Arc;

use axum::extract::State;
use federation::id::{ParticipantId, RoundKey, TaskId};
use federation::round::AssignmentState;
use http::StatusCode;
use store::WakeEvent;
use wire::participant::AbandonRequest;
use wire::route;

use crate::admission::Rejection;
use crate::http::app::App;
use crate::http::auth::authenticate::Participant;
use crate::http::extract::{Json, Path};
use crate::http::reply::problem::{Error, Result};
use crate::observe::count_dropped;
use crate::rounds::waiting::abandon_detail::detail;

/// Give up a place in a round.
#[utoipa::path(
    post, path = route::ABANDON, request_body = AbandonRequest, security(("certificate" = [])),
    responses((status = 204), (status = 409)),
)]
pub(in crate::http) async fn abandon(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number, participant)): Path<(TaskId, u32, ParticipantId)>,
    Json(request): Json<AbandonRequest>,
) -> Result<StatusCode> {
    caller.must_be(participant, "a participant gives up its own place, not another's")?;
    let (round, now) = (RoundKey { task, number }, app.now());
    let attempt = round.attempt(request.attempt);
    let reason = detail(request.reason, request.refusal);
    let reason = reason.as_str();
    let phase = app
        .store
        .transact("abandon", |tx| {
            Box::pin(async move {
                let (from, to) = ([AssignmentState::Assigned, AssignmentState::Working], AssignmentState::Abandoned);
                let row = tx.round_attempt(attempt).await?;
                if tx.set_assignment_state(attempt, participant, &from, to, now, Some(reason)).await? {
                    return Ok(row.map(|row| row.round.state));
                }
                // The participant's input is included; the round stops waiting for its answers in later phases.
                if let Some(phase) = row.and_then(|row| row.round.missed_in())
                    && tx.set_dropped(attempt, participant, phase).await?
                {
                    return Ok(Some(phase));
                }
                match tx.assignment(attempt, participant).await?.map(|assignment| assignment.state) {
                    None => Err(Error::Rejected(Rejection::NotAssigned { why: "it was not drawn" })),
                    // An accepted masked input is final.
                    Some(AssignmentState::Reported) => {
                        Err(Error::Conflict("the masked input was accepted already".to_owned()))
                    }
                    // Repeated, or the place was lost for another reason: given up either way.
                    Some(_) => Ok(None),
                }
            })
        })
        .await?;
    if let Some(phase) = phase {
        count_dropped(phase, request.reason.as_str(), 1);
    }
    app.store.wake().publish(WakeEvent::Work);
    tracing::info!(%round, attempt = request.attempt, %participant, reason, "{participant} gave up its place in round {round}: {reason}");
    Ok(StatusCode::NO_CONTENT)
}
