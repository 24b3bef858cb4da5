//! What a coordinator is started with, and why it may not start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use federation::time::{Clock, Timestamp};
use store::StoreError;

use crate::identity::AuthorityError;
use crate::lock::LockError;
use crate::random::Random;
use crate::seal::SealError;
use crate::step_error::StepError;

/// What a coordinator takes from the world around it.
#[derive(Clone)]
pub struct Parts {
    /// Deadlines, expiry, histories.
    pub clock: Arc<dyn Clock>,
    /// Ids, tokens, draws, jitter.
    pub random: Random,
}

impl Parts {
    /// The system's clock and randomness.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn system() -> Result<Self, StartError> {
        let random = Random::from_system().map_err(|_| StartError::Randomness)?;
        Ok(Self { clock: Arc::new(SystemClock), random })
    }
}

/// The wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the wall clock for everybody else")]
    fn now(&self) -> Timestamp {
        // Before 1970 only if the clock was never set; then time begins there.
        Timestamp(0).plus(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
    }
}

/// Why a coordinator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No randomness.
    #[error("the operating system gives no randomness")]
    Randomness,
    /// Another coordinator works on the same data.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// Rows or blobs cannot be opened.
    #[error("cannot open the store: {0}")]
    Store(#[from] StoreError),
    /// What is stored cannot be looked at.
    #[error("cannot look at what is stored: {0}")]
    Look(#[from] StepError),
    /// No authority.
    #[error("cannot open the certificate authority: {0}")]
    Authority(#[from] AuthorityError),
    /// No sealing key.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// No device that sums.
    #[error("cannot choose a device: {0}")]
    Device(String),
    /// A certificate or key that cannot be used.
    #[error("cannot set TLS up: {0}")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}
