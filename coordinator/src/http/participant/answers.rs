//! Participants' messages during a session, except masked inputs: key shares, complaints, signatures on the included set, and unmasking
//! shares.
//!
//! The protocol validates a message before it is stored; the first of a kind is final. Unmasking shares are sealed before they are stored.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::round::RoundState;
use http::{HeaderMap, StatusCode};
use secure_agg::codec::Message;
use secure_agg::messages::{Complaint, Consistency, ShareKeys, Unmasking};
use secure_agg::rejection::MessageRejection;
use secure_agg::server::Phase;
use store::entity::session_message::{MessageKind, SessionMessage};
use wire::headers::MEDIA_SECURE_AGG;
use wire::participant::Answer;
use wire::route;

use crate::admission::{AdmissionError, Fact, FactOutcome, Rejection, SessionMember, find_member};
use crate::http::app::App;
use crate::http::auth::authenticate::Participant;
use crate::http::extract::{Path, attempt, read, require_media_type};
use crate::http::openapi::{AttemptHeader, Octets};
use crate::http::reply::problem::{Error, Result};
use crate::rounds::session::seal_context;

type Named = Path<(TaskId, u32, ParticipantId)>;

/// Defines the handler for answers of one kind.
macro_rules! taking {
    ($(#[$doc:meta])* $name:ident, $path:expr, $what:expr) => {
        $(#[$doc])*
        #[utoipa::path(
            put, path = $path, params(AttemptHeader), security(("certificate" = [])),
            request_body(content = inline(Octets), content_type = MEDIA_SECURE_AGG), responses((status = 204), (status = 409)),
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

/// The attempt and participant of an answer.
struct AnswerKey {
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
    let key = AnswerKey { attempt: attempt(headers, task, number)?, participant };
    let (state, member) = match find_member(&app.store, &app.sessions, key.attempt, participant).await {
        Ok(member) => (member.state, Some(member)),
        // A participant that missed its last receipt repeats its answer after the end.
        Err(AdmissionError::Rejected(Rejection::PhaseClosed { state, .. })) => (state, None),
        Err(error) => return Err(error.into()),
    };
    let bytes = read(headers, body, max_bytes(what)).await?;
    let sha256 = crate::digest(&bytes);
    let Some(member) = member.filter(|member| member.state == what.state()) else {
        return repeated(app, &key, what, sha256, state).await;
    };
    judge(app, &key, &member, what, &bytes).await?;
    let message = SessionMessage {
        attempt: key.attempt,
        kind: kind(what),
        participant,
        sha256,
        bytes: bytes.len() as u64,
        received_at: app.now(),
        message: Some(match what {
            Answer::UnmaskShares => sealed(app, &key, bytes).await?,
            Answer::KeyShares | Answer::Complaint | Answer::Consistency => bytes,
        }),
    };
    match app.inbox.submit(Fact::Answer { message, wanted: what.state() }).await? {
        FactOutcome::Rejected(rejection) => Err(rejection.into()),
        FactOutcome::Written | FactOutcome::Admitted(_) => {
            metrics::counter!("tributary_session_messages_total", "kind" => kind(what).as_str()).increment(1);
            Ok(StatusCode::NO_CONTENT)
        }
    }
}

/// Seals an unmasking answer with the key of its release; waits for the secret store.
async fn sealed(app: &App, key: &AnswerKey, bytes: Bytes) -> Result<Bytes> {
    let &AnswerKey { attempt, participant } = key;
    let sealer = Arc::clone(&app.sealer);
    let seal = move || sealer.seal_for_release(attempt, &seal_context(attempt, participant), &bytes);
    let sealed = tokio::task::spawn_blocking(seal).await.map_err(Error::fault)?;
    Ok(sealed?.into())
}

/// Confirms a repeated answer after the round has moved on; rejects a new one as too late or too early.
async fn repeated(app: &App, key: &AnswerKey, what: Answer, sha256: Digest, state: RoundState) -> Result<StatusCode> {
    let &AnswerKey { attempt, participant } = key;
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

/// Validates the caller's own message by the protocol.
async fn judge(app: &App, key: &AnswerKey, member: &SessionMember, what: Answer, bytes: &[u8]) -> Result<(), Error> {
    match (&member.session.phase, what) {
        (Phase::CollectShares(phase), Answer::KeyShares) => {
            let message: ShareKeys = decode(bytes)?;
            own(member, message.body.sender)?;
            phase.admit(message).map(drop).map_err(rejected)
        }
        (Phase::CollectMasked(phase), Answer::Complaint) => {
            let complaint: Complaint = decode(bytes)?;
            own(member, complaint.body.sender)?;
            let dealt = app.sessions.dealt(&app.store, &member.session, key.attempt).await?;
            let accused = complaint.body.accused;
            let shares = dealt.shares(accused).ok_or_else(|| rejected(MessageRejection::Accused { accused }))?;
            let verdict = phase.judge(&complaint, shares).map_err(rejected)?;
            let name =
                |index| member.session.participant(index).map_or_else(|| format!("{index}"), |who| who.to_string());
            tracing::warn!(
                round = %key.attempt.round_key(), attempt = key.attempt.attempt, reporter = %key.participant,
                accused = name(accused),
                "a share that was dealt does not open, says its holder; the round ends: {verdict}"
            );
            Ok(())
        }
        (Phase::CollectConsistency(phase), Answer::Consistency) => {
            let message: Consistency = decode(bytes)?;
            own(member, message.sender)?;
            phase.admit(message).map(drop).map_err(rejected)
        }
        (Phase::CollectUnmasking(phase), Answer::UnmaskShares) => {
            let message: Unmasking = decode(bytes)?;
            own(member, message.body.sender)?;
            phase.admit(message).map(drop).map_err(rejected)
        }
        (phase, _) => {
            let round = key.attempt.round_key();
            Err(Error::fault(format!("round {round} is {} with a session in {:?}", member.state, phase.name())))
        }
    }
}

pub(super) fn decode<M: Message>(bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|error| Error::Malformed(format!("the message of secure aggregation: {error}")))
}

/// Checks that the sender of a message is its signer.
pub(super) fn own(member: &SessionMember, sender: secure_agg::Index) -> Result<()> {
    if sender == member.index { Ok(()) } else { Err(rejected(MessageRejection::NotExpected { sender })) }
}

pub(super) fn rejected(rejection: MessageRejection) -> Error {
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
