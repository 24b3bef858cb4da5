//! Sessions in SQLite.

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Attempt;
use federation::time::Timestamp;

use super::SqliteTransaction;
use crate::entity::session::Sessions;
use crate::error::Result;

#[async_trait]
impl Sessions for SqliteTransaction {
    async fn put_session(&mut self, attempt: Attempt, phase: &[u8], at: Timestamp) -> Result<()> {
        self.must_change_one(
            "INSERT INTO session (task, number, attempt, updated_at, phase) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (task, number, attempt) DO UPDATE
             SET updated_at = excluded.updated_at, phase = excluded.phase",
            (attempt, at, phase),
        )
        .await
    }

    async fn session(&mut self, attempt: Attempt) -> Result<Option<Bytes>> {
        self.find("SELECT phase FROM session WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }

    async fn delete_session(&mut self, attempt: Attempt) -> Result<bool> {
        self.change_one("DELETE FROM session WHERE task = ?1 AND number = ?2 AND attempt = ?3", attempt).await
    }
}
