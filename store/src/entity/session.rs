//! Sessions: the state of an attempt's secure aggregation, in the encoding of `secure-agg`.

use bytes::Bytes;
use federation::id::Attempt;
use federation::round::RoundState;
use federation::time::Timestamp;

use crate::error::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Stores the phase of an attempt's session, replacing the previous one. While there is one, the attempt needs its
    /// participants even after their inputs: see [`Transaction::pending_assignment`].
    ///
    /// # Errors
    /// `Conflict` if the attempt does not exist.
    pub async fn put_session(&mut self, attempt: Attempt, phase: &[u8], at: Timestamp) -> Result<()> {
        self.must_change_one(
            "INSERT INTO session (task, number, attempt, updated_at, phase) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (task, number, attempt) DO UPDATE
             SET updated_at = excluded.updated_at, phase = excluded.phase",
            (attempt, at, phase),
        )
        .await
    }

    /// The phase of an attempt's session.
    pub async fn session(&mut self, attempt: Attempt) -> Result<Option<Bytes>> {
        self.find("SELECT phase FROM session WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }

    /// The state of an attempt, with the phase of its session if it has one; `None` if the attempt does not exist.
    pub async fn state_and_session(&mut self, attempt: Attempt) -> Result<Option<(RoundState, Option<Bytes>)>> {
        self.find(
            "SELECT round.state, session.phase
             FROM round LEFT JOIN session
               ON session.task = round.task AND session.number = round.number AND session.attempt = round.attempt
             WHERE round.task = ?1 AND round.number = ?2 AND round.attempt = ?3",
            attempt,
        )
        .await
    }

    /// Removes it and overwrites its bytes, as [`Transaction::clear_messages`] does. Returns false if it was missing.
    pub async fn delete_session(&mut self, attempt: Attempt) -> Result<bool> {
        self.change_one("DELETE FROM session WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }
}
