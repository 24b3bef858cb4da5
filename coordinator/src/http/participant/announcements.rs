//! The coordinator's announcements during a session: roster, delivery, survivors, agreement.
//!
//! Each is a `GET` that waits for the state of its publication. All except the delivery are the same for the whole cohort and are encoded
//! once.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use federation::id::{Attempt, ParticipantId, TaskId};
use federation::round::RoundState;
use http::{HeaderValue, StatusCode, header};
use secure_agg::codec::Message as _;
use secure_agg::server::Phase;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::headers::MEDIA_SECURE_AGG;
use wire::participant::Announcement;
use wire::route;

use crate::admission::{AdmissionError, Fact, Rejection, SessionMember, find_member, open};
use crate::http::app::App;
use crate::http::auth::authenticate::Participant;
use crate::http::extract::{Path, Query};
use crate::http::openapi::Octets;
use crate::http::reply::problem::{Error, Result};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct SessionQuery {
    /// The attempt of the round.
    attempt: u32,
    /// Maximum wait, in milliseconds; answered with 204 if it is not available by then.
    #[serde(default)]
    wait_ms: u64,
}

/// Get the roster of a session.
#[utoipa::path(
    get, path = route::ROSTER, params(SessionQuery), security(("certificate" = [])),
    responses(
        (status = 200, body = inline(Octets), content_type = MEDIA_SECURE_AGG),
        (status = 204, description = "it is not there yet"),
        (status = 409),
    ),
)]
pub(in crate::http) async fn roster(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number)): Path<(TaskId, u32)>,
    Query(query): Query<SessionQuery>,
) -> Result<Response> {
    let mut response = announce(&app, caller.id, task, number, &query, Announcement::Roster).await?;
    if response.status() == StatusCode::OK {
        // A roster is immutable: the participant may cache it.
        let value = HeaderValue::from_static("private, max-age=31536000, immutable");
        response.headers_mut().insert(header::CACHE_CONTROL, value);
    }
    Ok(response)
}

/// Get the shares dealt to this participant.
#[utoipa::path(
    get, path = route::DELIVERY, params(SessionQuery), security(("certificate" = [])),
    responses(
        (status = 200, body = inline(Octets), content_type = MEDIA_SECURE_AGG),
        (status = 204, description = "it is not there yet"),
        (status = 409),
    ),
)]
pub(in crate::http) async fn delivery(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number, participant)): Path<(TaskId, u32, ParticipantId)>,
    Query(query): Query<SessionQuery>,
) -> Result<Response> {
    caller.must_be(participant, "a participant is given what was dealt to it, not to another")?;
    announce(&app, caller.id, task, number, &query, Announcement::Delivery).await
}

/// Get the set of included inputs.
#[utoipa::path(
    get, path = route::SURVIVORS, params(SessionQuery), security(("certificate" = [])),
    responses(
        (status = 200, body = inline(Octets), content_type = MEDIA_SECURE_AGG),
        (status = 204, description = "it is not there yet"),
        (status = 409),
    ),
)]
pub(in crate::http) async fn survivors(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number)): Path<(TaskId, u32)>,
    Query(query): Query<SessionQuery>,
) -> Result<Response> {
    announce(&app, caller.id, task, number, &query, Announcement::Survivors).await
}

/// Get all signatures on the set of included inputs.
#[utoipa::path(
    get, path = route::AGREEMENT, params(SessionQuery), security(("certificate" = [])),
    responses(
        (status = 200, body = inline(Octets), content_type = MEDIA_SECURE_AGG),
        (status = 204, description = "it is not there yet"),
        (status = 409),
    ),
)]
pub(in crate::http) async fn agreement(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number)): Path<(TaskId, u32)>,
    Query(query): Query<SessionQuery>,
) -> Result<Response> {
    announce(&app, caller.id, task, number, &query, Announcement::Agreement).await
}

/// Get a dealer's signed shares.
///
/// They are the evidence without which nobody complains about the dealer.
#[utoipa::path(
    get, path = route::KEY_SHARES, params(("attempt" = u32, Query, description = "The attempt of the round.")),
    security(("certificate" = [])),
    responses(
        (status = 200, body = inline(Octets), content_type = MEDIA_SECURE_AGG),
        (status = 204, description = "it is not there yet"),
        (status = 409),
    ),
)]
pub(in crate::http) async fn evidence(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number, dealer)): Path<(TaskId, u32, ParticipantId)>,
    Query(query): Query<SessionQuery>,
) -> Result<Response> {
    let attempt = Attempt { task, round: number, attempt: query.attempt };
    let member = find_member(&app.store, &app.sessions, attempt, caller.id).await?;
    open(member.state, RoundState::Collecting)?;
    let dealt = app.sessions.dealt(&app.store, &member.session, attempt).await?;
    let shares = member.session.index(dealer).and_then(|index| dealt.shares(index));
    let shares = shares.ok_or_else(|| Error::NotFound("this participant dealt nothing in this session".to_owned()))?;
    Ok(announcement_response(&app, &member, attempt, shares.encode().into()))
}

async fn announce(
    app: &App,
    caller: ParticipantId,
    task: TaskId,
    round: u32,
    query: &SessionQuery,
    what: Announcement,
) -> Result<Response> {
    let attempt = Attempt { task, round, attempt: query.attempt };
    let wait = Duration::from_millis(query.wait_ms).min(app.config.http.poll_max());
    let end = tokio::time::sleep(wait);
    tokio::pin!(end);
    let listener = app.round_wakeups.listen(attempt.round_key());
    loop {
        // Armed before the facts are read, to notice changes in between.
        let changed = listener.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        match find_member(&app.store, &app.sessions, attempt, caller).await {
            Ok(member) => {
                if let Some(message) = message(app, &member, attempt, what).await? {
                    return Ok(announcement_response(app, &member, attempt, message));
                }
            }
            // Distant participants request the roster concurrently with the check-in for their place.
            Err(AdmissionError::Rejected(Rejection::PhaseClosed { state: RoundState::Selecting, .. })) => {}
            Err(error) => return Err(error.into()),
        }
        if wait.is_zero() {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        tokio::select! {
            () = changed => {}
            () = &mut end => return Ok(StatusCode::NO_CONTENT.into_response()),
            () = app.shutdown.cancelled() => return Err(Error::ShuttingDown),
        }
    }
}

/// The announcement; `None` before its time.
async fn message(app: &App, member: &SessionMember, attempt: Attempt, what: Announcement) -> Result<Option<Bytes>> {
    let session = &member.session;
    let wanted = what.state();
    match (&session.phase, what) {
        (_, Announcement::Roster) => Ok(session.roster()),
        (Phase::CollectMasked(phase), Announcement::Delivery) => {
            let dealt = app.sessions.dealt(&app.store, session, attempt).await?;
            let delivery = phase.delivery(member.index, |dealer| dealt.sealed(dealer, member.index));
            let delivery = delivery.ok_or(Rejection::NotAssigned { why: "it dealt no shares in time" })?;
            Ok(Some(delivery.encode().into()))
        }
        (Phase::CollectConsistency(_), Announcement::Survivors)
        | (Phase::CollectUnmasking(_), Announcement::Agreement) => Ok(session.announcement()),
        _ if member.state < wanted => Ok(None),
        _ => Err(Rejection::PhaseClosed { state: member.state, wanted }.into()),
    }
}

fn announcement_response(app: &App, member: &SessionMember, attempt: Attempt, message: Bytes) -> Response {
    app.inbox.note(Fact::BytesDown { attempt, state: member.state, bytes: message.len() as u64 });
    ([(header::CONTENT_TYPE, MEDIA_SECURE_AGG)], message).into_response()
}
