//! Servers of models, as they describe themselves: each report replaces the last one, and expires. The first report and
//! the end are events; expiry is not one.

use federation::event::{EventKind, Fact, Subject};
use federation::id::TaskId;
use federation::time::Timestamp;

use crate::error::Result;
use crate::transaction::Transaction;

/// Last report of a server of a task's model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelServer {
    pub task: TaskId,
    /// As it calls itself.
    pub name: String,
    /// The report as JSON, which this crate does not interpret.
    pub report: String,
    pub told_at: Timestamp,
    /// From then on it does not count.
    pub expires_at: Timestamp,
}

columns!(ModelServer { task, name, report, told_at, expires_at });

impl Transaction<'_> {
    /// Stores a server's report, replacing the previous one. Returns false and discards it if the server lacks a valid
    /// report and `most` others of its task have one at `told_at`.
    pub async fn put_model_server(&mut self, server: &ModelServer, most: u32) -> Result<bool> {
        let ModelServer { task, name, report, told_at, expires_at } = server;
        let known = "SELECT count(*) FROM model_server WHERE task = ?1 AND name = ?2 AND expires_at > ?3";
        let known: u64 = self.get(known, (*task, name, *told_at)).await?;
        let put = "INSERT INTO model_server (task, name, report, told_at, expires_at)
             SELECT ?1, ?2, ?3, ?4, ?5
             WHERE EXISTS (SELECT 1 FROM model_server WHERE task = ?1 AND name = ?2 AND expires_at > ?4)
                OR (SELECT count(*) FROM model_server WHERE task = ?1 AND expires_at > ?4) < ?6
             ON CONFLICT (task, name) DO UPDATE
             SET report = excluded.report, told_at = excluded.told_at, expires_at = excluded.expires_at";
        let is_stored = self.change_one(put, (*task, name, report, *told_at, *expires_at, most)).await?;
        if is_stored && known == 0 {
            self.note_of_server(*told_at, EventKind::ServerJoined, *task, name);
        }
        Ok(is_stored)
    }

    /// The servers of a task that count at `now`, by their names, from the one after `after` on.
    pub async fn model_servers(
        &mut self,
        task: TaskId,
        after: Option<&str>,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<ModelServer>> {
        self.list(
            "SELECT * FROM model_server WHERE task = ?1 AND name > ?2 AND expires_at > ?3 ORDER BY name LIMIT ?4",
            (task, after.unwrap_or_default(), now, limit),
        )
        .await
    }

    /// Removes the report of a server that stops at `at`. Returns false if it has no report.
    pub async fn remove_model_server(&mut self, task: TaskId, name: &str, at: Timestamp) -> Result<bool> {
        let is_removed =
            self.change_one("DELETE FROM model_server WHERE task = ?1 AND name = ?2", (task, name)).await?;
        if is_removed {
            self.note_of_server(at, EventKind::ServerLeft, task, name);
        }
        Ok(is_removed)
    }

    /// Removes reports that have expired by `now`; returns their number.
    pub async fn forget_model_servers(&mut self, now: Timestamp) -> Result<u32> {
        self.change("DELETE FROM model_server WHERE expires_at <= ?1", now).await
    }

    fn note_of_server(&mut self, at: Timestamp, kind: EventKind, task: TaskId, name: &str) {
        self.note_event(at, kind, Subject::Task(task), [("server", Fact::from(name))]);
    }
}
