//! Verifies signatures: sans I/O except for the clock.

use std::collections::HashMap;
use std::sync::Arc;

use federation::id::Digest;
use federation::time::Timestamp;
use http::HeaderMap;
use http::header;
use http::request::Parts;
use listener::{Peer, PoisonFreeMutex};
use rustls_pki_types::CertificateDer;
use wire::certificate::Issuers;
use wire::signature::{CONTENT_DIGEST, SignatureError, SignedRequest, WINDOW, server_name};

use crate::http::app::App;
use crate::http::reply::problem::{Error, Result};

/// Maximum number of cached certificates; some 20 MB.
const CERTIFICATES_MAX: usize = 100_000;
/// Context of the MAC in [`Gate::time`]; same length as all MAC contexts.
const PLACE: &[u8; 16] = b"tributary time 1";

pub(in crate::http) struct Gate {
    app: Arc<App>,
    /// Hosts and ports of this coordinator, as used by participants.
    names: Vec<String>,
    issuers: Issuers,
    /// Certificates with a verified chain, a property of their bytes. Their current validity is looked up for each request.
    certificates: PoisonFreeMutex<HashMap<Digest, Peer>>,
}

impl Gate {
    pub(in crate::http) fn new(app: Arc<App>) -> Self {
        let names = app.config.http.signed_names().iter().map(|name| server_name(name)).collect();
        let issuers = Issuers::new(vec![app.members.certificate().to_vec()]);
        Self { app, names, issuers, certificates: PoisonFreeMutex::default() }
    }

    pub(super) fn app(&self) -> &App {
        &self.app
    }

    /// Verifies the signature and returns the sender. The time is checked separately, by [`Self::check_time`]. The cheap conditions come
    /// first.
    pub(super) fn judge(&self, parts: &Parts, has_no_body: bool) -> Result<(Peer, SignedRequest)> {
        let server = server(parts)?;
        let claim = SignedRequest::read(parts, &server)?;
        if !self.names.contains(&server) {
            return Err(Error::SignedForAnother { server, names: self.names.join(", ") });
        }
        if claim.content_digest.is_none() && !has_no_body {
            return Err(SignatureError::Missing(CONTENT_DIGEST).into());
        }
        if claim.expires > claim.created.plus(WINDOW) {
            return Err(self.misdated(&claim));
        }
        let peer = self.holder(&claim.certificate)?;
        claim.verify(&peer.key)?;
        Ok((peer, claim))
    }

    /// Checks that a request was signed recently, by the signer's clock or by a time issued by us.
    pub(super) fn check_time(&self, claim: &SignedRequest) -> Result<()> {
        let now = self.app.now();
        let is_of_now = claim.created <= now.plus(WINDOW) && now < claim.expires;
        if is_of_now && claim.time.as_deref().is_none_or(|time| self.is_our_time(time, now)) {
            return Ok(());
        }
        Err(self.misdated(claim))
    }

    fn misdated(&self, claim: &SignedRequest) -> Error {
        Error::SignedAtAnotherTime { created: claim.created, now: self.app.now(), time: self.time() }
    }

    /// Our time with its MAC, for signers with a wrong clock: they date requests by it and sign it, too. The MAC prevents a balancer from
    /// obtaining requests dated in the future, to be sent later.
    pub(super) fn time(&self) -> String {
        let ms = self.app.now().0.to_string();
        let mac = self.app.sealer.mac(PLACE, ms.as_bytes());
        format!("{ms}.{}", hex::encode(mac))
    }

    /// Whether a coordinator issued this time, at most [`WINDOW`] ago.
    fn is_our_time(&self, time: &str, now: Timestamp) -> bool {
        let Some((ms, mac)) = time.split_once('.') else { return false };
        let (Ok(at), Ok(mac)) = (ms.parse(), hex::decode(mac)) else { return false };
        let at = Timestamp(at);
        now < at.plus(WINDOW) && at <= now.plus(WINDOW) && self.app.sealer.is_mac(PLACE, ms.as_bytes(), &mac)
    }

    /// The holder of a certificate of the members' authority.
    fn holder(&self, certificate: &[u8]) -> Result<Peer> {
        let fingerprint = crate::digest(certificate);
        if let Some(peer) = self.certificates.lock().get(&fingerprint) {
            return Ok(*peer);
        }
        self.issuers.read(certificate).map_err(Error::Uncertified)?;
        let peer = Peer::from_certificate(&CertificateDer::from_slice(certificate));
        let peer = peer.ok_or_else(|| Error::fault("a certificate that was read cannot be read"))?;
        self.certificates.with(|known| {
            if known.len() >= CERTIFICATES_MAX {
                known.clear();
            }
            known.insert(fingerprint, peer);
        });
        Ok(peer)
    }
}

/// Rejects a request with several `host` headers (RFC 9112 §3.2): the balancer and this process may use different ones.
///
/// # Errors
/// [`Error::Malformed`].
pub(super) fn check_host(headers: &HeaderMap) -> Result<()> {
    match headers.get_all(header::HOST).iter().count() {
        0 | 1 => Ok(()),
        several => Err(Error::Malformed(format!("the request has {several} headers `host`; it must have one"))),
    }
}

/// The host and port of a request, as received.
fn server(parts: &Parts) -> Result<String> {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = parts.uri.authority().map(http::uri::Authority::as_str).or(host);
    Ok(server_name(host.ok_or(SignatureError::Missing("header host"))?))
}
