//! Problem details (RFC 9457): the error types that peers receive, as stable URIs.
//!
//! `title` and `status` belong to the type; `detail` describes the error in this case and the valid input. A [`ProblemType::Internal`]
//! omits the detail: the cause is in the coordinator's log, under `instance`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Prefix of every problem type's URI.
pub const URI_PREFIX: &str = "urn:tributary:problem:";

macro_rules! problem_types {
    ($($(#[$doc:meta])* $variant:ident => $code:literal, $status:literal, $title:literal;)*) => {
        /// The problem types. New ones may be added: a peer handles an unknown one by its HTTP status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemType {
            $($(#[$doc])* $variant,)*
        }

        impl ProblemType {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Stable code, the last part of the URI.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Short description that never changes.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

problem_types! {
    /// The body or a parameter could not be parsed.
    MalformedRequest => "malformed-request", 400, "The request could not be read";
    /// The task specification is invalid; `errors` names every field.
    InvalidTask => "invalid-task", 422, "The task cannot work as written";
    /// A value in the body, a header or the path is out of bounds.
    InvalidValue => "invalid-value", 422, "A value is out of bounds";
    /// The bearer token or client certificate is missing or unknown.
    Unauthenticated => "unauthenticated", 401, "Who you are could not be established";
    /// The request's signature is missing a part, covers too little, or does not hold.
    SignatureInvalid => "signature-invalid", 401, "The request's signature does not hold";
    /// The request was signed too long ago, or in the future; the reply carries the coordinator's time in `tributary-time`.
    SignatureTime => "signature-time", 401, "The request's signature is of another time";
    /// The coordinator has already received a request with this signature; sign it again.
    SignatureReplayed => "signature-replayed", 401, "The request's signature was used before";
    /// The token's role is insufficient, or the resource belongs to another participant.
    Forbidden => "forbidden", 403, "This is not yours to do";
    /// The certificate was revoked.
    CertificateRevoked => "certificate-revoked", 403, "The participant's certificate was revoked";
    /// The certificate has expired; renew earlier, or enrol again.
    CertificateExpired => "certificate-expired", 403, "The participant's certificate has expired";
    /// The enrolment token is unknown, used or expired.
    EnrollmentRefused => "enrollment-refused", 403, "The enrolment token cannot be used";
    /// A signing request was sent to a coordinator whose participants' certificates come from an external authority.
    CertifiedElsewhere => "certified-elsewhere", 403, "Participants' certificates are issued elsewhere";
    /// The task, round, model, participant or path does not exist.
    NotFound => "not-found", 404, "There is no such thing here";
    /// The task has removed this model version; its number, digest and size are still known.
    VersionRemoved => "version-removed", 410, "The model version is kept no more";
    /// The resource has changed since the version in `If-Match`; the request had no effect.
    PreconditionFailed => "precondition-failed", 412, "It has changed since it was read";
    /// The path does not support the method.
    MethodNotAllowed => "method-not-allowed", 405, "The path does not take this method";
    /// A name is taken, or an idempotency key was used with another body.
    Conflict => "conflict", 409, "It contradicts what is stored";
    /// The round is not in the phase for this message.
    PhaseClosed => "phase-closed", 409, "The round is in another phase";
    /// The participant is not in this round's or attempt's cohort, or has given up its place.
    NotAssigned => "not-assigned", 403, "The participant has no place in this round";
    /// A different masked input is already stored.
    DifferentInput => "different-input", 409, "Another masked input of this participant is stored";
    /// A different secure aggregation message is already stored.
    DifferentMessage => "different-message", 409, "Another message of this participant is stored";
    /// A secure aggregation message is invalid; the detail begins with the protocol's own code.
    SessionRejected => "session-rejected", 422, "The protocol does not admit this message";
    /// The task's status does not allow it.
    TaskStatus => "task-status", 409, "The task's status does not allow it";
    /// The body does not have the length of the task's masked inputs.
    WrongLength => "wrong-length", 422, "The masked input has the wrong length";
    /// The body does not match its digest.
    DigestMismatch => "digest-mismatch", 422, "The body does not match its digest";
    /// The part belongs to an unknown manifest: send the manifest again.
    PartNotExpected => "part-not-expected", 409, "The part belongs to no announced upload";
    /// The body exceeds the route's limit.
    TooLarge => "too-large", 413, "The body is too large";
    /// The request exceeded the route's time limit.
    TooSlow => "too-slow", 408, "The request took too long";
    /// The peer exceeded its rate limit; `Retry-After` gives the waiting time.
    RateLimited => "rate-limited", 429, "Too many requests";
    /// The route does not accept this media type.
    UnsupportedMediaType => "unsupported-media-type", 415, "The body's media type is not taken here";
    /// The range lies outside the resource.
    RangeNotSatisfiable => "range-not-satisfiable", 416, "The range lies outside";
    /// This version of the contract is not supported.
    UnsupportedProtocol => "unsupported-protocol", 400, "This protocol version is not spoken here";
    /// Shutting down, or storage is unavailable or full; retry later, stored data is intact.
    Unavailable => "unavailable", 503, "Not able to serve this now";
    /// A fault of the coordinator.
    Internal => "internal", 500, "Something went wrong inside the coordinator";
}

impl ProblemType {
    /// The URI sent as `type`.
    #[must_use]
    pub fn uri(self) -> String {
        format!("{URI_PREFIX}{}", self.code())
    }

    /// Finds the type with this URI.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        let code = uri.strip_prefix(URI_PREFIX)?;
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Its URI, see [`ProblemType::uri`].
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// What was wrong in this case and what would be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Id of the request, as in the coordinator's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Every invalid field, for [`ProblemType::InvalidTask`]; the one that cannot be read, for [`ProblemType::MalformedRequest`] of a task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

impl Problem {
    /// The problem of a response without problem details, such as an intermediate proxy's.
    #[must_use]
    pub fn without_details(status: impl fmt::Display + Into<u16>, detail: Option<String>) -> Self {
        let (kind, title) = ("about:blank".to_owned(), format!("HTTP status {status}"));
        Self { kind, title, status: status.into(), detail, instance: None, errors: Vec::new() }
    }
}

/// One invalid field of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// Dotted path of the field in the body.
    pub field: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

impl Problem {
    #[must_use]
    pub fn new(kind: ProblemType, detail: impl Into<String>) -> Self {
        Self {
            kind: kind.uri(),
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: Some(detail.into()),
            instance: None,
            errors: Vec::new(),
        }
    }

    /// The type, if this version of the contract knows it.
    #[must_use]
    pub fn problem_type(&self) -> Option<ProblemType> {
        ProblemType::from_uri(&self.kind)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.title)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        for error in &self.errors {
            write!(f, "; {}: {}", error.field, error.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_uri_names_one_type_and_back() {
        let mut seen = std::collections::HashSet::new();
        for kind in ProblemType::ALL {
            assert!(seen.insert(kind.code()), "{} occurs twice", kind.code());
            assert_eq!(ProblemType::from_uri(&kind.uri()), Some(*kind));
            assert!((400..600).contains(&kind.status()));
        }
        assert_eq!(ProblemType::from_uri("urn:tributary:problem:unheard-of"), None);
        assert_eq!(ProblemType::from_uri("about:blank"), None);
    }
}
