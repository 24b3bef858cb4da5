//! The parts of a signed token in compact form, RFC 7515 §7.1.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::refusal::Refusal;
use super::unambiguous::is_unambiguous;
use crate::config::SigningAlgorithm;

/// A token whose signature has not been verified.
pub(super) struct Token<'t> {
    pub(super) algorithm: SigningAlgorithm,
    pub(super) kid: String,
    pub(super) signed: &'t str,
    pub(super) signature: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<Value>,
    /// Critical extensions, all unsupported.
    crit: Option<Value>,
}

impl<'t> Token<'t> {
    /// Parses a token signed with one of these algorithms.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn read(text: &'t str, accepted: &[SigningAlgorithm]) -> Result<Self, Refusal> {
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let (signed, signature) = text.rsplit_once('.').ok_or(Refusal::Malformed("it has not three parts"))?;
        let (header, payload) = signed.split_once('.').ok_or(Refusal::Malformed("it has not three parts"))?;
        let header = decoded(header).filter(|bytes| is_unambiguous(bytes));
        let header: Header = header
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or(Refusal::Malformed("its header is no JSON with an algorithm, or has a member twice"))?;
        let algorithm = header.alg.parse().ok().filter(|algorithm| accepted.contains(algorithm)).ok_or_else(|| {
            let names: Vec<_> = accepted.iter().map(|algorithm| algorithm.as_str()).collect();
            Refusal::Algorithm(names.join(", "))
        })?;
        if header.crit.is_some() {
            return Err(Refusal::Malformed("its header asks for extensions (crit)"));
        }
        let kid = match header.kid {
            Some(Value::String(kid)) if !kid.is_empty() => kid,
            Some(_) | None => return Err(Refusal::NoKeyNamed),
        };
        let payload = decoded(payload).ok_or(Refusal::Malformed("its claims are not in base64url"))?;
        let signature = decoded(signature).ok_or(Refusal::Malformed("its signature is not in base64url"))?;
        Ok(Self { algorithm, kid, signed, signature, payload })
    }
}
