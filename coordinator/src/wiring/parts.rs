//! Inputs of a coordinator, and reasons for a failed start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use federation::time::{Clock, Timestamp};
use store::StoreError;

use crate::config::DatabaseError;
use crate::identity::AuthorityError;
use crate::observe::CollectorError;
use crate::oidc::OidcError;
use crate::privacy::seal::SealError;
use crate::process::lock::LockError;
use crate::random::Random;
use crate::step_error::StepError;

/// A coordinator's inputs from its environment.
#[derive(Clone)]
pub struct Parts {
    /// For deadlines, expiry and histories.
    pub clock: Arc<dyn Clock>,
    /// For ids, tokens, draws and jitter.
    pub random: Random,
}

impl Parts {
    /// The system's clock and randomness.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn system() -> Result<Self, StartError> {
        let random = Random::from_system().map_err(|_| StartError::Randomness)?;
        Ok(Self { clock: Arc::new(SystemClock), random })
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        // A clock before 1970 was never set; time then starts at 0.
        Timestamp(0).plus(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
    }
}

/// An error's text with its cause.
fn told(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Reasons for a failed start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the operating system gives no randomness")]
    Randomness,
    /// Another coordinator uses the same data.
    #[error(transparent)]
    Locked(#[from] LockError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Rows or blobs cannot be opened.
    #[error("cannot open the store: {0}")]
    Store(#[from] StoreError),
    /// The stored state cannot be read.
    #[error("cannot look at what is stored: {0}")]
    Look(#[from] StepError),
    /// The certificate authority cannot be opened.
    #[error("cannot open the certificate authority: {0}")]
    Authority(#[from] AuthorityError),
    /// The identity provider of operators is unreachable.
    #[error("cannot set [oidc] up: {0}")]
    Oidc(#[from] OidcError),
    /// The bucket of release keys and ends of ledgers is unusable.
    #[error("cannot use identity.seal_url: {}", told(.0))]
    Apart(StoreError),
    /// The sealing key is unavailable.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The database was used with another key of this name.
    #[error(
        "this database, and the other coordinators on it, have another {0}: give this one the file that they have, or a database of its \
         own; if it was replaced everywhere, remove its row from the table `fingerprint`"
    )]
    Differs(&'static str),
    /// The database was used with a key of this name, now missing.
    #[error(
        "{path} is missing, and this database was used with it ({what}): put it back before the start. If it is lost for good, \
         docs/operations/rotation.md says how another takes its place, and what that ends"
    )]
    Lost { what: &'static str, path: PathBuf },
    /// The device selection failed.
    #[error("cannot choose a device: {0}")]
    Device(String),
    /// The trace collector is unusable.
    #[error(transparent)]
    Traces(#[from] CollectorError),
    /// A certificate or key is unusable.
    #[error("cannot set TLS up: {0}")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The address is unavailable.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}
