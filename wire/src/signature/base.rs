//! The bytes that are signed (RFC 9421 §2.5).

use std::fmt::Write as _;

use http::header::HeaderMap;
use http::request::Parts;

use super::error::SignatureError;

/// The signature base of a request for `server` ([`super::server_name`]): a line for each of `components`, in their order, and `parameters`, the inner list as it is serialized in `Signature-Input`.
///
/// # Errors
/// [`SignatureError::Component`] for one that the request does not have, [`SignatureError::Malformed`] for a header that is not
/// visible ASCII.
pub fn signature_base(
    parts: &Parts,
    server: &str,
    components: &[String],
    parameters: &str,
) -> Result<String, SignatureError> {
    let mut base = String::with_capacity(512);
    for name in components {
        let value = match name.as_str() {
            "@method" => parts.method.as_str().to_owned(),
            "@authority" => server.to_owned(),
            "@path" => parts.uri.path().to_owned(),
            "@query" => format!("?{}", parts.uri.query().unwrap_or_default()),
            name if name.starts_with('@') => return Err(SignatureError::Component(name.to_owned())),
            name => value(&parts.headers, name)?.ok_or_else(|| SignatureError::Component(name.to_owned()))?,
        };
        let _ = writeln!(base, "\"{name}\": {value}");
    }
    let _ = write!(base, "\"@signature-params\": {parameters}");
    Ok(base)
}

/// All values of a header, without space around them, joined by commas (RFC 9421 §2.1).
pub(super) fn value(headers: &HeaderMap, name: &str) -> Result<Option<String>, SignatureError> {
    let mut joined: Option<String> = None;
    for value in headers.get_all(name) {
        let value = value.to_str().map_err(|_| SignatureError::Malformed("a header"))?.trim_ascii();
        match &mut joined {
            Some(joined) => joined.extend([", ", value]),
            None => joined = Some(value.to_owned()),
        }
    }
    Ok(joined)
}
