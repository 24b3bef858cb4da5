//! Abort statements: participants state that they have left a session for good, and others get the proof that no sum of
//! the session was or will be opened, so that they may contribute from the same model again.
//!
//! A statement counts while the round is in progress or after it has ended without a sum. If the round ended with one,
//! or before an input could have been sent, nothing depends on the statement: it is accepted but not stored.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use federation::id::{Attempt, ParticipantId, TaskId};
use http::{HeaderMap, StatusCode, header};
use secure_agg::codec::Message as _;
use secure_agg::messages::Roster;
use secure_agg::rejection::MessageRejection;
use secure_agg::unopened::{AbortProof, AbortStatement, EndedSession};
use serde::Deserialize;
use store::entity::unopened::{AbortStatement as StatementRow, UnopenedSession};
use store::{StoreError, Transaction};
use utoipa::IntoParams;
use wire::certificate::Recorded;
use wire::headers::MEDIA_SECURE_AGG;
use wire::route;

use super::answers::{decode, rejected};
use crate::admission::{AdmissionError, Rejection};
use crate::http::app::App;
use crate::http::authenticate::Participant;
use crate::http::extract::{Path, Query, attempt, read, require_media_type};
use crate::http::openapi::{AttemptHeader, Octets};
use crate::http::problem::{Error, Result};
use crate::session::{participant as named, unopened};
use crate::sessions::Sessions;

/// State that this participant left the session for good without answering.
#[utoipa::path(
    put, path = route::ABORT_STATEMENT, params(AttemptHeader),
    request_body(content = inline(Octets), content_type = MEDIA_SECURE_AGG), security(("certificate" = [])),
    responses((status = 204), (status = 409)),
)]
pub(in crate::http) async fn say(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number, participant)): Path<(TaskId, u32, ParticipantId)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode> {
    caller.must_be(participant, "a participant speaks for itself, not for another")?;
    require_media_type(&headers, MEDIA_SECURE_AGG)?;
    let attempt = attempt(&headers, task, number)?;
    let bytes = read(&headers, body, AbortStatement::MAX_BYTES as u64).await?;
    let statement: AbortStatement = decode(&bytes)?;
    let round = attempt.round_key();
    let session = app
        .store
        .read("session_that_was_left", |tx| Box::pin(session_of(tx, &app.sessions, attempt, participant)))
        .await?;
    let Some((session, roster)) = session else { return Ok(StatusCode::NO_CONTENT) };
    let sender = statement.body.sender;
    if position(&roster, participant) != Some(usize::from(sender)) {
        return Err(rejected(MessageRejection::NotExpected { sender }));
    }
    let ended = EndedSession::new(roster, &Recorded).map_err(Error::fault)?;
    ended.admit(&statement).map_err(rejected)?;
    let said = StatementRow { attempt, participant, group: session.group, statement: bytes, received_at: app.now() };
    let is_new = app
        .store
        .transact("abort_statement", |tx| {
            let said = &said;
            Box::pin(async move { tx.insert_abort_statement(said).await })
        })
        .await?;
    if is_new {
        metrics::counter!("tributary_abort_statements_total").increment(1);
        tracing::info!(%round, attempt = attempt.attempt, %participant, "{participant} left the session of round {round} without an answer");
    }
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct AttemptQuery {
    /// The attempt of the round.
    attempt: u32,
}

/// Get enough abort statements, with the roster, to prove that the session was never opened; 204 until there are
/// enough.
#[utoipa::path(
    get, path = route::ABORT_STATEMENTS, params(AttemptQuery), security(("certificate" = [])),
    responses(
        (status = 200, body = inline(Octets), content_type = MEDIA_SECURE_AGG),
        (status = 204, description = "there are not enough statements yet"),
        (status = 409),
    ),
)]
pub(in crate::http) async fn show(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number)): Path<(TaskId, u32)>,
    Query(AttemptQuery { attempt }): Query<AttemptQuery>,
) -> Result<Response> {
    let attempt = Attempt { task, round: number, attempt };
    let found = app
        .store
        .read("abort_statements", |tx| {
            let sessions = &app.sessions;
            Box::pin(async move {
                let Some((session, roster)) = session_of(tx, sessions, attempt, caller.id).await? else {
                    return Ok::<_, AdmissionError>(None);
                };
                let said = tx.abort_statements(attempt, session.group).await?;
                Ok((said.len() >= usize::from(session.needed)).then_some((roster, said)))
            })
        })
        .await?;
    let Some((roster, said)) = found else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let statements = said.iter().map(|said| AbortStatement::decode(&said.statement));
    let statements: Vec<_> = statements.collect::<std::result::Result<_, _>>().map_err(Error::fault)?;
    let message = AbortProof::of(roster, statements).encode();
    Ok(([(header::CONTENT_TYPE, MEDIA_SECURE_AGG)], message).into_response())
}

/// The session of an attempt that a participant is in, while in progress or once ended without a sum; `None` otherwise.
async fn session_of(
    tx: &mut Transaction<'_>,
    sessions: &Sessions,
    attempt: Attempt,
    participant: ParticipantId,
) -> Result<Option<(UnopenedSession, Roster)>, AdmissionError> {
    let row = tx.round_attempt(attempt).await?.ok_or(Rejection::NoSuchRound)?;
    if row.round.limits.secure.is_none() {
        return Err(Rejection::NoSession.into());
    }
    if tx.assignment(attempt, participant).await?.is_none() {
        return Err(Rejection::NotAssigned { why: "it was not drawn" }.into());
    }
    let kept: Vec<UnopenedSession> = match row.round.is_spent() {
        // In progress, and without a sum so far.
        true => sessions
            .read(tx, &row.round, participant)
            .await?
            .and_then(|session| unopened(&session))
            .into_iter()
            .collect(),
        false => tx.unopened(attempt).await?,
    };
    for session in kept {
        let roster = Roster::decode(&session.roster).map_err(|error| {
            StoreError::unreadable(format!("a roster of {} that is kept", attempt.round_key()), error)
        })?;
        if position(&roster, participant).is_some() {
            return Ok(Some((session, roster)));
        }
    }
    Ok(None)
}

/// A participant's position in a roster, from 1.
fn position(roster: &Roster, participant: ParticipantId) -> Option<usize> {
    let entries = roster.entries.as_slice();
    let at = entries.iter().position(|entry| named(entry.client_id.as_slice()) == Some(participant))?;
    Some(at + 1)
}
