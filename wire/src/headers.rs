//! Headers and media types.

/// Version of this contract that the sender uses; a request without it counts as version 1.
pub const PROTOCOL: &str = "tributary-protocol";
/// Version of all requests except uploads in parts.
pub const PROTOCOL_VERSION: u32 = 1;
/// Version of requests that upload in parts: manifests and parts carry it, so that older coordinators reject them explicitly.
pub const PROTOCOL_VERSION_PARTS: u32 = 2;
/// The attempt that a masked input belongs to; required on uploads.
pub const ATTEMPT: &str = "tributary-attempt";
/// SHA-256 of an upload's body, 64 hexadecimal digits; required on uploads.
pub const CONTENT_SHA256: &str = "tributary-content-sha256";
/// `secure_agg::messages::MaskedInput` in base64: the participant's signature on the body of a masked input; required on
/// uploads of rounds with secure aggregation.
pub const SIGNED_INPUT: &str = "tributary-signed-input";
/// SHA-256 of the record of a version that the update comes from ([`crate::provenance::SignedProvenance::sha256`]), 64 hexadecimal digits;
/// optional on the request that has a masked input count.
pub const RECORD_BELOW: &str = "tributary-record-below";
/// A participant's certificate (DER) as a structured byte sequence, on a signed request ([`crate::signature`]). Not `Client-Cert` (RFC
/// 9440): proxies set that header, or strip it from external requests.
pub const CERTIFICATE: &str = "tributary-certificate";
/// The coordinator's time with its MAC. Sent in replies to a signed request outside the time window, and covered by the repeated request's
/// signature.
pub const TIME: &str = "tributary-time";
/// The sign-in cookie; with this prefix, browsers bind a cookie to one host and send it only over TLS.
pub const SIGN_IN_COOKIE: &str = "__Host-tributary";
/// The dashboard sends it with every request that changes state. Pages of other sites cannot send it, so a cookie alone cannot authorize a
/// change. Its value is [`REQUEST_OF_DASHBOARD`].
pub const REQUEST: &str = "tributary-request";
/// The value of [`REQUEST`].
pub const REQUEST_OF_DASHBOARD: &str = "dashboard";
/// The trace of a request ([`crate::TraceContext`]).
pub const TRACEPARENT: &str = "traceparent";
/// A position in the event log. A request for a stream continues after it; a reply contains every event up to it.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Makes a repeated `POST` return the first answer; 1 to 64 printable ASCII characters.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A masked input: words of the task's modulus, packed without gaps, least significant bit first.
pub const MEDIA_MASKED_INPUT: &str = "application/vnd.tributary.masked-input";
/// A secure aggregation message in its own encoding.
pub const MEDIA_SECURE_AGG: &str = "application/vnd.tributary.secure-agg";
/// Media type of a model version.
pub const MEDIA_SAFETENSORS: &str = "application/vnd.safetensors";
/// Arbitrary bytes.
pub const MEDIA_OCTETS: &str = "application/octet-stream";
/// Media type of problem details (RFC 9457).
pub const MEDIA_PROBLEM: &str = "application/problem+json";
