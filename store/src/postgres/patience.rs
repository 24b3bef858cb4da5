//! How long a server is waited for that says nothing: packets may vanish without anybody being told.
//!
//! sqlx sets no options of sockets, so nobody on this side learns of a dead connection but by waiting. The server is asked to look
//! for itself whether its clients are still there, and to undo transactions that do not go on: one of a client that is gone, or was
//! stopped, holds its locks until then. Its questions also keep connections known to whatever is between, which may forget idle ones.

use std::future::Future;
use std::time::Duration;

use sqlx::AssertSqlSafe;

use crate::error::{Result, StoreError};

/// Waits for a server in silence.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// How long a connection may take to be made, and an answer that needs no work.
    pub(super) answer: Duration,
    /// How long a free connection is waited for.
    pub(super) turn: Duration,
    /// How long a statement of a transaction may take.
    pub(super) statement: Duration,
    /// How long after a connection was lost its transaction may be begun again.
    pub(super) loss: Duration,
}

impl Patience {
    pub(super) const USUAL: Self = Self {
        answer: Duration::from_secs(10),
        turn: Duration::from_secs(30),
        statement: Duration::from_secs(60),
        loss: Duration::from_secs(15),
    };

    /// What each new connection has the server do. After half a minute of silence it asks whether the client is there, and gives it
    /// as long to answer; a transaction that waits for its client for twice as long as the client would wait for it is undone.
    pub(super) fn settings(self) -> AssertSqlSafe<String> {
        let stopped_ms = (self.statement * 2).as_millis();
        AssertSqlSafe(format!(
            "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3;
             SET tcp_user_timeout = 60000; SET idle_in_transaction_session_timeout = {stopped_ms}"
        ))
    }

    /// The same waits, so many times shorter.
    #[cfg(feature = "conformance")]
    pub(super) fn divided_by(self, times: u32) -> Self {
        let Self { answer, turn, statement, loss } = self;
        Self { answer: answer / times, turn: turn / times, statement: statement / times, loss: loss / times }
    }
}

/// What an answer is, if it comes in time.
///
/// # Errors
/// `Unreachable`.
pub(super) async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> Result<T> {
    let silent = |_| StoreError::Unreachable(format!("no answer within {} s", limit.as_secs_f64()));
    tokio::time::timeout(limit, answer).await.map_err(silent)
}
