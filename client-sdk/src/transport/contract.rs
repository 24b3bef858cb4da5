//! The HTTP contract with the coordinator, without I/O: encoding, timeout and response parsing of each request.
//!
//! A transport sends [`HttpRequest::http`] to the coordinator's address, reads the number of body bytes given by
//! [`HttpRequest::needs`], and passes the answer to [`HttpRequest::read`].

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, RANGE, RETRY_AFTER};
use http::request::Builder;
use http::{HeaderMap, Method, StatusCode};
use secure_agg::codec::Message as _;
use secure_agg::messages::{Agreement, Delivery, Roster, ShareKeys, Survivors};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::participant::{AbandonRequest, Announcement, ModelRef, UploadManifest};
use wire::problem::Problem;
use wire::{Attempt, Digest, TaskId, base64, headers, route};

use super::download::Download;
use super::error::TransportError;
use super::request::{Abandonment, Manifest, Part, Request, Response, Upload};

/// Maximum size of a JSON answer: an assignment with the most and longest tensor names is smaller.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// For the answer to a small request, and for the next piece of a large one.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Slowest upload that is tolerated, in bytes per second.
const SLOWEST_UPLOAD: u64 = 8 << 10;

/// A request over HTTP.
pub struct HttpRequest {
    /// Its URI is a path and a query.
    pub http: http::Request<Bytes>,
    /// Longest time from sending it to the end of the answer.
    pub timeout: Duration,
    /// Maximum size of a successful answer's body; 0 if it is not read.
    limit: usize,
    read: Read,
}

/// The body of a request without content, as JSON.
#[derive(Serialize)]
struct NoBody {}

type Read = fn(Result<Answer, TransportError>) -> Response;

/// A successful answer, and the most that its body may be.
struct Answer {
    http: http::Response<Bytes>,
    limit: usize,
}

impl HttpRequest {
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let http = Self::encode(request);
        Self { timeout: http.timeout.saturating_add(request.wait()), ..http }
    }

    fn encode(request: &Request) -> Self {
        match request {
            Request::Enroll(body) => Self::post(route::ENROLL, body, |answer| Response::Enrolled(json(answer))),
            Request::Renew(body) => Self::post(route::RENEW, body, |answer| Response::Renewed(json(answer))),
            Request::Withdraw => Self::post(route::WITHDRAW, &NoBody {}, |answer| Response::Withdrawn(json(answer))),
            Request::CheckIn(body) => Self::post(route::CHECK_IN, body, |answer| Response::CheckedIn(json(answer))),
            Request::Upload(upload) => Self::upload(upload),
            Request::Manifest(manifest) => Self::manifest(manifest),
            Request::Part(part) => Self::part(part),
            Request::Announcement { what, place, participant, wait } => {
                let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                let limit = match what {
                    Announcement::Roster => Roster::MAX_BYTES,
                    Announcement::Delivery => Delivery::MAX_BYTES,
                    Announcement::Survivors => Survivors::MAX_BYTES,
                    Announcement::Agreement => Agreement::MAX_BYTES,
                };
                let path = route::announcement(*what, *place, *participant, wait_ms);
                Self::get(&path, limit, |answer| Response::Announced(if_any(answer)))
            }
            Request::Evidence { place, dealer } => {
                let path = route::evidence(*place, *dealer);
                Self::get(&path, ShareKeys::MAX_BYTES, |answer| Response::Evidenced(message(answer)))
            }
            Request::Answer { what, place, participant, body } => {
                Self::say(&route::answer(*what, place.task, place.round, *participant), *place, body)
            }
            Request::Abandon(Abandonment { place, participant, reason, refusal }) => {
                let path = route::abandon(place.task, place.round, *participant);
                let body = AbandonRequest { attempt: place.attempt, reason: *reason, refusal: *refusal };
                Self { limit: 0, ..Self::post(&path, &body, |answer| Response::Abandoned(answer.map(drop))) }
            }
        }
    }

    /// A secure aggregation message from the coordinator.
    fn get(path: &str, limit: usize, read: Read) -> Self {
        let http = with_body(builder(Method::GET, path).header(ACCEPT, headers::MEDIA_SECURE_AGG), Bytes::new());
        Self { http, timeout: ANSWER_TIMEOUT, limit, read }
    }

    fn post(path: &str, body: &impl Serialize, read: Read) -> Self {
        let body = serde_json::to_vec(body).expect("bodies of the contract can be written as JSON");
        let http = with_body(builder(Method::POST, path).header(CONTENT_TYPE, "application/json"), body.into());
        Self { http, timeout: ANSWER_TIMEOUT, limit: MAX_ANSWER_BYTES, read }
    }

    fn upload(upload: &Upload) -> Self {
        let Upload { place, participant, sha256, body, signed, below } = upload;
        let path = route::masked_input(place.task, place.round, *participant);
        let mut http = put(&path, headers::MEDIA_MASKED_INPUT, *place);
        http = http.header(headers::CONTENT_SHA256, sha256.to_string());
        if let Some(signed) = signed {
            http = http.header(headers::SIGNED_INPUT, base64::encode(signed));
        }
        if let Some(below) = below {
            http = http.header(headers::RECORD_BELOW, below.to_string());
        }
        let (http, timeout) = (with_body(http, body.clone()), patience(body.len() as u64));
        Self { http, timeout, limit: MAX_ANSWER_BYTES, read: |answer| Response::Uploaded(json(answer)) }
    }

    fn manifest(manifest: &Manifest) -> Self {
        let Manifest { place, participant, tree, signed, below } = manifest;
        let parts = tree.parts().iter().copied().map(Digest).collect();
        let body = serde_json::to_vec(&UploadManifest { bytes: tree.bytes(), parts });
        let body = body.expect("bodies of the contract can be written as JSON");
        let path = route::upload_manifest(place.task, place.round, *participant);
        let mut http = put_in_parts(&path, "application/json", *place);
        if let Some(signed) = signed {
            http = http.header(headers::SIGNED_INPUT, base64::encode(signed));
        }
        if let Some(below) = below {
            http = http.header(headers::RECORD_BELOW, below.to_string());
        }
        // Once all parts are there, they are judged before the answer comes.
        let (http, timeout) = (with_body(http, body.into()), patience(tree.bytes()));
        Self { http, timeout, limit: MAX_ANSWER_BYTES, read: |answer| Response::Manifested(json(answer)) }
    }

    fn part(part: &Part) -> Self {
        let Part { place, participant, number, body } = part;
        let path = route::upload_part(place.task, place.round, *participant, *number);
        let http = with_body(put_in_parts(&path, headers::MEDIA_MASKED_INPUT, *place), body.clone());
        let timeout = patience(body.len() as u64);
        Self { http, timeout, limit: 0, read: |answer| Response::PartStored(answer.map(drop)) }
    }

    /// A secure aggregation message to the coordinator, without a reply body.
    fn say(path: &str, place: Attempt, body: &Bytes) -> Self {
        let http = with_body(put(path, headers::MEDIA_SECURE_AGG, place), body.clone());
        Self {
            http,
            timeout: patience(body.len() as u64),
            limit: 0,
            read: |answer| Response::Answered(answer.map(drop)),
        }
    }

    /// How many bytes of the body of an answer with this status are needed: all, or enough to see that there are too
    /// many.
    #[must_use]
    pub fn needs(&self, status: StatusCode) -> usize {
        match self.limit {
            0 if status.is_success() => 0,
            limit if status.is_success() => limit + 1,
            _ => PROBLEM_NEEDS,
        }
    }

    /// Parses the answer, or returns the transport error as a response.
    #[must_use]
    pub fn read(&self, answer: Result<http::Response<Bytes>, TransportError>) -> Response {
        (self.read)(answer.and_then(checked).map(|http| Answer { http, limit: self.limit }))
    }
}

/// Bytes that are needed of the body of an answer without success.
pub const PROBLEM_NEEDS: usize = MAX_ANSWER_BYTES + 1;

/// The request for a model version's file from byte `have` on.
#[must_use]
pub fn model(task: TaskId, model: &ModelRef, have: u64) -> http::Request<Bytes> {
    let path = route::model_parameters(task, model.version);
    let mut http = builder(Method::GET, &path).header(ACCEPT, headers::MEDIA_SAFETENSORS);
    if have > 0 {
        http = http.header(RANGE, format!("bytes={have}-")).header(IF_RANGE, format!("\"{}\"", model.sha256));
    }
    with_body(http, Bytes::new())
}

/// The health check request.
#[must_use]
pub fn health() -> http::Request<Bytes> {
    with_body(builder(Method::GET, route::HEALTHZ), Bytes::new())
}

/// Prepares `sink` for the body of a model's answer: a complete file replaces its content; a part must start at its
/// end.
///
/// # Errors
/// [`TransportError::Protocol`] if it is another part, and then `sink` is empty; or if `sink` cannot be emptied.
pub fn resume(status: StatusCode, headers: &HeaderMap, sink: &mut Download) -> Result<(), TransportError> {
    if status != StatusCode::PARTIAL_CONTENT {
        return sink.clear().map_err(TransportError::protocol);
    }
    let range = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let begins = range.strip_prefix("bytes ").and_then(|range| range.split('-').next()?.parse::<u64>().ok());
    if begins == Some(sink.bytes()) {
        return Ok(());
    }
    let (etag, have) = (headers.get(ETAG), sink.bytes());
    let error = format!("asked for bytes from {have} on, got {range:?} (ETag {etag:?})");
    sink.clear().map_err(TransportError::protocol)?;
    Err(TransportError::protocol(error))
}

/// Converts an unsuccessful answer to the coordinator's problem.
///
/// # Errors
/// [`TransportError::Problem`] if it is one; of an intermediate proxy's answer without problem details, the status.
pub fn checked(answer: http::Response<Bytes>) -> Result<http::Response<Bytes>, TransportError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let is_problem = content_type(&answer) == Some(headers::MEDIA_PROBLEM);
    let problem = is_problem.then(|| serde_json::from_slice(answer.body()).ok()).flatten();
    let problem = problem.unwrap_or_else(|| Problem::without_details(status, None));
    Err(TransportError::Problem { problem: Box::new(problem), retry_after: retry_after.map(Duration::from_secs) })
}

fn builder(method: Method, path: &str) -> Builder {
    http::Request::builder().method(method).uri(path).header(headers::PROTOCOL, headers::PROTOCOL_VERSION)
}

/// As [`put`], in the version of the contract that has it.
fn put_in_parts(path: &str, media: &str, place: Attempt) -> Builder {
    let request = http::Request::builder().method(Method::PUT).uri(path);
    let request = request.header(headers::PROTOCOL, headers::PROTOCOL_VERSION_PARTS);
    request.header(CONTENT_TYPE, media).header(headers::ATTEMPT, place.attempt)
}

/// Something for a place; its body is still to come.
fn put(path: &str, media: &str, place: Attempt) -> Builder {
    builder(Method::PUT, path).header(CONTENT_TYPE, media).header(headers::ATTEMPT, place.attempt)
}

fn with_body(request: Builder, body: Bytes) -> http::Request<Bytes> {
    request.body(body).expect("paths and headers of the contract are visible ASCII")
}

/// Timeout of an upload of so many bytes.
fn patience(bytes: u64) -> Duration {
    ANSWER_TIMEOUT + Duration::from_secs(bytes / SLOWEST_UPLOAD)
}

fn json<T: DeserializeOwned>(answer: Result<Answer, TransportError>) -> Result<T, TransportError> {
    serde_json::from_slice(&answer?.body()?).map_err(TransportError::protocol)
}

/// A secure aggregation message, which the caller decodes.
fn message(answer: Result<Answer, TransportError>) -> Result<Bytes, TransportError> {
    let answer = answer?;
    if content_type(&answer.http) != Some(headers::MEDIA_SECURE_AGG) {
        return Err(TransportError::protocol(format!("the answer is not {}", headers::MEDIA_SECURE_AGG)));
    }
    answer.body()
}

/// The same, unless it is not available yet.
fn if_any(answer: Result<Answer, TransportError>) -> Result<Option<Bytes>, TransportError> {
    match answer {
        Ok(answer) if answer.http.status() == StatusCode::NO_CONTENT => Ok(None),
        answer => message(answer).map(Some),
    }
}

impl Answer {
    fn body(self) -> Result<Bytes, TransportError> {
        let Self { http, limit } = self;
        match http.body().len() > limit {
            true => Err(TransportError::protocol(format!("the answer is longer than {limit} bytes"))),
            false => Ok(http.into_body()),
        }
    }
}

fn content_type(answer: &http::Response<Bytes>) -> Option<&str> {
    let value = answer.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}
