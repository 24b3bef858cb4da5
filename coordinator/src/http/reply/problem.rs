//! The only mapping from errors to responses.
//!
//! A rejection is expected, has a stable code, and is counted and reported to the peer. A fault is unexpected: it is logged once, here,
//! with the request's id, and the peer gets only that id.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use http::{HeaderValue, StatusCode, header};
use store::StoreError;
use store::entity::token::TokenEnd;
use task_spec::SpecError;
use wire::certificate::Unfit;
use wire::headers::{MEDIA_PROBLEM, TIME};
use wire::problem::{FieldError, Problem, ProblemType};
use wire::signature::{SignatureError, WINDOW};

use super::problem_page::problem_page;
use crate::admission::{AdmissionError, InboxError, Rejection};
use crate::identity::{CredentialError, IssueError, SignerError};
use crate::oidc::Unidentified;

/// Maximum characters of a detail and of a field name in a problem.
const TOLD_MAX: usize = 4096;

/// Every reason for rejecting a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A body, path, query or header cannot be parsed.
    #[error("{0}")]
    Malformed(String),
    /// A value out of bounds.
    #[error("{0}")]
    InvalidValue(String),
    /// The media type is not supported.
    #[error("the body must be {0}")]
    MediaType(&'static str),
    /// The body exceeds this many bytes.
    #[error("the body may have at most {0} bytes here")]
    TooLarge(u64),
    /// The request's time limit has passed.
    #[error("the request was not complete in time")]
    TooSlow,
    #[error("come back in {0} ms")]
    RateLimited(u64),
    #[error("{0}")]
    NotFound(String),
    /// The file of this model version was deleted.
    #[error("model version {0} is removed: the task keeps only its newest versions and pinned ones")]
    VersionRemoved(u32),
    /// The view's entity tag, this one, differs from the write's precondition.
    #[error("it shows something else than when that entity tag was given: read it again")]
    Stale(HeaderValue),
    /// The path does not support the method.
    #[error("the path does not take this method")]
    Method,
    /// Credentials are missing or unknown.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The operator's token has ended.
    #[error("{}", match .0 {
        TokenEnd::Revoked => "the operator's token was revoked".to_owned(),
        TokenEnd::Expired(at) => format!("the operator's token expired at {at}: have an admin make another"),
    })]
    TokenEnded(TokenEnd),
    /// A token of the identity provider lacks a valid identity or a permission.
    #[error(transparent)]
    Unidentified(#[from] Unidentified),
    /// The request's signature is incomplete, covers too little, or is invalid.
    #[error("{0}")]
    Signature(#[from] SignatureError),
    /// The signer's certificate has another authority, or is not a participant's.
    #[error("the certificate that came with the signature: {0}")]
    Uncertified(Unfit),
    #[error(
        "the request was signed for {server:?}, and this coordinator is reached as {names}: name it in http.signed_names, or have the \
         balancer keep the host that participants name"
    )]
    SignedForAnother { server: String, names: String },
    /// The request was signed too long ago, or is dated in the future.
    #[error(
        "the request was signed at {created}, and it is {now} here: a signature counts for {window} s; date it by {TIME} and \
         sign that header, too", window = WINDOW.as_secs()
    )]
    SignedAtAnotherTime {
        created: Timestamp,
        now: Timestamp,
        /// This coordinator's time with its MAC.
        time: String,
    },
    #[error("the body is not the one whose digest was signed")]
    OtherBody,
    #[error("a request with this signature came before: sign each with a nonce of its own")]
    Replayed,
    /// The peer is not authorized.
    #[error("{0}")]
    Forbidden(String),
    #[error("this participant was revoked, by an operator or at its own request; it can only enrol as somebody new")]
    Revoked,
    #[error("the certificate ended at {0}; enrol anew")]
    Expired(Timestamp),
    /// The enrolment token is unusable.
    #[error("{0}")]
    Enrollment(&'static str),
    /// The signing request cannot be signed, or the certificate is not accepted.
    #[error("{0}")]
    Credential(#[from] CredentialError),
    /// The external authority is unavailable; the reason is only logged.
    #[error("the authority that certifies participants is unavailable; try again later")]
    Signer(String),
    /// The task is invalid.
    #[error("{}", match .0.len() {
        1 => "one field is wrong".to_owned(),
        several => format!("{several} fields are wrong"),
    })]
    InvalidTask(Vec<SpecError>),
    /// A value of the task is invalid for its key.
    #[error("the body: {}: {}", .0.field, .0.problem)]
    UnreadableTask(SpecError),
    /// The request conflicts with stored state.
    #[error("{0}")]
    Conflict(String),
    /// The task's status does not allow it.
    #[error("the task is {0}")]
    TaskStatus(TaskStatus),
    /// A masked input or another message is rejected.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The range lies outside this many bytes.
    #[error("there are {0} bytes")]
    Range(u64),
    /// The version of the contract is not supported.
    #[error(
        "protocol version {0:?} is not supported here, only {first} and {second}",
        first = wire::headers::PROTOCOL_VERSION,
        second = wire::headers::PROTOCOL_VERSION_PARTS
    )]
    Protocol(String),
    /// Requested stored state is damaged: an operator has to act.
    #[error("{0}")]
    Damaged(String),
    /// Rows or blobs cannot be written.
    #[error("{what} cannot be written: {source}")]
    NotReady { what: &'static str, source: Arc<StoreError> },
    /// Rows or blobs did not respond to a probe in time.
    #[error("{what} did not answer within {} ms; the log says why when it does", within.as_millis())]
    Silent { what: &'static str, within: Duration },
    /// The slots for unauthenticated requests are full.
    #[error("the limit of unsigned requests is reached; come back in {0} s")]
    Crowded(u16),
    /// The slots for event streams are full.
    #[error("as many streams of events {0} are open as http.{1} allows; try again later")]
    TooManyStreams(&'static str, &'static str),
    #[error("shutting down; try again later")]
    ShuttingDown,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Fault(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<IssueError> for Error {
    fn from(error: IssueError) -> Self {
        match error {
            IssueError::Own(error) => Self::fault(error),
            error @ IssueError::NothingIsSigned => Self::fault(error),
            IssueError::Elsewhere(SignerError::Refused) => {
                Self::Enrollment("the authority that certifies participants refused to certify this one")
            }
            IssueError::Elsewhere(SignerError::Unavailable(why)) => Self::Signer(why),
        }
    }
}

impl From<AdmissionError> for Error {
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::Rejected(rejection) => Self::Rejected(rejection),
            AdmissionError::Store(error) => Self::Store(error),
        }
    }
}

impl From<InboxError> for Error {
    fn from(error: InboxError) -> Self {
        match error {
            InboxError::Store(error) => Self::Store(error),
            InboxError::Closed => Self::ShuttingDown,
        }
    }
}

fn kind_of_rejection(rejection: &Rejection) -> ProblemType {
    match rejection {
        Rejection::NoSuchRound | Rejection::NoSession => ProblemType::NotFound,
        Rejection::PhaseClosed { .. } => ProblemType::PhaseClosed,
        Rejection::NotAssigned { .. } => ProblemType::NotAssigned,
        Rejection::DifferentInput { .. } => ProblemType::DifferentInput,
        Rejection::WrongLength { .. } => ProblemType::WrongLength,
        Rejection::TooLarge { .. } => ProblemType::TooLarge,
        Rejection::DigestMismatch { .. } | Rejection::NotSigned => ProblemType::DigestMismatch,
        Rejection::CutOff { .. } => ProblemType::MalformedRequest,
        Rejection::Implausible(_) => ProblemType::InvalidValue,
        Rejection::DifferentMessage => ProblemType::DifferentMessage,
        Rejection::Protocol { .. } => ProblemType::SessionRejected,
        Rejection::PartNotExpected { .. } | Rejection::NotAnnounced { .. } => ProblemType::PartNotExpected,
    }
}

/// Result type of handlers.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A fault with its cause, for the log.
    pub(crate) fn fault(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Fault(cause.into())
    }

    /// The problem type that the peer gets.
    #[must_use]
    pub(crate) fn kind(&self) -> ProblemType {
        match self {
            Self::Malformed(_) | Self::UnreadableTask(_) => ProblemType::MalformedRequest,
            Self::InvalidValue(_) => ProblemType::InvalidValue,
            Self::Credential(error) => match error {
                CredentialError::CertifiedElsewhere => ProblemType::CertifiedElsewhere,
                CredentialError::Request(_) | CredentialError::PreIssued(_) | CredentialError::CertifiedHere => {
                    ProblemType::InvalidValue
                }
            },
            Self::MediaType(_) => ProblemType::UnsupportedMediaType,
            Self::TooLarge(_) => ProblemType::TooLarge,
            Self::TooSlow => ProblemType::TooSlow,
            Self::RateLimited(_) => ProblemType::RateLimited,
            Self::NotFound(_) => ProblemType::NotFound,
            Self::VersionRemoved(_) => ProblemType::VersionRemoved,
            Self::Stale(_) => ProblemType::PreconditionFailed,
            Self::Method => ProblemType::MethodNotAllowed,
            Self::Unauthenticated(_) | Self::TokenEnded(_) => ProblemType::Unauthenticated,
            Self::Unidentified(unidentified) => match unidentified {
                Unidentified::Refused(_)
                | Unidentified::Declined(_)
                | Unidentified::Code
                | Unidentified::AnotherIssuer => ProblemType::Unauthenticated,
                Unidentified::NoRole { .. } => ProblemType::Forbidden,
                Unidentified::Unavailable | Unidentified::Away => ProblemType::Unavailable,
            },
            Self::Signature(_) | Self::Uncertified(_) | Self::SignedForAnother { .. } => ProblemType::SignatureInvalid,
            Self::SignedAtAnotherTime { .. } => ProblemType::SignatureTime,
            Self::OtherBody => ProblemType::DigestMismatch,
            Self::Replayed => ProblemType::SignatureReplayed,
            Self::Forbidden(_) => ProblemType::Forbidden,
            Self::Revoked => ProblemType::CertificateRevoked,
            Self::Expired(_) => ProblemType::CertificateExpired,
            Self::Enrollment(_) => ProblemType::EnrollmentRefused,
            Self::InvalidTask(_) => ProblemType::InvalidTask,
            Self::Conflict(_) => ProblemType::Conflict,
            Self::TaskStatus(_) => ProblemType::TaskStatus,
            Self::Rejected(rejection) => kind_of_rejection(rejection),
            Self::Range(_) => ProblemType::RangeNotSatisfiable,
            Self::Protocol(_) => ProblemType::UnsupportedProtocol,
            Self::ShuttingDown
            | Self::TooManyStreams(..)
            | Self::Crowded(_)
            | Self::Signer(_)
            | Self::Damaged(_)
            | Self::Silent { .. }
            | Self::NotReady { .. } => ProblemType::Unavailable,
            Self::Store(error) => match error {
                StoreError::Conflict(_) => ProblemType::Conflict,
                StoreError::Busy
                | StoreError::Unreachable(_)
                | StoreError::NoAccess(_)
                | StoreError::BlobsAway(_)
                | StoreError::Full
                | StoreError::TooManyFiles
                | StoreError::ReadOnly
                | StoreError::BeingRemoved(_) => ProblemType::Unavailable,
                StoreError::Corrupt(_) | StoreError::MissingBlob(_) | StoreError::Schema(_) | StoreError::Fault(_) => {
                    ProblemType::Internal
                }
            },
            Self::Fault(_) => ProblemType::Internal,
        }
    }

    fn problem(&self) -> Problem {
        let kind = self.kind();
        let mut problem = Problem::new(kind, self.to_string());
        // Hides the location and permissions of rows and blobs from peers.
        let names_a_place = |error: &StoreError| {
            matches!(error, StoreError::Unreachable(_) | StoreError::NoAccess(_) | StoreError::BlobsAway(_))
        };
        if kind == ProblemType::Internal || matches!(self, Self::Store(error) if names_a_place(error)) {
            problem.detail = None;
        }
        if let Self::NotReady { what, source } = self
            && names_a_place(source)
        {
            problem.detail = Some(format!("{what} cannot be written; the log says why"));
        }
        problem.detail = problem.detail.map(shortened);
        let told = |error: &SpecError| FieldError {
            field: shortened(error.field.clone()),
            detail: shortened(error.problem.clone()),
        };
        if let Self::InvalidTask(errors) = self {
            problem.errors = errors.iter().map(told).collect();
        }
        if let Self::UnreadableTask(error) = self {
            problem.errors = vec![told(error)];
        }
        problem
    }

    /// Headers of the problem.
    fn headers(&self) -> Option<(header::HeaderName, HeaderValue)> {
        match self {
            Self::RateLimited(after_ms) => Some((header::RETRY_AFTER, after_ms.div_ceil(1000).max(1).into())),
            Self::Crowded(after_s) => Some((header::RETRY_AFTER, (*after_s).into())),
            Self::ShuttingDown
            | Self::TooManyStreams(..)
            | Self::Signer(_)
            | Self::Damaged(_)
            | Self::Silent { .. }
            | Self::NotReady { .. }
            | Self::Unidentified(Unidentified::Unavailable | Unidentified::Away)
            | Self::Store(
                StoreError::Busy
                | StoreError::Unreachable(_)
                | StoreError::NoAccess(_)
                | StoreError::BlobsAway(_)
                | StoreError::Full
                | StoreError::TooManyFiles
                | StoreError::ReadOnly
                | StoreError::BeingRemoved(_),
            ) => Some((header::RETRY_AFTER, HeaderValue::from_static("5"))),
            Self::Stale(tag) => Some((header::ETAG, tag.clone())),
            Self::Unauthenticated(_) | Self::TokenEnded(_) | Self::Unidentified(Unidentified::Refused(_)) => {
                Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            Self::SignedAtAnotherTime { time, .. } => {
                HeaderValue::from_str(time).ok().map(|time| (header::HeaderName::from_static(TIME), time))
            }
            Self::Range(bytes) => {
                HeaderValue::from_str(&format!("bytes */{bytes}")).ok().map(|value| (header::CONTENT_RANGE, value))
            }
            _ => None,
        }
    }

    /// The response, with the request's id as `instance`. Counts it, and logs faults.
    #[must_use]
    pub(crate) fn respond(&self, instance: &str) -> Response {
        let problem = self.told(instance);
        let mut response = Response::new(Body::from(serde_json::to_vec(&problem).unwrap_or_default()));
        *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_PROBLEM));
        self.with_headers(response)
    }

    /// The same as a page, for browsers.
    #[must_use]
    pub(in crate::http) fn respond_as_page(&self, instance: &str) -> Response {
        let mut problem = self.told(instance);
        // The log contains this id only for internal errors.
        problem.instance = problem.instance.filter(|_| self.kind() == ProblemType::Internal);
        self.with_headers(problem_page(&problem))
    }

    fn told(&self, instance: &str) -> Problem {
        let mut problem = self.problem();
        let kind = self.kind();
        if kind == ProblemType::Internal {
            metrics::counter!("tributary_faults_total").increment(1);
            tracing::error!(request_id = instance, error = ?self, "request {instance} failed: {self}");
        } else {
            metrics::counter!("tributary_rejections_total", "code" => kind.code()).increment(1);
        }
        problem.instance = (!instance.is_empty()).then(|| instance.to_owned());
        problem
    }

    fn with_headers(&self, mut response: Response) -> Response {
        if let Some((name, value)) = self.headers() {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// Removes the middle of a long text, usually copied from a peer's input. The correction stands at the end.
fn shortened(text: String) -> String {
    if text.len() <= TOLD_MAX {
        return text;
    }
    let chars = text.chars().count();
    if chars <= TOLD_MAX {
        return text;
    }
    let (start, end) = (TOLD_MAX / 4, TOLD_MAX * 3 / 4);
    text.chars().take(start).chain([' ', '…', ' ']).chain(text.chars().skip(chars - end)).collect()
}

/// Passes the error to `trace`, which has the request's id and creates the response with [`Error::respond`].
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(std::sync::Arc::new(self));
        response
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::config::TelemetryConfig;

    #[test]
    fn a_fault_is_in_the_log_by_default_under_the_id_that_the_peer_is_told() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let lines = tracing_subscriber::fmt::layer().with_writer(Arc::new(log.reopen().unwrap())).with_ansi(false);
        let level: Targets = TelemetryConfig::default().level.parse().unwrap();
        let subscriber = tracing_subscriber::registry().with(level).with(lines);
        let problem = tracing::subscriber::with_default(subscriber, || Error::fault("password=geheim").told("abc-7"));
        assert_eq!((problem.status, problem.instance.as_deref()), (500, Some("abc-7")));
        let log = std::fs::read_to_string(log.path()).unwrap();
        assert!(log.contains("request abc-7 failed") && log.contains("password=geheim"), "{log}");
    }

    #[tokio::test]
    async fn page_names_the_request_only_of_a_fault() {
        for (error, is_named) in [(Error::fault("geheim"), true), (Error::NotFound("there is none".to_owned()), false)]
        {
            let page = error.respond_as_page("abc-7").into_body();
            let page = axum::body::to_bytes(page, usize::MAX).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&page).contains("abc-7"), is_named, "{error}");
        }
    }

    #[test]
    fn a_fault_tells_the_peer_nothing_but_where_to_look() {
        let problem = Error::fault("password=geheim").problem();
        assert_eq!((problem.status, problem.detail), (500, None));
        let response = Error::Store(StoreError::corrupt("row 7 of secrets")).respond("abc");
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()[header::CONTENT_TYPE], MEDIA_PROBLEM);
    }

    #[test]
    fn what_was_sent_is_not_told_back_without_end() {
        let detail = format!("state: there is none called {:?}, only ACTIVE", "é".repeat(1_000_000));
        let told = Error::InvalidValue(detail).problem().detail.unwrap();
        assert!(told.starts_with("state: there is none called \"é") && told.ends_with("é\", only ACTIVE"), "{told}");
        assert_eq!(told.chars().count(), TOLD_MAX + 3);
        let field = SpecError { field: "x".repeat(1_000_000), problem: "is not known".to_owned() };
        let told = Error::UnreadableTask(field).problem().errors.remove(0);
        assert_eq!((told.field.chars().count(), told.detail.as_str()), (TOLD_MAX + 3, "is not known"));
        let detail = "é".repeat(TOLD_MAX);
        assert_eq!(Error::InvalidValue(detail.clone()).problem().detail, Some(detail));
    }

    #[test]
    fn a_lack_of_room_or_files_is_told_and_asks_to_come_back() {
        for lack in [StoreError::Full, StoreError::TooManyFiles, StoreError::BlobsAway("at geheim".to_owned())] {
            let error = Error::Store(lack);
            assert!(!error.problem().detail.unwrap_or_default().contains("geheim"));
            assert_eq!(error.kind(), ProblemType::Unavailable);
            let response = error.respond("abc");
            assert_eq!(response.status(), 503);
            assert_eq!(response.headers()[header::RETRY_AFTER], "5");
        }
    }
}
