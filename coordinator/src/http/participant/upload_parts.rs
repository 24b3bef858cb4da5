//! `PUT …/masked-inputs/{participant}/manifest` and `…/parts/{part}`: a masked input of more than 8 MiB, part by part.
//!
//! The manifest comes first and is validated first. Each part is verified and stored separately, so a failed connection, process or replica
//! loses only the part in transit. When all parts are stored, the same manifest triggers their joint validation, and the input is then
//! treated like a whole upload.

use std::io::Read as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use http::{HeaderMap, StatusCode};
use secure_agg::codec::Message as _;
use secure_agg::upload::PartTree;
use store::StoreError;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
use wire::headers::{MEDIA_MASKED_INPUT, RECORD_BELOW, SIGNED_INPUT};
use wire::participant::{UploadManifest, UploadReply};
use wire::route;

use super::masked_input::{
    ExactLengthBody, Inspection, RECORD_BELOW_IS, check_length, count, receipt, record_below, signed_input, turn_away,
};
use crate::admission::{
    PartPermit, Rejection, UploadPermit, announce, enter, enter_part, forget_parts, may_send, set_whole, store_part,
};
use crate::http::app::App;
use crate::http::auth::authenticate::Participant;
use crate::http::extract::{self, Json, Path, content_length, require_media_type};
use crate::http::openapi::{AttemptHeader, Octets, attempt, header};
use crate::http::reply::problem::{Error, Result};
use crate::maintenance::damage::is_damage;
use crate::rounds::inputs::open_parts;

/// Bytes of an input validated at once.
const PIECE: usize = 64 << 10;

struct Headers;

impl IntoParams for Headers {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![
            attempt(),
            header(SIGNED_INPUT, false, "secure aggregation: the signed root of the parts, in base64"),
            header(RECORD_BELOW, false, RECORD_BELOW_IS),
        ]
    }
}

/// Announce a masked input in parts of 8 MiB, ask which are missing, and have it count once none is.
#[utoipa::path(
    put, path = route::UPLOAD_MANIFEST, params(Headers), request_body = UploadManifest, security(("certificate" = [])),
    responses((status = 200, body = UploadReply), (status = 409)),
)]
pub(in crate::http) async fn manifest(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number, participant)): Path<(TaskId, u32, ParticipantId)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<UploadReply>> {
    caller.must_be(participant, "a participant sends its own masked input, not another's")?;
    let attempt = extract::attempt(&headers, task, number)?;
    let below = record_below(&headers)?;
    let tree = tree_of(read_manifest(&app, attempt, participant, &headers, body).await?)?;
    let root = Digest(tree.root());
    let permit = enter(&app.store, &app.models, &app.sessions, attempt, participant, root).await?;
    check_length(&permit, Some(tree.bytes()), app.config.http.masked_input_max_bytes)?;
    if let Some(earlier) = &permit.earlier {
        return Ok(Json(UploadReply::Accepted(receipt(earlier))));
    }
    let signed = signed_input(&permit, participant, &headers)?;
    if signed.as_ref().is_some_and(|signed| signed.body.digest != root.0) {
        return Err(Rejection::NotSigned.into());
    }
    let turn = app.uploads.begin(participant);
    let parts = announce(&app.store, attempt, participant, &tree, app.now()).await?;
    if !parts.is_empty() {
        return Ok(Json(UploadReply::Missing { parts }));
    }
    let judged = tokio::select! {
        judged = judge(&app, &permit, &tree) => judged,
        () = turn.ended() => return Err(Error::Conflict("a later upload of this participant took its place".to_owned())),
    };
    match &judged {
        Err(Error::Rejected(rejection @ Rejection::Implausible(_))) => {
            turn_away(&app, attempt, participant, rejection).await?;
        }
        // The participant still has a part lost here.
        Err(Error::Store(error)) if is_damage(error) => {
            tracing::warn!(task = %task, round = number, %participant, %error, "a part cannot be read; {participant} sends all of them again");
            forget_parts(&app.store, attempt, participant).await?;
            let parts = announce(&app.store, attempt, participant, &tree, app.now()).await?;
            return Ok(Json(UploadReply::Missing { parts }));
        }
        Ok(()) | Err(_) => {}
    }
    judged?;
    let parts = make_whole(&app, attempt, participant, &tree).await?;
    if !parts.is_empty() {
        return Ok(Json(UploadReply::Missing { parts }));
    }
    let signed = signed.map(|signed| signed.encode().into());
    let receipt = count(&app, attempt, participant, &permit, signed, below).await?;
    Ok(Json(UploadReply::Accepted(receipt)))
}

/// Reads a manifest from a participant allowed to send an input. Only validation of the parts may take as long as an upload.
async fn read_manifest(
    app: &App,
    attempt: Attempt,
    participant: ParticipantId,
    headers: &HeaderMap,
    body: Body,
) -> Result<UploadManifest> {
    may_send(&app.store, attempt, participant).await?;
    let http = &app.config.http;
    let read = extract::read_json(headers, body, http.body_max_bytes);
    tokio::time::timeout(http.request_timeout(), read).await.map_err(|_| Error::TooSlow)?
}

fn tree_of(manifest: UploadManifest) -> Result<PartTree> {
    let UploadManifest { bytes, parts } = manifest;
    let found = parts.len();
    let tree = PartTree::new(bytes, parts.into_iter().map(|digest| digest.0).collect());
    let tree = tree.ok_or_else(|| {
        Error::InvalidValue(format!(
            "an input of {bytes} bytes does not have {found} parts of 8 MiB, the last perhaps shorter"
        ))
    })?;
    if tree.is_parted() {
        return Ok(tree);
    }
    Err(Error::InvalidValue(format!("an input of {bytes} bytes is one part: send it whole, without a manifest")))
}

/// Validates all parts together, as a whole upload is validated on arrival.
async fn judge(app: &App, permit: &UploadPermit, tree: &PartTree) -> Result<()> {
    let expanding = permit.codec.expanding().map(Arc::clone);
    let turn = match expanding {
        Some(_) => app.uploads.judge().await,
        None => app.uploads.judge_by_pieces().await,
    };
    // Parts were hashed on arrival, and are again when summed.
    let (mut parts, inspection) = (open_parts(app.store.blobs(), tree).trusting_known(), Inspection::new(permit));
    let length = usize::try_from(tree.bytes()).map_err(Error::fault)?;
    // Not on a file thread: reading a part waits for a file thread to open it.
    let judged = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let Some(mut inspection) = inspection else {
            let mut bytes = vec![0; length];
            parts.read_exact(&mut bytes)?;
            let checked = expanding.map_or(Ok(()), |codec| codec.check(&bytes));
            return Ok(checked.map_err(|error| Rejection::Implausible(error.to_string())));
        };
        let mut piece = vec![0; PIECE];
        loop {
            match parts.read(&mut piece)? {
                0 => return Ok(inspection.finish()),
                got => inspection.look(&piece[..got]),
            }
        }
    });
    let judged: std::io::Result<Result<(), Rejection>> = judged.await.map_err(Error::fault)?;
    let judged = judged.map_err(|error| error.downcast().unwrap_or_else(StoreError::from))?;
    Ok(judged?)
}

/// Stores the list of parts under the name of the input. Returns the parts lost in the meantime.
async fn make_whole(app: &App, attempt: Attempt, participant: ParticipantId, tree: &PartTree) -> Result<Vec<u32>> {
    let named = app.store.blobs().put_bytes(tree.encode().into()).await?;
    if named.0 != tree.root() {
        return Err(Error::fault("a list of parts does not have the digest of its tree"));
    }
    Ok(set_whole(&app.store, attempt, participant, tree).await?)
}

/// Send a part of a masked input.
#[utoipa::path(
    put, path = route::UPLOAD_PART, params(AttemptHeader),
    request_body(content = inline(Octets), content_type = MEDIA_MASKED_INPUT), security(("certificate" = [])),
    responses((status = 204, description = "the part is stored"), (status = 409)),
)]
pub(in crate::http) async fn part(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number, participant, part)): Path<(TaskId, u32, ParticipantId, u32)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode> {
    caller.must_be(participant, "a participant sends its own masked input, not another's")?;
    require_media_type(&headers, MEDIA_MASKED_INPUT)?;
    let attempt = extract::attempt(&headers, task, number)?;
    let announced = content_length(&headers)?;
    let permit = enter_part(&app.store, attempt, participant, part).await?;
    if let Some(got) = announced.filter(|got| *got != permit.bytes) {
        return Err(Rejection::WrongLength { expected: permit.bytes, got }.into());
    }
    if permit.is_stored {
        return Ok(StatusCode::NO_CONTENT);
    }
    let turn = app.uploads.begin(participant);
    tokio::select! {
        received = receive(&app, &permit, body) => received.map(|()| StatusCode::NO_CONTENT),
        () = turn.ended() => Err(Error::Conflict("a later upload of this participant took its place".to_owned())),
    }
}

/// Stores a part on arrival, completely or not at all.
async fn receive(app: &App, permit: &PartPermit, body: Body) -> Result<()> {
    let mut writer = app.store.blobs().writer().await?;
    let mut chunks = ExactLengthBody::new(permit.sha256, permit.bytes, body);
    while let Some(chunk) = chunks.next().await? {
        writer.write(chunk).await?;
    }
    match writer.finish(Some(permit.sha256)).await {
        Ok(_) => Ok(store_part(&app.store, permit).await?),
        Err(StoreError::Conflict(_)) => Err(Rejection::DigestMismatch { expected: permit.sha256 }.into()),
        Err(error) => Err(error.into()),
    }
}
