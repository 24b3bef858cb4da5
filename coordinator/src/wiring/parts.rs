//! Inputs of a coordinator, and reasons it does not start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use federation::time::{Clock, Timestamp};
use store::StoreError;

use crate::config::DatabaseError;
use crate::identity::AuthorityError;
use crate::lock::LockError;
use crate::observe::CollectorError;
use crate::oidc::OidcError;
use crate::random::Random;
use crate::seal::SealError;
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
    /// If the operating system provides no randomness.
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
        // Before 1970 only if the clock was never set; then time starts there.
        Timestamp(0).plus(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
    }
}

/// What an error says, with its cause.
fn told(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Reasons a coordinator did not start.
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
    /// The provider of operators' identities cannot be asked.
    #[error("cannot set [oidc] up: {0}")]
    Oidc(#[from] OidcError),
    /// The bucket of keys of releases and ends of ledgers cannot be used.
    #[error("cannot use identity.seal_url: {}", told(.0))]
    Apart(StoreError),
    /// There is no sealing key.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Other coordinators on this database have another one of these.
    #[error(
        "the other coordinators on this database have another {0}: give all of them the same files, or this one a database of its \
         own; if it was replaced everywhere, remove its row from the table `fingerprint`"
    )]
    Differs(&'static str),
    /// No device can be selected.
    #[error("cannot choose a device: {0}")]
    Device(String),
    /// The collector of traces cannot be used.
    #[error(transparent)]
    Traces(#[from] CollectorError),
    /// A certificate or key is unusable.
    #[error("cannot set TLS up: {0}")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}
