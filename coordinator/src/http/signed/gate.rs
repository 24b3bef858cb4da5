//! Judges signatures: sans I/O but for the clock.

use std::collections::HashMap;
use std::sync::Arc;

use federation::id::Digest;
use federation::time::Timestamp;
use http::header;
use http::request::Parts;
use rustls_pki_types::CertificateDer;
use wire::certificate::Issuers;
use wire::signature::{CONTENT_DIGEST, SignatureError, SignedRequest, WINDOW, server_name};

use crate::guarded::Guarded;
use crate::http::app::App;
use crate::http::problem::{Error, Result};
use crate::identity::Peer;

/// Maximum number of remembered certificates; some 20 MB.
const CERTIFICATES_MAX: usize = 100_000;
/// What [`Gate::time`] authenticates; as long as all places of a MAC.
const PLACE: &[u8; 16] = b"tributary time 1";

/// What a signature must be of to count.
pub(in crate::http) struct Gate {
    app: Arc<App>,
    /// Names and ports by which participants reach this coordinator.
    names: Vec<String>,
    issuers: Issuers,
    /// Certificates whose chain was verified: it is a property of their bytes. Whether they count is looked up each time.
    certificates: Guarded<HashMap<Digest, Peer>>,
}

impl Gate {
    pub(in crate::http) fn new(app: Arc<App>) -> Self {
        let names = app.config.http.signed_names().iter().map(|name| server_name(name)).collect();
        let issuers = Issuers::new(vec![app.members.certificate().to_vec()]);
        Self { app, names, issuers, certificates: Guarded::default() }
    }

    pub(super) fn app(&self) -> &App {
        &self.app
    }

    /// The sender of a signed request, whenever it was signed: [`Self::check_time`]. The cheap conditions come first.
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

    /// Whether a request was signed at about this time, by the signer's clock, or by ours as we told it.
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

    /// Our time for those whose clock is wrong: they date requests by it and sign it, too. Its MAC says that a coordinator told
    /// it: so a balancer cannot have requests dated for later days, on which it would send them.
    pub(super) fn time(&self) -> String {
        let ms = self.app.now().0.to_string();
        let mac = self.app.sealer.mac(PLACE, ms.as_bytes());
        format!("{ms}.{}", hex::encode(mac))
    }

    /// Whether one of us told this time, at most [`WINDOW`] ago.
    fn is_our_time(&self, time: &str, now: Timestamp) -> bool {
        let Some((ms, mac)) = time.split_once('.') else { return false };
        let (Ok(at), Ok(mac)) = (ms.parse(), hex::decode(mac)) else { return false };
        let at = Timestamp(at);
        now < at.plus(WINDOW) && at <= now.plus(WINDOW) && self.app.sealer.is_mac(PLACE, ms.as_bytes(), &mac)
    }

    /// The holder of a certificate of members' authority.
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

/// The host and port that a request is for, as it arrived.
fn server(parts: &Parts) -> Result<String> {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = parts.uri.authority().map(http::uri::Authority::as_str).or(host);
    Ok(server_name(host.ok_or(SignatureError::Missing("header host"))?))
}
