//! Participants' messages during a session, except masked inputs: key shares, complaints, signatures on the included
//! set, and the shares that open the sum.
//!
//! The protocol judges a message before it is stored; the first of a kind counts. Shares that open the sum are sealed
//! before they are stored.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::round::RoundState;
use http::{HeaderMap, StatusCode};
use secure_agg::codec::Message;
use secure_agg::messages::{Complaint, Consistency, ShareKeys, Unmasking};
use secure_agg::rejection::Rejection as SessionRejection;
use secure_agg::server::Phase;
use store::StoreError;
use store::entity::session_message::{MessageKind, SessionMessage};
use wire::headers::MEDIA_SECURE_AGG;
use wire::participant::Answer;
use wire::route;

use crate::admission::{Fact, NotAdmitted, Outcome, Rejection, Seat, take_seat};
use crate::http::app::App;
use crate::http::authenticate::Participant;
use crate::http::extract::{Path, attempt, read, require_media_type};
use crate::http::openapi::{AttemptHeader, Octets};
use crate::http::problem::{Error, Result};
use crate::session::seal_place;

type Named = Path<(TaskId, u32, ParticipantId)>;

/// The handler for answers of this kind.
macro_rules! taking {
    ($(#[$doc:meta])* $name:ident, $path:expr, $what:expr) => {
        $(#[$doc])*
        #[utoipa::path(
            put, path = $path, params(AttemptHeader), security(("certificate" = [])),
            request_body(content = inline(Octets), content_type = MEDIA_SECURE_AGG), responses((status = 204)),
        )]
        pub(in crate::http) async fn $name(
            caller: Participant,
            State(app): State<Arc<App>>,
            path: Named,
            headers: HeaderMap,
            body: Body,
        ) -> Result<StatusCode> {
            take(&app, &caller, path, &headers, body, $what).await
        }
    };
}

taking!(
    /// Deal key shares.
    key_shares,
    route::KEY_SHARES,
    Answer::KeyShares
);
taking!(
    /// Complain that a dealer's shares do not open.
    complaint,
    route::COMPLAINT,
    Answer::Complaint
);
taking!(
    /// Sign the set of included inputs.
    consistency,
    route::CONSISTENCY,
    Answer::Consistency
);
taking!(
    /// Send the shares that open the sum.
    unmask_shares,
    route::UNMASK_SHARES,
    Answer::UnmaskShares
);

/// The destination of an answer.
struct Place {
    attempt: Attempt,
    participant: ParticipantId,
}

async fn take(
    app: &App,
    caller: &Participant,
    Path((task, number, participant)): Named,
    headers: &HeaderMap,
    body: Body,
    what: Answer,
) -> Result<StatusCode> {
    caller.must_be(participant, "a participant speaks for itself, not for another")?;
    require_media_type(headers, MEDIA_SECURE_AGG)?;
    let place = Place { attempt: attempt(headers, (task, number))?, participant };
    let (state, seat) = match take_seat(&app.store, &app.sessions, place.attempt, participant).await {
        Ok(seat) => (seat.state, Some(seat)),
        // Whoever did not hear that its last answer was taken asks when the session is over.
        Err(NotAdmitted::Rejected(Rejection::PhaseClosed { state, .. })) => (state, None),
        Err(error) => return Err(error.into()),
    };
    let bytes = read(headers, body, max_bytes(what)).await?;
    let sha256 = crate::digest(&bytes);
    let Some(seat) = seat.filter(|seat| seat.state == what.state()) else {
        return repeated(app, &place, what, sha256, state).await;
    };
    judge(app, &place, &seat, what, &bytes).await?;
    let message = SessionMessage {
        attempt: place.attempt,
        kind: kind(what),
        participant,
        sha256,
        bytes: bytes.len() as u64,
        received_at: app.now(),
        message: Some(match what {
            Answer::UnmaskShares => sealed(app, &place, bytes).await?,
            Answer::KeyShares | Answer::Complaint | Answer::Consistency => bytes,
        }),
    };
    match app.inbox.submit(Fact::Answer { message, wanted: what.state() }).await? {
        Outcome::Rejected(rejection) => Err(rejection.into()),
        Outcome::Written | Outcome::Admitted(_) => {
            metrics::counter!("tributary_session_messages_total", "kind" => kind(what).as_str()).increment(1);
            Ok(StatusCode::NO_CONTENT)
        }
    }
}

/// Seals an answer that opens the sum with the key of its release; the first one of an attempt waits for a disk.
async fn sealed(app: &App, place: &Place, bytes: Bytes) -> Result<Bytes> {
    let &Place { attempt, participant } = place;
    let sealer = Arc::clone(&app.sealer);
    let seal = move || sealer.seal_for_release(attempt, &seal_place(attempt, participant), &bytes);
    let sealed = tokio::task::spawn_blocking(seal).await.map_err(Error::fault)?;
    Ok(sealed.map_err(StoreError::from)?.into())
}

/// After the round has moved on, a repeated answer is confirmed; a new one is too late or too early.
async fn repeated(app: &App, place: &Place, what: Answer, sha256: Digest, state: RoundState) -> Result<StatusCode> {
    let &Place { attempt, participant } = place;
    let earlier = app
        .store
        .read("repeated_answer", |tx| Box::pin(async move { tx.message(attempt, kind(what), participant).await }))
        .await?;
    match earlier {
        Some(earlier) if earlier.sha256 == sha256 => Ok(StatusCode::NO_CONTENT),
        Some(_) => Err(Rejection::DifferentMessage.into()),
        None => Err(Rejection::PhaseClosed { state, wanted: what.state() }.into()),
    }
}

/// Judges a message, which must be the caller's own, by the protocol.
async fn judge(app: &App, place: &Place, seat: &Seat, what: Answer, bytes: &[u8]) -> Result<(), Error> {
    match (&seat.session.phase, what) {
        (Phase::CollectShares(phase), Answer::KeyShares) => {
            let message: ShareKeys = decode(bytes)?;
            own(seat, message.body.sender)?;
            phase.admit(message).map(drop).map_err(rejected)
        }
        (Phase::CollectMasked(phase), Answer::Complaint) => {
            let complaint: Complaint = decode(bytes)?;
            own(seat, complaint.body.sender)?;
            let dealt = app.sessions.dealt(&app.store, &seat.session, place.attempt).await?;
            let accused = complaint.body.accused;
            let shares = dealt.shares(accused).ok_or_else(|| rejected(SessionRejection::Accused { accused }))?;
            let verdict = phase.judge(&complaint, shares).map_err(rejected)?;
            let name =
                |index| seat.session.participant(index).map_or_else(|| format!("{index}"), |who| who.to_string());
            tracing::warn!(
                round = %place.attempt.round_key(), attempt = place.attempt.attempt, reporter = %place.participant,
                accused = name(accused),
                "a share that was dealt does not open, says its holder; the round ends: {verdict}"
            );
            Ok(())
        }
        (Phase::CollectConsistency(phase), Answer::Consistency) => {
            let message: Consistency = decode(bytes)?;
            own(seat, message.sender)?;
            phase.admit(message).map(drop).map_err(rejected)
        }
        (Phase::CollectUnmasking(phase), Answer::UnmaskShares) => {
            let message: Unmasking = decode(bytes)?;
            own(seat, message.body.sender)?;
            phase.admit(message).map(drop).map_err(rejected)
        }
        (phase, _) => {
            let round = place.attempt.round_key();
            Err(Error::fault(format!("round {round} is {} with a session in {:?}", seat.state, phase.name())))
        }
    }
}

pub(super) fn decode<M: Message>(bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::Malformed(format!("the message of secure aggregation: {error}")))
}

/// Checks that the sender of a message is its signer.
pub(super) fn own(seat: &Seat, sender: secure_agg::Index) -> Result<()> {
    if sender == seat.index { Ok(()) } else { Err(rejected(SessionRejection::NotExpected { sender })) }
}

pub(super) fn rejected(rejection: SessionRejection) -> Error {
    Rejection::from(rejection).into()
}

fn kind(what: Answer) -> MessageKind {
    match what {
        Answer::KeyShares => MessageKind::Shares,
        Answer::Complaint => MessageKind::Complaint,
        Answer::Consistency => MessageKind::Consistency,
        Answer::UnmaskShares => MessageKind::Unmasking,
    }
}

fn max_bytes(what: Answer) -> u64 {
    let most = match what {
        Answer::KeyShares => ShareKeys::MAX_BYTES,
        Answer::Complaint => Complaint::MAX_BYTES,
        Answer::Consistency => Consistency::MAX_BYTES,
        Answer::UnmaskShares => Unmasking::MAX_BYTES,
    };
    most as u64
}
