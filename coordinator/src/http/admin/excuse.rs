//! `POST …/assignments/{participant}/excuse`: stops waiting for this participant in the round.

use std::sync::Arc;

use axum::extract::State;
use federation::event::{EventKind, Fact, Subject};
use federation::id::{ParticipantId, RoundKey};
use federation::round::{AssignmentState, Round};
use federation::time::Timestamp;
use http::StatusCode;
use store::{Transaction, WakeEvent};
use wire::route;

use crate::http::app::App;
use crate::http::auth::operators::{OfTask, Operator};
use crate::http::extract::Path;
use crate::http::inspect::rounds;
use crate::http::reply::etag::IfMatch;
use crate::http::reply::problem::{Error, Result};
use crate::observe::count_dropped;

/// Stop waiting for a participant in a round.
#[utoipa::path(
    post, path = route::EXCUSE, params(IfMatch), security(("token" = ["operator"])),
    responses((status = 204), (status = 409), (status = 412)),
)]
pub(in crate::http) async fn excuse(
    OfTask { bearer, task, .. }: OfTask<Operator>,
    State(app): State<Arc<App>>,
    if_match: IfMatch,
    Path((_, number, participant)): Path<(String, u32, ParticipantId)>,
) -> Result<StatusCode> {
    let (round, now) = (RoundKey { task: task.id, number }, app.now());
    let detail = format!("by operator {}", bearer.name);
    let (detail, actor) = (detail.as_str(), &bearer.actor());
    let (app, task, if_match) = (&*app, &task, &if_match);
    let phase = app
        .store
        .transact("excuse", |tx| {
            Box::pin(async move {
                let Some(row) = tx.round(round).await? else {
                    return Err(Error::NotFound(format!("the task has no round {number}")));
                };
                let attempt = row.round.key;
                // `fits` compares the attempt: the participant may also have a place in a later one. The view covers the whole cohort, so
                // it is read only for the error: reading it otherwise would make concurrent changes repeat this transaction.
                if !if_match.fits(&rounds::revision(attempt).map_err(Error::fault)?)
                    && let Some(view) = rounds::read(tx, app, task, row.clone()).await?
                {
                    if_match.check(&view)?;
                }
                tx.act_for(actor.clone());
                let (from, to) = ([AssignmentState::Assigned, AssignmentState::Working], AssignmentState::Excused);
                if tx.set_assignment_state(attempt, participant, &from, to, now, Some(detail)).await? {
                    note(tx, &row.round, participant, now);
                    return Ok(Some(row.round.state));
                }
                // The participant's input is included; the round stops waiting for its answers in later phases.
                if let Some(phase) = row.round.missed_in()
                    && tx.set_dropped(attempt, participant, phase).await?
                {
                    note(tx, &row.round, participant, now);
                    return Ok(Some(phase));
                }
                match tx.assignment(attempt, participant).await?.map(|assignment| assignment.state) {
                    Some(AssignmentState::Excused) => Ok(None),
                    Some(state) => Err(Error::Conflict(format!("the round does not wait for it: it is {state}"))),
                    None => Err(Error::NotFound("the participant has no place in this round".to_owned())),
                }
            })
        })
        .await?;
    if let Some(phase) = phase {
        count_dropped(phase, "excused", 1);
    }
    app.store.wake().publish(WakeEvent::Work);
    tracing::info!(%round, %participant, "{participant} excused from round {round} by operator {:?}", bearer.name);
    Ok(StatusCode::NO_CONTENT)
}

/// Notes that the round waits for one participant less. The event omits the participant if the draw is secret.
fn note(tx: &mut Transaction<'_>, round: &Round, participant: ParticipantId, now: Timestamp) {
    let subject = Subject::Round(round.key);
    match round.limits.sampled {
        Some(_) => tx.note_event(now, EventKind::ParticipantExcused, subject, []),
        None => {
            let facts = [("participant", Fact::from(participant.to_string()))];
            tx.note_event(now, EventKind::ParticipantExcused, subject, facts);
        }
    }
}
