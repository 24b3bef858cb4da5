//! Headers and media types.

/// Version of this contract that the sender uses; a request without it counts as version 1.
pub const PROTOCOL: &str = "tributary-protocol";
/// The version of everything but uploads in parts.
pub const PROTOCOL_VERSION: u32 = 1;
/// The version with uploads in parts: their manifests and parts are sent with it, so that a coordinator that does not know them
/// says so.
pub const PROTOCOL_VERSION_PARTS: u32 = 2;
/// The attempt of the round that a masked input is for; required on uploads.
pub const ATTEMPT: &str = "tributary-attempt";
/// SHA-256 of an upload's body, 64 hexadecimal digits; required on uploads.
pub const CONTENT_SHA256: &str = "tributary-content-sha256";
/// `secure_agg::messages::MaskedInput` in base64: the participant's signature on the body of a masked input; required on
/// uploads of rounds with secure aggregation.
pub const SIGNED_INPUT: &str = "tributary-signed-input";
/// A participant's certificate (DER) as a structured byte sequence, on a signed request ([`crate::signature`]). Not
/// `Client-Cert` (RFC 9440): proxies set that header, or remove it from what arrives from outside.
pub const CERTIFICATE: &str = "tributary-certificate";
/// The coordinator's time with its MAC: in answers to a signed request of another time, and in what is signed then.
pub const TIME: &str = "tributary-time";
/// The cookie of a sign-in; browsers take a cookie with this prefix for one host alone, over TLS alone.
pub const SIGN_IN_COOKIE: &str = "__Host-tributary";
/// Sent by the dashboard with every request that changes something: a page of another site cannot send it, so that a cookie
/// alone changes nothing. Its value is [`REQUEST_OF_DASHBOARD`].
pub const REQUEST: &str = "tributary-request";
/// The value of [`REQUEST`].
pub const REQUEST_OF_DASHBOARD: &str = "dashboard";
/// The trace that a request belongs to ([`crate::TraceContext`]).
pub const TRACEPARENT: &str = "traceparent";
/// A position in the log of events: in a request for a stream the one that it is continued after, in an answer one of which nothing
/// up to there is missing.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Makes a repeated `POST` return the first answer; 1 to 64 printable ASCII characters.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A masked input: words of the task's modulus, packed without gaps, least significant bit first.
pub const MEDIA_MASKED_INPUT: &str = "application/vnd.tributary.masked-input";
/// A secure aggregation message in its own encoding.
pub const MEDIA_SECURE_AGG: &str = "application/vnd.tributary.secure-agg";
/// Media type of a model version.
pub const MEDIA_SAFETENSORS: &str = "application/vnd.safetensors";
/// Media type of problem details (RFC 9457).
pub const MEDIA_PROBLEM: &str = "application/problem+json";
