//! `PUT …/masked-inputs/{participant}`: one participant's masked input.
//!
//! The input is streamed into a blob in constant memory. It is kept only if it arrives completely with the right length and the announced
//! digest. Then the row is written, and then the receipt is sent.

use std::io::Read as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::round::{AssignmentState, RoundState};
use futures_util::StreamExt as _;
use http::HeaderMap;
use recipe::UpdateCodec;
use recipe::codec::UpdateInspector;
use secure_agg::codec::Message as _;
use secure_agg::messages::MaskedInput;
use secure_agg::packing::{PackingError, Unpacker};
use secure_agg::rejection::MessageRejection;
use secure_agg::server::Phase;
use secure_agg::upload::{BodyDigest, CHUNK_BYTES, root};
use store::entity::admitted::Admitted;
use store::{StoreError, WakeEvent};
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
use wire::headers::{CONTENT_SHA256, MEDIA_MASKED_INPUT, RECORD_BELOW, SIGNED_INPUT};
use wire::participant::Receipt;
use wire::route;

use super::answers::{decode, rejected};
use crate::admission::{Fact, FactOutcome, Rejection, UploadPermit, enter};
use crate::http::app::App;
use crate::http::auth::authenticate::Participant;
use crate::http::auth::signed::is_other_body;
use crate::http::extract::{self, Json, Path, content_length, require_media_type, required};
use crate::http::openapi::{Octets, attempt, header};
use crate::http::reply::problem::{Error, Result};
use crate::observe::count_dropped;

/// Description of the header [`RECORD_BELOW`].
pub(super) const RECORD_BELOW_IS: &str =
    "SHA-256 of the record of the version that the update comes from, 64 hexadecimal digits";

struct Headers;

impl IntoParams for Headers {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        vec![
            attempt(),
            header(CONTENT_SHA256, true, "SHA-256 of the body, 64 hexadecimal digits"),
            header(SIGNED_INPUT, false, "secure aggregation: the signed digest of the body, in base64"),
            header(RECORD_BELOW, false, RECORD_BELOW_IS),
        ]
    }
}

/// Send a masked input.
#[utoipa::path(
    put, path = route::MASKED_INPUT, params(Headers),
    request_body(content = inline(Octets), content_type = MEDIA_MASKED_INPUT), security(("certificate" = [])),
    responses((status = 200, body = Receipt), (status = 409)),
)]
pub(in crate::http) async fn masked_input(
    caller: Participant,
    State(app): State<Arc<App>>,
    Path((task, number, participant)): Path<(TaskId, u32, ParticipantId)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Receipt>> {
    caller.must_be(participant, "a participant sends its own masked input, not another's")?;
    require_media_type(&headers, MEDIA_MASKED_INPUT)?;
    let attempt = extract::attempt(&headers, task, number)?;
    let sha256: Digest = required(&headers, CONTENT_SHA256, "the body's SHA-256 as 64 hexadecimal digits")?;
    let below = record_below(&headers)?;
    let announced = content_length(&headers)?;
    let limit = app.config.http.masked_input_max_bytes;
    if announced.is_some_and(|length| length > limit) {
        return Err(Rejection::TooLarge { limit }.into());
    }
    let permit = enter(&app.store, &app.models, &app.sessions, attempt, participant, sha256).await?;
    let signed = signed_input(&permit, participant, &headers)?;
    check_length(&permit, announced, limit)?;
    let turn = app.uploads.begin(participant);
    let received = async {
        match &permit.earlier {
            Some(_) => reread(&permit, body).await,
            None => store_blob(&app, &permit, signed.as_ref(), body).await,
        }
    };
    let received = tokio::select! {
        received = received => received,
        () = turn.ended() => return Err(Error::Conflict("a later upload of this participant took its place".to_owned())),
    };
    if let Err(Error::Rejected(rejection @ Rejection::Implausible(_))) = &received {
        turn_away(&app, attempt, participant, rejection).await?;
    }
    received?;
    if let Some(earlier) = permit.earlier {
        return Ok(Json(receipt(&earlier)));
    }
    let signed = signed.map(|signed| signed.encode().into());
    count(&app, attempt, participant, &permit, signed, below).await.map(Json)
}

/// Admits a stored, validated input.
pub(super) async fn count(
    app: &App,
    attempt: Attempt,
    participant: ParticipantId,
    permit: &UploadPermit,
    signed: Option<Bytes>,
    below: Option<Digest>,
) -> Result<Receipt> {
    let round = attempt.round_key();
    let fact = Fact::Input { attempt, participant, sha256: permit.sha256, bytes: permit.bytes, signed, below };
    match app.inbox.submit(fact).await? {
        FactOutcome::Admitted(admitted) => {
            metrics::counter!("tributary_masked_inputs_total").increment(1);
            metrics::counter!("tributary_masked_input_bytes_total").increment(admitted.bytes);
            tracing::debug!(%round, attempt = attempt.attempt, %participant, "masked input of {participant} admitted to round {round}");
            Ok(receipt(&admitted))
        }
        FactOutcome::Rejected(rejection) => Err(rejection.into()),
        FactOutcome::Written => Err(Error::fault("an input was written, but not admitted")),
    }
}

/// The digest of a record below that the participant names with its input, if any.
pub(super) fn record_below(headers: &HeaderMap) -> Result<Option<Digest>> {
    if !headers.contains_key(RECORD_BELOW) {
        return Ok(None);
    }
    required(headers, RECORD_BELOW, "the SHA-256 of a record as 64 hexadecimal digits").map(Some)
}

/// The participant's signed message for this input under secure aggregation, validated by the protocol.
pub(super) fn signed_input(
    permit: &UploadPermit,
    participant: ParticipantId,
    headers: &HeaderMap,
) -> Result<Option<MaskedInput>> {
    let Some(session) = &permit.session else { return Ok(None) };
    let text: String = required(headers, SIGNED_INPUT, "the signed digest of the body, in base64")?;
    let bytes = wire::base64::decode(&text)
        .ok_or_else(|| Error::Malformed(format!("the header {SIGNED_INPUT} must be base64")))?;
    let message: MaskedInput = decode(&bytes)?;
    let Phase::CollectMasked(phase) = &session.phase else {
        return Err(Error::fault("a round that is COLLECTING has a session in another phase"));
    };
    let sender = message.body.sender;
    if session.index(participant) != Some(sender) {
        return Err(rejected(MessageRejection::NotExpected { sender }));
    }
    phase.admit(message).map(|admitted| Some(admitted.into_message())).map_err(rejected)
}

pub(super) fn check_length(permit: &UploadPermit, announced: Option<u64>, limit: u64) -> Result<(), Rejection> {
    if permit.bytes > limit {
        return Err(Rejection::TooLarge { limit });
    }
    match announced {
        Some(got) if got != permit.bytes => Err(Rejection::WrongLength { expected: permit.bytes, got }),
        _ => Ok(()),
    }
}

/// Stores and validates the body: [`Rejection::Implausible`] concerns an input that arrived as sent.
async fn store_blob(app: &App, permit: &UploadPermit, signed: Option<&MaskedInput>, body: Body) -> Result<()> {
    let mut writer = app.store.blobs().writer().await?;
    let mut chunks = ExactLengthBody::new(permit.sha256, permit.bytes, body);
    let mut inspection = Inspection::new(permit);
    let mut signature = match signed {
        // The announced digest, verified below, determines the signed digest of one chunk.
        Some(signed) if (1..=CHUNK_BYTES as u64).contains(&permit.bytes) => {
            if root(permit.bytes, &[permit.sha256.0]) != signed.body.digest {
                return Err(Rejection::NotSigned.into());
            }
            None
        }
        signed => signed.map(|signed| (signed.body.digest, BodyDigest::default())),
    };
    while let Some(chunk) = chunks.next().await? {
        if let Some(inspection) = &mut inspection {
            inspection.look(&chunk);
        }
        if let Some((_, digest)) = &mut signature {
            digest.push(&chunk);
        }
        writer.write(chunk).await?;
    }
    if signature.is_some_and(|(expected, digest)| digest.finish() != expected) {
        return Err(Rejection::NotSigned.into());
    }
    match writer.finish(Some(permit.sha256)).await {
        Ok(_) => match inspection {
            Some(inspection) => Ok(inspection.finish()?),
            None => read_back(app, permit).await,
        },
        Err(StoreError::Conflict(_)) => Err(Rejection::DigestMismatch { expected: permit.sha256 }.into()),
        Err(error) => Err(error.into()),
    }
}

/// Validates an upload whose codec needs it whole: from disk and one at a time, to bound memory.
async fn read_back(app: &App, permit: &UploadPermit) -> Result<()> {
    let Some(codec) = permit.codec.expanding().map(Arc::clone) else { return Ok(()) };
    let _turn = app.uploads.judge().await;
    let mut blob = app.store.blobs().open(permit.sha256).await?;
    let length = usize::try_from(blob.size()).map_err(Error::fault)?;
    let checked = store::with_files(move || {
        let mut bytes = vec![0; length];
        blob.read_exact(&mut bytes)?;
        Ok::<_, std::io::Error>(codec.check(&bytes))
    });
    let checked = checked.await?.map_err(StoreError::from)?;
    Ok(checked.map_err(|error| Rejection::Implausible(error.to_string()))?)
}

/// Without secure aggregation the coordinator can read an update, and rejects one that could spoil the sum. A masked input can only be
/// checked for its form.
pub(super) struct Inspection {
    unpacker: Box<Unpacker>,
    inspector: Option<UpdateInspector>,
    broken: Option<PackingError>,
}

/// The inspector of an unmasked update.
fn inspector(codec: &UpdateCodec) -> Option<UpdateInspector> {
    #[cfg(feature = "deliberate-faults")]
    if matches!(codec, UpdateCodec::Private(_)) && crate::faults::present() == Some(crate::faults::Fault::NoClipping) {
        return None;
    }
    codec.inspector()
}

impl Inspection {
    /// `None` for a codec that needs the whole upload: see [`read_back`].
    pub(super) fn new(permit: &UploadPermit) -> Option<Self> {
        if permit.codec.expanding().is_some() {
            return None;
        }
        let unpacker = Box::new(Unpacker::new(permit.codec.len(), permit.modulus));
        let inspector = permit.session.is_none().then(|| inspector(&permit.codec)).flatten();
        Some(Self { unpacker, inspector, broken: None })
    }

    pub(super) fn look(&mut self, chunk: &[u8]) {
        if self.broken.is_some() {
            return;
        }
        let looked = match &mut self.inspector {
            Some(inspector) => self.unpacker.push_slices(chunk, |words| inspector.push(words)),
            None => self.unpacker.push(chunk, |_| ()),
        };
        self.broken = looked.err();
    }

    pub(super) fn finish(self) -> Result<(), Rejection> {
        match (self.broken, self.inspector) {
            (Some(error), _) => Err(Rejection::Implausible(error.to_string())),
            (None, Some(inspector)) => inspector.finish().map_err(Rejection::Implausible),
            (None, None) => Ok(()),
        }
    }
}

/// Takes the place of a participant with an implausible update, so that the round stops waiting for it.
pub(super) async fn turn_away(
    app: &App,
    attempt: Attempt,
    participant: ParticipantId,
    rejection: &Rejection,
) -> Result<()> {
    let now = app.now();
    let is_dropped = app
        .store
        .transact("turn_away", |tx| {
            Box::pin(async move {
                let (from, to) = ([AssignmentState::Assigned, AssignmentState::Working], AssignmentState::Abandoned);
                let why = Some("sent an update that the task's encoding does not yield");
                tx.set_assignment_state(attempt, participant, &from, to, now, why).await
            })
        })
        .await?;
    if is_dropped {
        count_dropped(RoundState::Collecting, "implausible", 1);
    }
    app.store.wake().publish(WakeEvent::Work);
    let round = attempt.round_key();
    tracing::warn!(%round, attempt = attempt.attempt, %participant, "{participant} loses its place in round {round}: {rejection}");
    Ok(())
}

/// Verifies a repeated input without storing it again.
async fn reread(permit: &UploadPermit, body: Body) -> Result<()> {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut chunks = ExactLengthBody::new(permit.sha256, permit.bytes, body);
    while let Some(chunk) = chunks.next().await? {
        context.update(&chunk);
    }
    if context.finish().as_ref() == permit.sha256.0 {
        Ok(())
    } else {
        Err(Rejection::DigestMismatch { expected: permit.sha256 }.into())
    }
}

/// A body of exactly the expected length.
pub(super) struct ExactLengthBody {
    stream: axum::body::BodyDataStream,
    sha256: Digest,
    expected: u64,
    got: u64,
}

impl ExactLengthBody {
    pub(super) fn new(sha256: Digest, expected: u64, body: Body) -> Self {
        Self { stream: body.into_data_stream(), sha256, expected, got: 0 }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Rejection> {
        match self.stream.next().await {
            Some(Ok(chunk)) => {
                self.got += chunk.len() as u64;
                if self.got > self.expected {
                    return Err(Rejection::WrongLength { expected: self.expected, got: self.got });
                }
                Ok(Some(chunk))
            }
            Some(Err(error)) if is_other_body(&error) => Err(Rejection::DigestMismatch { expected: self.sha256 }),
            Some(Err(_)) => Err(Rejection::CutOff { got: self.got }),
            None if self.got < self.expected => Err(Rejection::WrongLength { expected: self.expected, got: self.got }),
            None => Ok(None),
        }
    }
}

pub(super) fn receipt(admitted: &Admitted) -> Receipt {
    Receipt { sha256: admitted.sha256, bytes: admitted.bytes, accepted_at: admitted.accepted_at }
}
