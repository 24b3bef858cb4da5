//! `POST /v2/models/{model}[/versions/{version}]/infer`.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use serde::{Deserialize, Serialize};
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use wire::admin::Role;
use wire::problem::ProblemType;

use super::asked::{Result, admitted, no_version, number};
use super::problem::Refusal;
use super::tensors::{CLASSES, InputTensor, OutputTensor, SCORES, TensorParameters, input, output};
use crate::serving::engine::NoAnswer;
use crate::serving::listener::Peer;
use crate::serving::meters;
use crate::serving::model::{Input, Prediction};
use crate::serving::served::{Chosen, Served};
use crate::serving::shared::Serving;

/// Length of the JSON before binary data.
const JSON_LENGTH: &str = "inference-header-content-length";
/// What keeps a caller on one side while a new version is tried.
const KEY: &str = "tributary-key";
/// Longest id of a request, which is sent back.
const ID_MAX: usize = 1024;

#[derive(Debug, Deserialize)]
struct Request {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: RequestParameters,
    inputs: Vec<InputTensor>,
    #[serde(default)]
    outputs: Option<Vec<RequestedOutput>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct RequestParameters {
    /// Whether outputs come as bytes that say nothing else.
    binary_data_output: bool,
}

#[derive(Debug, Deserialize)]
struct RequestedOutput {
    name: String,
    #[serde(default)]
    parameters: TensorParameters,
}

#[derive(Serialize)]
struct Answer<'a> {
    model_name: &'a str,
    model_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    outputs: Vec<OutputTensor<'a>>,
}

pub(super) async fn infer(
    State(serving): State<Arc<Serving>>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    counted(&serving, peer, &name, None, &headers, body).await
}

pub(super) async fn infer_version(
    State(serving): State<Arc<Serving>>,
    Extension(peer): Extension<Peer>,
    Path((name, version)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    counted(&serving, peer, &name, Some(&version), &headers, body).await
}

async fn counted(
    serving: &Serving,
    peer: Peer,
    name: &str,
    version: Option<&str>,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let mut read = None;
    let answer = answer(serving, peer, name, version, headers, body, &mut read).await;
    let status = answer.as_ref().map_or_else(Refusal::status, |response| response.status().as_u16());
    // Names that strangers invent are no labels.
    let served = serving.model(name);
    let model = served.map_or("", |served| &served.name);
    let took = read.map(|read: Instant| read.elapsed());
    meters::answered(model, status, took);
    serving.note_answer(took);
    if let Some(served) = served {
        served.traffic.note(status, took);
    }
    answer.unwrap_or_else(IntoResponse::into_response)
}

/// `read` becomes when the request was there as a whole: what comes before is the network's and the sender's time, not the model's.
async fn answer(
    serving: &Serving,
    peer: Peer,
    name: &str,
    version: Option<&str>,
    headers: &HeaderMap,
    body: Body,
    read: &mut Option<Instant>,
) -> Result<Response> {
    let served = admitted(serving, headers, peer, Role::Predictor, name).await?;
    let length = body.size_hint().upper();
    let reserved = match room(serving, served, length).await {
        Ok(reserved) => reserved,
        Err(refusal) => {
            serving.bodies.pass(body).await;
            return Err(refusal);
        }
    };
    let arriving = serving.engine.arriving(served.index);
    let body = serving.bodies.read(body).await?;
    let began = *read.insert(Instant::now());
    let (request, binary) = parse(headers, &body)?;
    let version = version.map(|text| number(served, text)).transpose()?;
    let draw = match headers.get(KEY) {
        Some(key) => inference::rollout::draw_of(&served.name, key.as_bytes()),
        None => serving.draw(),
    };
    let chosen = choose(served, version, draw)?;
    let model = Arc::clone(&chosen.lane.model);
    let wrong = |detail: String| Refusal::new(ProblemType::InvalidValue, detail);
    let asked = input(model.architecture(), request.inputs, binary).map_err(wrong)?;
    drop((body, reserved));
    let shape = match &asked {
        Input::Rows { .. } => vec![asked.examples()],
        Input::Texts { length, .. } => vec![asked.examples(), *length],
    };
    let key = serving.cache.as_ref().map(|cache| cache.key(chosen.sha256, &asked));
    let remembered = key.as_ref().and_then(|key| serving.cache.as_ref()?.get(&served.name, key));
    let said = match remembered {
        Some(said) => said,
        None => {
            let said = serving.engine.ask(arriving, &chosen.lane, asked).await;
            // A full queue is no fault of the version's.
            if said.as_ref().is_err_and(NoAnswer::is_of_version) {
                served.note(model.version, began.elapsed(), true);
            }
            let said = Arc::new(said?);
            let is_finite = said.scores.iter().all(|score| score.is_finite());
            served.note(model.version, began.elapsed(), !is_finite);
            if !is_finite {
                return Err(wrong("the model's scores for these inputs are not finite numbers".to_owned()));
            }
            if let (Some(cache), Some(key)) = (&serving.cache, key) {
                cache.put(key, Arc::clone(&said));
            }
            said
        }
    };
    respond(&served.name, model.version, &request.id, request.outputs, request.parameters, &said, &shape)
}

/// Room for a request whose body has this length, before anything of it is read: in the queue, and in memory.
async fn room<'a>(serving: &'a Serving, served: &Served, length: Option<u64>) -> Result<SemaphorePermit<'a>> {
    // What may be remembered needs no place in the queue.
    if serving.cache.is_none() {
        serving.engine.room(served.index)?;
    }
    serving.bodies.reserve(length).await
}

fn choose(served: &Arc<Served>, version: Option<u32>, draw: u64) -> Result<Chosen> {
    served.choose(version, draw).ok_or_else(|| match version {
        Some(version) => no_version(served, &version.to_string()),
        None => Refusal::new(ProblemType::Unavailable, format!("{} has no version yet that is ready", served.name)),
    })
}

/// The JSON of a request, and the bytes after it.
fn parse<'b>(headers: &HeaderMap, body: &'b Bytes) -> Result<(Request, &'b [u8])> {
    let malformed = |detail: String| Refusal::new(ProblemType::MalformedRequest, detail);
    if headers.get(header::CONTENT_ENCODING).is_some_and(|value| value != "identity") {
        return Err(Refusal::new(ProblemType::UnsupportedMediaType, "bodies are taken uncompressed"));
    }
    let (json, binary) = match headers.get(JSON_LENGTH) {
        None => (&body[..], &[][..]),
        Some(length) => {
            let length = length.to_str().ok().and_then(|text| text.parse::<usize>().ok());
            let split = length.and_then(|length| body.split_at_checked(length));
            split.ok_or_else(|| malformed(format!("{JSON_LENGTH}: it is the length of the JSON, within the body's")))?
        }
    };
    // What serde says of unexpected values may quote them, and inputs are told to nobody: the place alone is told.
    let request: Request = serde_json::from_slice(json).map_err(|error| {
        let what = match error.classify() {
            serde_json::error::Category::Data => "a member is missing, or is not what it has to be,",
            serde_json::error::Category::Syntax | serde_json::error::Category::Eof => "no JSON",
            serde_json::error::Category::Io => "unreadable",
        };
        malformed(format!("the body: {what} at line {} column {}", error.line(), error.column()))
    })?;
    if request.id.as_ref().is_some_and(|id| id.len() > ID_MAX) {
        return Err(malformed(format!("id: it has at most {ID_MAX} bytes")));
    }
    Ok((request, binary))
}

fn respond(
    name: &str,
    version: u32,
    id: &Option<String>,
    wanted: Option<Vec<RequestedOutput>>,
    parameters: RequestParameters,
    said: &Prediction,
    shape: &[usize],
) -> Result<Response> {
    let all =
        || [SCORES, CLASSES].map(|name| RequestedOutput { name: name.to_owned(), parameters: Default::default() });
    let wanted = wanted.filter(|wanted| !wanted.is_empty()).unwrap_or_else(|| all().into());
    let classes = said.scores.len() / said.classes.len().max(1);
    let (mut binary, mut outputs) = (Vec::new(), Vec::with_capacity(wanted.len()));
    for RequestedOutput { name, parameters: of_output } in wanted {
        let as_bytes = of_output.binary_data.unwrap_or(parameters.binary_data_output);
        let tensor = output(&name, said, shape, classes, as_bytes.then_some(&mut binary)).ok_or_else(|| {
            let detail = format!("outputs: this model gives `{SCORES}` and `{CLASSES}`, and no {name:?}");
            Refusal::new(ProblemType::InvalidValue, detail)
        })?;
        if outputs.iter().any(|other: &OutputTensor<'_>| other.name == tensor.name) {
            let detail = format!("outputs: `{name}` is there twice");
            return Err(Refusal::new(ProblemType::InvalidValue, detail));
        }
        outputs.push(tensor);
    }
    let answer = Answer { model_name: name, model_version: version.to_string(), id: id.as_deref(), outputs };
    let mut body = serde_json::to_vec(&answer)
        .map_err(|error| Refusal::new(ProblemType::Internal, format!("the answer cannot be written: {error}")))?;
    if binary.is_empty() {
        let media = HeaderValue::from_static("application/json");
        return Ok(([(header::CONTENT_TYPE, media)], body).into_response());
    }
    let length = HeaderValue::from(body.len());
    body.append(&mut binary);
    let media = HeaderValue::from_static("application/octet-stream");
    let headers = [(header::CONTENT_TYPE, media), (header::HeaderName::from_static(JSON_LENGTH), length)];
    Ok((headers, body).into_response())
}
