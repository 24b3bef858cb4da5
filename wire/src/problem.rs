//! Problem details (RFC 9457): the types of error a peer is told, as stable URIs.
//!
//! `title` and `status` belong to the type; `detail` says what was wrong this time and what would be right. A
//! [`ProblemType::Internal`] never carries a detail: what went wrong inside is in the coordinator's log, under `instance`.

use serde::{Deserialize, Serialize};

/// What every problem type's URI begins with.
pub const URI_PREFIX: &str = "urn:tributary:problem:";

macro_rules! problem_types {
    ($($(#[$doc:meta])* $variant:ident => $code:literal, $status:literal, $title:literal;)*) => {
        /// The kinds of problem. New ones may be added: a peer treats one it does not know by its HTTP status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemType {
            $($(#[$doc])* $variant,)*
        }

        impl ProblemType {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable code, the last part of the URI.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// The HTTP status it is sent with.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// What it is, in a few words that never change.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

problem_types! {
    /// The body or a parameter could not be read.
    MalformedRequest => "malformed-request", 400, "The request could not be read";
    /// A task specification that cannot work; `errors` names every field.
    InvalidTask => "invalid-task", 422, "The task cannot work as written";
    /// A body, header or path with a value that is out of bounds.
    InvalidValue => "invalid-value", 422, "A value is out of bounds";
    /// No bearer token or client certificate, or one that is not known.
    Unauthenticated => "unauthenticated", 401, "Who you are could not be established";
    /// The token's role does not allow it, or the resource belongs to another participant.
    Forbidden => "forbidden", 403, "This is not yours to do";
    /// The certificate was revoked.
    CertificateRevoked => "certificate-revoked", 403, "The participant's certificate was revoked";
    /// The certificate is past its end; renew it earlier next time, or enrol anew.
    CertificateExpired => "certificate-expired", 403, "The participant's certificate has expired";
    /// The enrolment token is unknown, used or expired.
    EnrollmentRefused => "enrollment-refused", 403, "The enrolment token cannot be used";
    /// A signing request, where somebody else gives participants their certificates and none is signed.
    CertifiedElsewhere => "certified-elsewhere", 403, "Participants' certificates are issued elsewhere";
    /// No such task, round, model, participant or path.
    NotFound => "not-found", 404, "There is no such thing here";
    /// The path exists, the method does not.
    MethodNotAllowed => "method-not-allowed", 405, "The path does not take this method";
    /// A name is taken, or an idempotency key came with another body.
    Conflict => "conflict", 409, "It contradicts what is stored";
    /// The round is not in the phase that takes this, any more or yet.
    PhaseClosed => "phase-closed", 409, "The round is in another phase";
    /// The participant was not drawn into this round (or attempt), or has given up its place.
    NotAssigned => "not-assigned", 403, "The participant has no place in this round";
    /// A masked input is stored already, and these are other bytes.
    DifferentInput => "different-input", 409, "Another masked input of this participant is stored";
    /// A message of secure aggregation is stored already, and these are other bytes.
    DifferentMessage => "different-message", 409, "Another message of this participant is stored";
    /// A message of secure aggregation that does not hold; the detail begins with the protocol's own code.
    SessionRejected => "session-rejected", 422, "The protocol does not admit this message";
    /// The task is over or in a status that does not allow it.
    TaskStatus => "task-status", 409, "The task's status does not allow it";
    /// The body has another length than the task's masked inputs have.
    WrongLength => "wrong-length", 422, "The masked input has the wrong length";
    /// The body is not what its digest says.
    DigestMismatch => "digest-mismatch", 422, "The body does not match its digest";
    /// Larger than the route takes.
    TooLarge => "too-large", 413, "The body is too large";
    /// Took longer than the route gives.
    TooSlow => "too-slow", 408, "The request took too long";
    /// More requests than one peer may make; `Retry-After` says when to come back.
    RateLimited => "rate-limited", 429, "Too many requests";
    /// The media type is not what the route takes.
    UnsupportedMediaType => "unsupported-media-type", 415, "The body's media type is not taken here";
    /// A range outside the resource.
    RangeNotSatisfiable => "range-not-satisfiable", 416, "The range lies outside";
    /// The contract's version is not spoken here.
    UnsupportedProtocol => "unsupported-protocol", 400, "This protocol version is not spoken here";
    /// Shutting down, or storage is away or full; nothing was lost, try again later.
    Unavailable => "unavailable", 503, "Not able to serve this now";
    /// Our fault.
    Internal => "internal", 500, "Something went wrong inside the coordinator";
}

impl ProblemType {
    /// The URI sent as `type`.
    #[must_use]
    pub fn uri(self) -> String {
        format!("{URI_PREFIX}{}", self.code())
    }

    /// The kind a URI names.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        let code = uri.strip_prefix(URI_PREFIX)?;
        Self::ALL.iter().copied().find(|kind| kind.code() == code)
    }
}

/// A problem as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// [`ProblemType::uri`].
    #[serde(rename = "type")]
    pub kind: String,
    /// [`ProblemType::title`].
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong this time and what would be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The request's id, to be found in the coordinator's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Every wrong field, for [`ProblemType::InvalidTask`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

/// One wrong field of a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// Dotted path.
    pub field: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

impl Problem {
    /// A problem of this kind.
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

    /// Its kind, if this version of the contract knows it.
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
