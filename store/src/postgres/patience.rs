//! Timeouts for a silent server: packets may vanish without an error.
//!
//! sqlx leaves socket options at their defaults, so only a timeout detects a dead connection. The server is configured
//! to probe its clients, and to roll back stalled transactions, which would hold their locks if the client is gone or
//! stopped. The probes also keep idle connections alive in middleboxes.

use std::future::Future;
use std::time::Duration;

use sqlx::AssertSqlSafe;

use crate::error::{Result, StoreError};

/// Waits for a server in silence.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Timeout of making a connection, and of an answer without work.
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

    /// Settings of each new connection. After half a minute of silence the server probes the client, with the same timeout. It
    /// rolls back a transaction that waits for its client for twice the client's own timeout.
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

/// Waits for an answer until the limit.
///
/// # Errors
/// `Unreachable`.
pub(super) async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> Result<T> {
    let silent = |_| StoreError::Unreachable(format!("no answer within {} s", limit.as_secs_f64()));
    tokio::time::timeout(limit, answer).await.map_err(silent)
}
