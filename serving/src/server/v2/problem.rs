//! Rejections: problem details, with the member `error` that clients of the Open Inference Protocol read.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use inference::batcher::Refused;
use serde::Serialize;
use wire::headers::MEDIA_PROBLEM;
use wire::problem::{Problem, ProblemType};

use super::super::engine::NoAnswer;

/// A rejected request: its problem, and the value of `Retry-After` in seconds.
#[derive(Debug)]
pub(super) struct Refusal {
    problem: Box<Problem>,
    retry_after_s: Option<u64>,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    problem: &'a Problem,
    error: String,
}

impl Refusal {
    pub(super) fn new(kind: ProblemType, detail: impl Into<String>) -> Self {
        Problem::new(kind, detail).into()
    }

    pub(super) fn status(&self) -> u16 {
        self.problem.status
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let retry_after_s = (problem.status == 503).then_some(1);
        Self { problem: Box::new(problem), retry_after_s }
    }
}

impl From<NoAnswer> for Refusal {
    fn from(error: NoAnswer) -> Self {
        let told = error.to_string();
        match error {
            NoAnswer::Refused(Refused::TooLarge { .. }) => Self::new(ProblemType::TooLarge, told),
            NoAnswer::Refused(Refused::Full { retry_after, .. }) => Self {
                problem: Box::new(Problem::new(ProblemType::RateLimited, told)),
                retry_after_s: Some(retry_after.as_secs().max(1)),
            },
            NoAnswer::Unfit(_) | NoAnswer::Inputs => Self::new(ProblemType::InvalidValue, told),
            NoAnswer::Panicked => Self::new(ProblemType::Internal, told),
            NoAnswer::ShuttingDown => Self::new(ProblemType::Unavailable, told),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Body { problem: &self.problem, error: self.problem.to_string() };
        // Texts and numbers: this cannot fail.
        let bytes = serde_json::to_vec(&body).unwrap_or_default();
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, bytes).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_PROBLEM));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
