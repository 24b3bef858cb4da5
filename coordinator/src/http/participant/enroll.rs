//! `POST /v1/enroll`: exchanges a one-time token for a certificate, for a new or returning participant. With an external authority, the
//! token registers the certificate of the connection instead: the operator admits participants, and the authority assigns keys and ids.
//!
//! If a balancer terminates TLS, a token for an enrolled participant is valid only with that participant's key.
//!
//! Answers may get lost. For a day, a repeated request with the same token and key gets the same answer; with another key the token counts
//! as used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use federation::event::Actor;
use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use listener::Peer;
use store::Transaction;
use store::entity::idempotency::IdempotentAnswer;
use store::entity::participant::ParticipantRow;
use store::entity::token::{EnrollmentToken, TakenToken};
use task_spec::is_name;
use wire::participant::{EnrollReply, EnrollRequest};
use wire::route;
use wire::signer::EVIDENCE_MAX_BYTES;

use crate::http::app::App;
use crate::http::auth::authenticate::AnyPeer;
use crate::http::extract::Json;
use crate::http::reply::problem::{Error, Result};
use crate::identity::{Credential, Issued, PreIssued};

/// Maximum number of labels of a participant, and maximum length of a name or value in bytes.
const LABELS_MAX: usize = 64;
const LABEL_MAX_BYTES: usize = 128;
/// Tokens have 43 characters; much longer ones are rejected unhashed.
const TOKEN_MAX_BYTES: usize = 256;
/// How long a repeated enrolment gets the first answer.
const REMEMBER: Duration = Duration::from_secs(24 * 3600);
const UNKNOWN: Error = Error::Enrollment("the enrolment token is not known");
const USED: Error = Error::Enrollment("the enrolment token was used before");
const EXPIRED: Error = Error::Enrollment("the enrolment token has expired");
const REVOKED: Error =
    Error::Enrollment("the participant that this token is for, or that the certificate names, was revoked");
/// A token for a new participant must not replace the enrolled participant named by the certificate.
const ENROLLED: Error = Error::Enrollment(
    "the participant that the certificate names is enrolled with another: replace it while it holds (`POST /v1/renew`), or have a \
     token made for that participant",
);
/// A TLS-terminating balancer reads the token, and could substitute its own key for the device's.
const NEEDS_KEY: Error = Error::Enrollment(
    "the enrolment token is for an enrolled participant: where a balancer ends TLS, sign the request with the key of the participant's \
     certificate; without that key, enrol at the address of http.listen",
);
const NAMES_ANOTHER: Error =
    Error::Enrollment("the enrolment token is for another participant than the certificate names");
/// Scope of stored answers, under the token's digest.
const SCOPE: &str = "enroll";

/// Enrol with a one-time token.
#[utoipa::path(
    post, path = route::ENROLL, request_body = EnrollRequest,
    responses((status = 200, body = EnrollReply), (status = 403), (status = 409)),
)]
pub(in crate::http) async fn enroll(
    anybody: AnyPeer,
    State(app): State<Arc<App>>,
    Json(request): Json<EnrollRequest>,
) -> Result<Json<EnrollReply>> {
    check_evidence(request.evidence.as_ref())?;
    let now = app.now();
    let credential = app.members.check(request.csr_pem, request.certificate_pem.as_deref(), request.evidence, now)?;
    let named = match &credential {
        Credential::Request(_) => None,
        Credential::PreIssued(certificate) => Some(shown(certificate, anybody.peer)?),
    };
    let wishes = (request.name.as_deref(), &request.labels);
    check_wishes(wishes)?;
    if request.token.len() > TOKEN_MAX_BYTES {
        return Err(UNKNOWN);
    }
    let key_sha256 = credential.sha256();
    let secret = crate::digest(request.token.as_bytes());
    // An external certificate proves possession of its key.
    let (peer, needs_key) = (anybody.peer, anybody.is_overheard && named.is_none());
    // Signing requires a valid token.
    let given = app.store.read("find_enrollment", |tx| {
        Box::pin(async move {
            if let Some(reply) = earlier_reply(tx, secret, key_sha256).await? {
                return Ok(TokenUse::Repeated(reply));
            }
            let known = usable(tx.enrollment_token_by_secret(secret).await?, now)?.participant;
            if let Some(known) = known
                && needs_key
                && !has_key(tx.participant(known).await?, peer)
            {
                return Err(NEEDS_KEY);
            }
            Ok(TokenUse::First(known))
        })
    });
    let known = match given.await? {
        TokenUse::Repeated(reply) => return Ok(Json(reply)),
        TokenUse::First(known) => known,
    };
    let participant = match (known, named) {
        (Some(known), Some(named)) if known != named => return Err(NAMES_ANOTHER),
        (known, named) => known.or(named).unwrap_or_else(|| ParticipantId(app.random.uuid())),
    };
    let lifetime = app.config.identity.certificate_lifetime();
    let issued = &app.members.issue(credential, participant, lifetime, &app.random, now).await?;
    let reply = app
        .store
        .transact("enroll", |tx| {
            Box::pin(async move {
                if let Some(reply) = earlier_reply(tx, secret, key_sha256).await? {
                    return Ok::<_, Error>(reply);
                }
                let token = taken(tx.take_enrollment_token(secret, now, participant).await?)?;
                tx.act_for(Actor::Participant { participant });
                let reply = match token.participant {
                    Some(id) => come_back(tx, id, issued, now).await?,
                    None => begin(tx, participant, token, wishes, issued, now).await?,
                };
                remember(tx, secret, key_sha256, &reply, now).await?;
                Ok(reply)
            })
        })
        .await?;
    app.identities.forget(reply.participant);
    let (participant, name) = (reply.participant, &reply.name);
    tracing::info!(%participant, "participant {participant} enrolled as {name}");
    Ok(Json(reply))
}

/// The participant named by the connection's certificate, whose key the sender has proven.
fn shown(certificate: &PreIssued, peer: Option<Peer>) -> Result<ParticipantId> {
    if peer.is_none_or(|peer| peer.fingerprint != certificate.issued.fingerprint) {
        return Err(Error::Unauthenticated(
            "show the certificate in certificate_pem, and no other, in the TLS handshake, or sign the request with its key where \
             requests are signed: that proves that you have it",
        ));
    }
    Ok(certificate.participant)
}

/// Whether the peer has the key of a certificate of the participant, expired or not.
fn has_key(row: Option<ParticipantRow>, peer: Option<Peer>) -> bool {
    let (Some(row), Some(peer)) = (row, peer) else { return false };
    row.certificate_fingerprint == peer.fingerprint || row.previous_fingerprint == Some(peer.fingerprint)
}

/// The effect of a token.
enum TokenUse {
    /// Used before with the same key; contains the answer.
    Repeated(EnrollReply),
    /// Unused: for a returning participant, or for a new one.
    First(Option<ParticipantId>),
}

/// The name and the labels that a participant asks for. Those of its token take precedence.
type Wishes<'a> = (Option<&'a str>, &'a BTreeMap<String, String>);

fn check_wishes((name, labels): Wishes<'_>) -> Result<()> {
    check_labels(labels)?;
    if name.is_some_and(|name| !is_name(name)) {
        return Err(Error::InvalidValue(
            "name must be 1 to 64 letters, digits, '-', '_' or '.', and not of dots alone".to_owned(),
        ));
    }
    Ok(())
}

/// Stores a new participant.
async fn begin(
    tx: &mut Transaction<'_>,
    participant: ParticipantId,
    token: EnrollmentToken,
    (own_name, own_labels): Wishes<'_>,
    issued: &Issued,
    now: Timestamp,
) -> Result<EnrollReply> {
    if let Some(row) = tx.participant(participant).await? {
        return Err(if row.revoked_at.is_some() { REVOKED } else { ENROLLED });
    }
    let called = if token.name.is_empty() { own_name } else { Some(token.name.as_str()) };
    let name = called.map_or_else(|| participant.to_string(), str::to_owned);
    if let Some(there) = tx.participant_by_name(&name).await?
        && !tx.release_name(&there).await?
    {
        return Err(Error::Conflict(format!("there is a participant called {name:?} already")));
    }
    let mut labels = own_labels.clone();
    labels.extend(token.labels);
    let row = ParticipantRow {
        id: participant,
        name: name.clone(),
        labels,
        enrolled_at: now,
        certificate_fingerprint: issued.fingerprint,
        previous_fingerprint: None,
        certificate_expires_at: issued.expires_at,
        revoked_at: None,
        last_seen_at: now,
    };
    tx.insert_participant(&row).await?;
    Ok(reply(participant, name, issued.clone()))
}

/// Replaces the certificate of a returning participant.
async fn come_back(
    tx: &mut Transaction<'_>,
    id: ParticipantId,
    issued: &Issued,
    now: Timestamp,
) -> Result<EnrollReply> {
    if !tx.replace_certificate(id, issued.fingerprint, issued.expires_at, now).await? {
        return Err(REVOKED);
    }
    let row = tx.participant(id).await?.ok_or_else(|| Error::fault("a participant that came back is not there"))?;
    Ok(reply(id, row.name, issued.clone()))
}

/// Stores the answer for repeated requests.
async fn remember(
    tx: &mut Transaction<'_>,
    secret: Digest,
    key_sha256: Digest,
    reply: &EnrollReply,
    now: Timestamp,
) -> Result<()> {
    let body = serde_json::to_vec(reply).map_err(Error::fault)?;
    let answer = IdempotentAnswer { request_sha256: key_sha256, status: 200, body };
    Ok(tx.insert_idempotent(SCOPE, &secret.to_string(), &answer, now.plus(REMEMBER)).await?)
}

/// Checks that a token exists, is unused and has not expired.
fn usable(token: Option<EnrollmentToken>, now: Timestamp) -> Result<EnrollmentToken> {
    let token = token.ok_or(UNKNOWN)?;
    match token.used_at {
        Some(_) => Err(USED),
        None if token.expires_at <= now => Err(EXPIRED),
        None => Ok(token),
    }
}

/// The token, if it was taken now.
fn taken(token: TakenToken) -> Result<EnrollmentToken> {
    match token {
        TakenToken::Taken(token) => Ok(token),
        TakenToken::Unknown => Err(UNKNOWN),
        TakenToken::Used(_) => Err(USED),
        TakenToken::Expired => Err(EXPIRED),
    }
}

/// The stored answer for this token and key.
async fn earlier_reply(tx: &mut Transaction<'_>, secret: Digest, key_sha256: Digest) -> Result<Option<EnrollReply>> {
    let answer = tx.find_idempotent(SCOPE, &secret.to_string()).await?;
    let same = answer.filter(|answer| answer.request_sha256 == key_sha256);
    same.map(|answer| serde_json::from_slice(&answer.body).map_err(Error::fault)).transpose()
}

/// The answer to enrolment and renewal.
pub(super) fn reply(participant: ParticipantId, name: String, issued: Issued) -> EnrollReply {
    EnrollReply {
        participant,
        name,
        certificate_pem: issued.chain_pem,
        expires_at: issued.expires_at,
        renew_at: issued.renew_at,
    }
}

/// Checks that evidence for an external signer is short enough to forward.
pub(super) fn check_evidence(evidence: Option<&String>) -> Result<()> {
    match evidence {
        Some(evidence) if evidence.len() > EVIDENCE_MAX_BYTES => {
            Err(Error::InvalidValue(format!("evidence may have at most {EVIDENCE_MAX_BYTES} bytes")))
        }
        _ => Ok(()),
    }
}

/// Checks the number and length of labels, and rejects NUL, unsupported by some databases.
pub(in crate::http) fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    let short = |text: &String| !text.is_empty() && text.len() <= LABEL_MAX_BYTES && !text.contains('\0');
    if labels.len() <= LABELS_MAX && labels.iter().all(|(name, value)| short(name) && short(value)) {
        return Ok(());
    }
    Err(Error::InvalidValue(format!(
        "labels: at most {LABELS_MAX}, each name and value of 1 to {LABEL_MAX_BYTES} bytes, without U+0000"
    )))
}
