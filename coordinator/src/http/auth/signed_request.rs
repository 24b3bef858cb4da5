//! Replay protection: each signed request is accepted once.
//!
//! Recent nonces are in memory, which stops repetitions to the same process. Nonces of changing requests are also rows, shared by all
//! coordinators and kept across restarts. Reads and check-ins are not stored: each poll would cost a commit, and an attacker able to repeat
//! a request could as well delay its answer or hold the poll open. Senders may repeat any request (docs/PROTOCOL.md); a nonce prevents
//! repetition of an old request after newer ones. A delayed request may still arrive first after newer ones, within its minute.

use federation::id::Digest;
use federation::time::Timestamp;
use http::Method;
use http::request::Parts;
use wire::route;
use wire::signature::SignedRequest;

use crate::http::app::App;
use crate::http::reply::problem::{Error, Result};

/// A request with a verified signature; stored in its extensions.
#[derive(Clone, Copy)]
pub(in crate::http) struct Signed {
    /// SHA-256 of the signer's certificate and the nonce.
    nonce: Digest,
    expires: Timestamp,
    /// Whether the nonce must be stored for all coordinators of the database.
    is_recorded: bool,
}

impl Signed {
    pub(in crate::http) fn new(certificate: Digest, claim: &SignedRequest, parts: &Parts) -> Self {
        let nonce = crate::digest(&[&certificate.0[..], claim.nonce.as_bytes()].concat());
        let is_recorded = parts.method != Method::GET && parts.uri.path() != route::CHECK_IN;
        Self { nonce, expires: claim.expires, is_recorded }
    }

    /// Uses the request's nonce.
    ///
    /// # Errors
    /// [`Error::Replayed`] if the nonce was used before; errors of the store.
    pub(super) async fn use_once(self, app: &App) -> Result<()> {
        if !app.nonces.is_first(self.nonce, app.now()) {
            return Err(Error::Replayed);
        }
        let Self { nonce, expires, is_recorded } = self;
        if !is_recorded {
            return Ok(());
        }
        let is_first =
            app.store.transact("use_nonce", |tx| Box::pin(async move { tx.use_nonce(nonce, expires).await }));
        if is_first.await? { Ok(()) } else { Err(Error::Replayed) }
    }
}

/// Extension of every request on the listener for signed requests.
#[derive(Clone, Copy)]
pub(super) struct SignedAlone;
