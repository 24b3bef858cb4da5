//! Signing requests.

use federation::id::Digest;
use federation::time::Timestamp;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use ring::signature::Ed25519KeyPair;

use super::base::signature_base;
use super::content_digest::{CONTENT_DIGEST, content_digest, sha256};
use super::profile::{DERIVED, LABEL, SIGNATURE, SIGNATURE_INPUT, WINDOW, is_covered};
use crate::headers::CERTIFICATE;

/// A key that cannot sign requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key is not Ed25519 in PKCS #8")]
pub struct BadKey;

/// A participant's key with its certificate, for signing requests. It implements neither `Debug` nor `Clone`.
pub struct RequestKey {
    pair: Ed25519KeyPair,
    certificate: HeaderValue,
    keyid: Digest,
}

impl RequestKey {
    /// From the key in PKCS #8 and its certificate in DER.
    ///
    /// # Errors
    /// [`BadKey`].
    pub fn new(pkcs8: &[u8], certificate: &[u8]) -> Result<Self, BadKey> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).map_err(|_| BadKey)?;
        let header = visible(format!(":{}:", crate::base64::encode(certificate)));
        Ok(Self { pair, certificate: header, keyid: sha256(certificate) })
    }

    /// Signs a request for `server` (see [`signature_base`]) in its final form, with its headers and the SHA-256 of its body, if any.
    /// `nonce` must be fresh.
    pub fn sign(&self, parts: &mut Parts, server: &str, body: Option<Digest>, created: Timestamp, nonce: [u8; 16]) {
        if let Some(sha256) = body {
            parts.headers.insert(HeaderName::from_static(CONTENT_DIGEST), visible(content_digest(sha256)));
        }
        let mut components = DERIVED.map(str::to_owned).to_vec();
        let covered = parts.headers.keys().map(|name| name.as_str()).filter(|name| is_covered(name));
        components.extend(covered.map(str::to_owned));
        let listed: Vec<_> = components.iter().map(|name| format!("\"{name}\"")).collect();
        let seconds = created.0.div_euclid(1000);
        let parameters = format!(
            "({});created={seconds};expires={};nonce=\"{}\";keyid=\"{}\";alg=\"ed25519\"",
            listed.join(" "),
            seconds.saturating_add_unsigned(WINDOW.as_secs()),
            crate::base64::encode(&nonce),
            self.keyid,
        );
        let base = signature_base(parts, server, &components, &parameters);
        let base = base.expect("headers of the contract are visible ASCII, and the request has what it lists");
        let signature = crate::base64::encode(self.pair.sign(base.as_bytes()).as_ref());
        let headers = &mut parts.headers;
        headers.insert(HeaderName::from_static(CERTIFICATE), self.certificate.clone());
        headers.insert(HeaderName::from_static(SIGNATURE_INPUT), visible(format!("{LABEL}={parameters}")));
        headers.insert(HeaderName::from_static(SIGNATURE), visible(format!("{LABEL}=:{signature}:")));
    }
}

fn visible(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("base64, numbers and names are visible ASCII")
}
