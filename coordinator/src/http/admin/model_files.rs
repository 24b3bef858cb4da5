//! `PUT /v1/model-files/{sha256}` and `PUT /v1/model-file-parts/{sha256}`: uploads the initial model of a future task, in parts of 8 MiB.
//!
//! Each part is stored under its own digest, so an interrupted upload resumes with the missing parts. A file is removed with its parts
//! unless a task uses it within a day.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use federation::id::Digest;
use http::{HeaderMap, StatusCode};
use learning::parameters::MAX_PARAMETERS;
use secure_agg::upload::{PART_BYTES, PartTree};
use store::{BlobRead, BlobStore, StoreError, transfer};
use wire::admin::{MODEL_FILE_PART_BYTES, ModelFile, ModelFileReply};
use wire::headers::MEDIA_OCTETS;
use wire::route;

use crate::http::app::App;
use crate::http::auth::operators::Operator;
use crate::http::extract::{Json, Path, read, require_media_type};
use crate::http::openapi::Octets;
use crate::http::reply::problem::{Error, Result};
use crate::maintenance::damage::is_damage;
use crate::rounds::inputs::open_parts;

/// Longest file in bytes: the largest model in 32 bits, with its header.
const MAX_BYTES: u64 = 4 * MAX_PARAMETERS + (8 << 20);

const _: () = assert!(MODEL_FILE_PART_BYTES == PART_BYTES);

/// Store a model file whose parts are stored, or learn which parts are missing.
///
/// Create a task from it within a day: `model.initial` is `sha256:` and the digest.
#[utoipa::path(
    put, path = route::MODEL_FILE,
    request_body = ModelFile, security(("token" = ["operator"])),
    responses((status = 200, body = ModelFileReply)),
)]
pub(in crate::http) async fn put_file(
    Operator(_): Operator,
    State(app): State<Arc<App>>,
    Path(sha256): Path<Digest>,
    Json(file): Json<ModelFile>,
) -> Result<Json<ModelFileReply>> {
    let blobs = app.store.blobs();
    let ModelFile { bytes, parts } = &file;
    let bytes = *bytes;
    if bytes > MAX_BYTES {
        return Err(Error::InvalidValue(format!("a model file has at most {MAX_BYTES} bytes, not {bytes}")));
    }
    let found = parts.len();
    let tree = PartTree::new(bytes, parts.iter().map(|part| part.0).collect()).ok_or_else(|| {
        Error::InvalidValue(format!(
            "a file of {bytes} bytes does not have {found} parts of 8 MiB, the last perhaps shorter"
        ))
    })?;
    let whole: Box<dyn BlobRead> = if is_stored(blobs, sha256, bytes).await? {
        // Stored again, because garbage collection may just have marked it as unused.
        blobs.open(sha256).await?
    } else {
        let mut missing = Vec::new();
        for (number, (digest, length)) in (0..).map_while(|number| Some((number, tree.part(number)?))) {
            if !is_stored(blobs, Digest(digest), length).await? {
                missing.push(number);
            }
        }
        if !missing.is_empty() {
            return Ok(Json(ModelFileReply { missing }));
        }
        Box::new(open_parts(blobs, &tree))
    };
    match transfer(whole, &**blobs, sha256).await {
        Ok(()) => {
            keep(&app, sha256, &file.parts).await?;
            Ok(Json(ModelFileReply { missing: Vec::new() }))
        }
        Err(StoreError::Corrupt(_)) => {
            Err(Error::InvalidValue(format!("the parts together do not have the SHA-256 {sha256}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Keeps an uploaded blob for a day, and releases its parts.
async fn keep(app: &App, blob: Digest, parts: &[Digest]) -> Result<()> {
    let now = app.now();
    app.store
        .transact("keep_model_upload", |tx| {
            Box::pin(async move {
                tx.drop_model_uploads(parts).await?;
                tx.keep_model_upload(blob, now).await
            })
        })
        .await?;
    Ok(())
}

/// Whether an intact blob of this digest and length is stored. A damaged blob must be uploaded again.
async fn is_stored(blobs: &Arc<dyn BlobStore>, digest: Digest, bytes: u64) -> Result<bool> {
    match blobs.look(digest, bytes).await {
        Ok(()) => Ok(true),
        Err(error) if is_damage(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Store a part of a model file.
#[utoipa::path(
    put, path = route::MODEL_FILE_PART,
    request_body(content = inline(Octets), content_type = MEDIA_OCTETS), security(("token" = ["operator"])),
    responses((status = 204, description = "the part is stored")),
)]
pub(in crate::http) async fn put_part(
    Operator(_): Operator,
    State(app): State<Arc<App>>,
    Path(sha256): Path<Digest>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode> {
    require_media_type(&headers, MEDIA_OCTETS)?;
    let bytes = read(&headers, body, PART_BYTES as u64).await?;
    let found = crate::digest(&bytes);
    if found != sha256 {
        return Err(Error::InvalidValue(format!("the part has SHA-256 {found}: it was changed or cut off on the way")));
    }
    app.store.blobs().put_bytes(bytes).await?;
    keep(&app, sha256, &[]).await?;
    Ok(StatusCode::NO_CONTENT)
}
