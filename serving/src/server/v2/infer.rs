//! `POST /v2/models/{model}[/versions/{version}]/infer`.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use listener::simple::Peer;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use wire::admin::Role;
use wire::problem::ProblemType;

use super::asked::{Result, admitted, no_version, number};
use super::columns::{are_columns, encoded};
use super::outputs::OutputTensor;
use super::problem::Refusal;
use super::signatures::TensorMetadata;
use super::tensors::{Asked, InputTensor, TensorParameters, graph_inputs, input};
use crate::server::access::no_model;
use crate::server::engine::NoAnswer;
use crate::server::meters;
use crate::server::model::Loaded;
use crate::server::served::{Chosen, Served};
use crate::server::shared::Serving;

/// Length of the JSON before binary data.
static JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
/// Header with a key that always selects the same version during a canary.
static KEY: HeaderName = HeaderName::from_static("tributary-key");
/// Maximum length of a request id, which is returned.
const ID_MAX: usize = 1024;
/// Approximate size of an answer's JSON without its numbers, and of a number in it.
const ANSWER: usize = 256;
const NUMBER: usize = 12;

#[derive(Debug, Deserialize)]
struct Request<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: RequestParameters,
    #[serde(borrow)]
    inputs: Vec<InputTensor<'a>>,
    #[serde(borrow, default)]
    outputs: Option<Vec<RequestedOutput<'a>>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct RequestParameters {
    /// Whether outputs default to binary data.
    binary_data_output: bool,
}

#[derive(Debug, Deserialize)]
struct RequestedOutput<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
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

/// Model and version in the path of a prediction request; `None` for other paths and for escaped letters.
pub(super) fn named<'a>(method: &Method, path: &'a str) -> Option<(&'a str, Option<&'a str>)> {
    if method != Method::POST {
        return None;
    }
    let of_model = path.strip_prefix("/v2/models/")?.strip_suffix("/infer")?;
    let (model, version) = match of_model.split_once('/') {
        None => (of_model, None),
        Some((model, rest)) => (model, Some(rest.strip_prefix("versions/")?)),
    };
    let is_plain = |part: &str| !part.is_empty() && !part.contains(['/', '%']);
    (is_plain(model) && version.is_none_or(is_plain)).then_some((model, version))
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

/// Answers and counts the answer.
pub(super) async fn counted<B>(
    serving: &Serving,
    peer: Peer,
    name: &str,
    version: Option<&str>,
    headers: &HeaderMap,
    body: B,
) -> Response
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let mut read = None;
    let answer = answer(serving, peer, name, version, headers, body, &mut read).await;
    let status = answer.as_ref().map_or_else(Refusal::status, |response| response.status().as_u16());
    let took = read.map(|read: Instant| read.elapsed());
    serving.note_answer(took);
    match serving.model(name) {
        Some(served) => {
            served.meters.answered(status, took);
            served.traffic.note(status, took);
        }
        None => meters::answered_stranger(status),
    }
    answer.unwrap_or_else(IntoResponse::into_response)
}

/// Sets `read` to the time the body was complete, so latency excludes the network.
async fn answer<B>(
    serving: &Serving,
    peer: Peer,
    name: &str,
    version: Option<&str>,
    headers: &HeaderMap,
    body: B,
    read: &mut Option<Instant>,
) -> Result<Response>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let (served, task) = admitted(serving, headers, peer, Role::Predictor, name).await?;
    // Checks the queue before reading a body that has not arrived. A request that may be cached needs no place in the
    // queue.
    let begins = || serving.engine.arriving(served.index, serving.cache.is_none()).map_err(Refusal::from);
    let (body, arriving) = serving.bodies.read(body, begins).await?;
    let began = *read.insert(Instant::now());
    let (request, binary) = parse(headers, &body.bytes)?;
    let version = version.map(|text| number(served, text)).transpose()?;
    let chosen = choose(served, version, || match headers.get(&KEY) {
        Some(key) => inference::rollout::draw_of(&served.name, key.as_bytes()),
        None => serving.draw(),
    })?;
    let model = &chosen.target.model;
    // Another task may have reused the name.
    if model.task.zip(task).is_some_and(|(of, admitted)| of != admitted) {
        return Err(no_model(name).into());
    }
    let wrong = |detail: String| Refusal::new(ProblemType::InvalidValue, detail);
    let (Asked { input, shapes }, label) = asked(model, request.inputs, binary).map_err(wrong)?;
    let (id, wanted) = (request.id, wanted(&model.signature().outputs, request.outputs, request.parameters)?);
    drop(body);
    let key = serving.cache.as_ref().map(|cache| cache.key(chosen.sha256, &input));
    let remembered = key.as_ref().and_then(|key| {
        let found = serving.cache.as_ref()?.get(key);
        served.meters.cached(found.is_some());
        found
    });
    let said = match remembered {
        Some(said) => said,
        None => {
            let said = serving.engine.ask(served.index, arriving, &chosen.target, input).await;
            let is_tried = chosen.target.comparison.is_some();
            // A full queue does not count against the version.
            if is_tried && said.as_ref().is_err_and(NoAnswer::is_of_version) {
                served.note(model.version, began.elapsed(), true);
            }
            let said = Arc::new(said?);
            let is_finite = said.floats().all(f32::is_finite);
            if is_tried {
                served.note(model.version, began.elapsed(), !is_finite);
            }
            if !is_finite {
                return Err(wrong("the model's scores for these inputs are not finite numbers".to_owned()));
            }
            if let (Some(cache), Some(key)) = (&serving.cache, key) {
                cache.put(key, Arc::clone(&said));
            }
            said
        }
    };
    let described = &model.signature().outputs;
    let said = match label {
        Some((low, high)) => Arc::new(said.in_units(low, high)),
        None => said,
    };
    let outputs = wanted
        .iter()
        .map(|&(at, as_bytes)| OutputTensor::of(at, &described[at], &said, &shapes[at], as_bytes))
        .collect();
    respond(&served.name, model.version, id.as_deref(), outputs, NUMBER * said.bytes() / 4)
}

/// The inputs of a request as the model takes them; of columns also the range of the label, if that is a scaled number.
fn asked(model: &Loaded, tensors: Vec<InputTensor<'_>>, binary: &[u8]) -> Result<(Asked, Option<(f64, f64)>), String> {
    let own = model.signature().inputs.first().map_or("", |input| &*input.name);
    let table = model.table().filter(|table| are_columns(table, &tensors, own));
    let label = table.and_then(|table| table.label.as_ref()?.range());
    let tensors = match table {
        Some(table) => vec![encoded(table, tensors, own)?],
        None => tensors,
    };
    let asked = match model.graph() {
        Some(graph) => graph_inputs(graph, model.signature(), tensors, binary)?,
        None => input(model.architecture(), model.signature(), tensors, binary)?,
    };
    Ok((asked, label))
}

/// The version that answers. `draw`: the random choice during a canary.
fn choose(served: &Arc<Served>, version: Option<u32>, draw: impl FnOnce() -> u64) -> Result<Chosen> {
    served.choose(version, draw).ok_or_else(|| match version {
        Some(version) => no_version(served, &version.to_string()),
        None => Refusal::new(ProblemType::Unavailable, format!("{} has no version yet that is ready", served.name)),
    })
}

/// The JSON of a request, and the bytes after it.
fn parse<'b>(headers: &HeaderMap, body: &'b [u8]) -> Result<(Request<'b>, &'b [u8])> {
    let malformed = |detail: String| Refusal::new(ProblemType::MalformedRequest, detail);
    if headers.get(header::CONTENT_ENCODING).is_some_and(|value| value != "identity") {
        return Err(Refusal::new(ProblemType::UnsupportedMediaType, "bodies are taken uncompressed"));
    }
    let (json, binary) = match headers.get(&JSON_LENGTH) {
        None => (body, &[][..]),
        Some(length) => {
            let length = length.to_str().ok().and_then(|text| text.parse::<usize>().ok());
            let split = length.and_then(|length| body.split_at_checked(length));
            split.ok_or_else(|| malformed(format!("{JSON_LENGTH}: it is the length of the JSON, within the body's")))?
        }
    };
    // serde's messages may quote inputs, so only the position is reported.
    let request: Request<'b> = serde_json::from_slice(json).map_err(|error| {
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

/// Positions of the requested outputs, all by default, and whether each is binary.
fn wanted(
    outputs: &[TensorMetadata],
    named: Option<Vec<RequestedOutput<'_>>>,
    parameters: RequestParameters,
) -> Result<Vec<(usize, bool)>> {
    let Some(named) = named.filter(|named| !named.is_empty()) else {
        return Ok((0..outputs.len()).map(|position| (position, parameters.binary_data_output)).collect());
    };
    let wrong = |detail: String| Refusal::new(ProblemType::InvalidValue, detail);
    let mut wanted: Vec<(usize, bool)> = Vec::with_capacity(outputs.len());
    for RequestedOutput { name, parameters: of_output } in named {
        let position = outputs.iter().position(|output| output.name == name).ok_or_else(|| {
            let names: Vec<_> = outputs.iter().map(|output| format!("`{}`", output.name)).collect();
            wrong(format!("outputs: this model gives {}, and no {name:?}", names.join(", ")))
        })?;
        if wanted.iter().any(|(other, _)| *other == position) {
            return Err(wrong(format!("outputs: `{name}` is there twice")));
        }
        wanted.push((position, of_output.binary_data.unwrap_or(parameters.binary_data_output)));
    }
    Ok(wanted)
}

/// `expected`: approximate size of the numbers in JSON.
fn respond(
    name: &str,
    version: u32,
    id: Option<&str>,
    outputs: Vec<OutputTensor<'_>>,
    expected: usize,
) -> Result<Response> {
    let binary: usize = outputs.iter().map(OutputTensor::bytes).sum();
    let told = if binary > 0 { binary } else { expected };
    let mut body = Vec::with_capacity(ANSWER + told);
    let answer = Answer { model_name: name, model_version: version.to_string(), id, outputs };
    serde_json::to_writer(&mut body, &answer)
        .map_err(|error| Refusal::new(ProblemType::Internal, format!("the answer cannot be written: {error}")))?;
    let json = body.len();
    answer.outputs.iter().for_each(|output| output.append_to(&mut body));
    let mut response = Response::new(Body::from(body));
    let media = if binary > 0 { "application/octet-stream" } else { "application/json" };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    if binary > 0 {
        response.headers_mut().insert(JSON_LENGTH.clone(), HeaderValue::from(json));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use client_sdk::models::{Architecture, Linear};

    use super::super::signatures::signature;
    use super::*;

    #[test]
    fn a_path_names_a_model_and_a_version_as_the_router_takes_them() {
        let of = |path| named(&Method::POST, path);
        assert_eq!(of("/v2/models/digits/infer"), Some(("digits", None)));
        assert_eq!(of("/v2/models/digits/versions/x-1/infer"), Some(("digits", Some("x-1"))));
        assert_eq!(of("/v2/models/infer/infer"), Some(("infer", None)));
        for path in [
            "/v2/models//infer",
            "/v2/models/infer",
            "/v2/models/digits",
            "/v2/models/digits/infer/",
            "/v2/models/digits/versions//infer",
            "/v2/models/digits/versions/infer",
            "/v2/models/digits/versions/1/2/infer",
            "/v2/models/digits/other/1/infer",
            "/v2/models/di%67its/infer",
            "/v3/models/digits/infer",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
        assert_eq!(named(&Method::GET, "/v2/models/digits/infer"), None);
    }

    #[test]
    fn outputs_are_all_of_them_or_those_that_are_named_once() {
        let of = |json: &str| {
            let request: Request<'_> = serde_json::from_str(json).unwrap();
            let linear = Architecture::Linear(Linear { inputs: 2, classes: 2 });
            wanted(&signature(&linear).unwrap().outputs, request.outputs, request.parameters)
        };
        let all = of(r#"{"inputs":[],"parameters":{"binary_data_output":true}}"#).unwrap();
        assert_eq!(all, [(0, true), (1, true)]);
        let named =
            r#"{"inputs":[],"outputs":[{"name":"classes"},{"name":"sc\u006fres","parameters":{"binary_data":true}}]}"#;
        assert_eq!(of(named).unwrap(), [(1, false), (0, true)]);
        for outputs in [r#"[{"name":"classes"},{"name":"classes"}]"#, r#"[{"name":"logits"}]"#] {
            let refused = of(&format!(r#"{{"inputs":[],"outputs":{outputs}}}"#)).unwrap_err();
            assert_eq!(refused.status(), 422, "{outputs}");
        }
    }
}
