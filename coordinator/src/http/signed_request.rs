//! A signed request counts once.
//!
//! What was seen lately is in memory, so that a repetition is refused wherever it meets the same process. Requests that
//! change something are also rows, which all coordinators share and which survive a restart. Reading something again, and
//! checking in again, are no rows: they would cost every poll a commit, and whoever can repeat a request could as well hold
//! back its answer, or keep the poll itself open, for as long. Every request may be repeated by its sender anyhow
//! (docs/PROTOCOL.md); what a nonce prevents is that one that has come comes again after newer ones. One that was held back and never
//! came may still come after newer ones, within its minute.

use federation::id::Digest;
use federation::time::Timestamp;
use http::Method;
use http::request::Parts;
use wire::route;
use wire::signature::SignedRequest;

use super::app::App;
use super::problem::{Error, Result};

/// A request whose signature holds; in its extensions.
#[derive(Clone, Copy)]
pub(super) struct Signed {
    /// SHA-256 of its signer's certificate and its nonce.
    nonce: Digest,
    expires: Timestamp,
    /// Whether every coordinator over the same database has to know that it came.
    is_recorded: bool,
}

impl Signed {
    pub(super) fn new(certificate: Digest, claim: &SignedRequest, parts: &Parts) -> Self {
        let nonce = crate::digest(&[&certificate.0[..], claim.nonce.as_bytes()].concat());
        let is_recorded = parts.method != Method::GET && parts.uri.path() != route::CHECK_IN;
        Self { nonce, expires: claim.expires, is_recorded }
    }

    /// Uses the request's nonce.
    ///
    /// # Errors
    /// [`Error::Replayed`] if it was used before; those of the store.
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

/// In the extensions of every request that arrives where requests are signed.
#[derive(Clone, Copy)]
pub(super) struct SignedAlone;
