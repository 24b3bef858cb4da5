//! Leases in SQLite.

use std::time::Duration;

use async_trait::async_trait;
use federation::time::Timestamp;
use uuid::Uuid;

use super::SqliteTransaction;
use crate::entity::lease::Leases;
use crate::error::Result;

#[async_trait]
impl Leases for SqliteTransaction {
    async fn acquire_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool> {
        self.change_one(
            "INSERT INTO lease (name, holder, acquired_at, expires_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE
             SET holder = excluded.holder, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
             WHERE lease.holder = excluded.holder OR lease.expires_at <= excluded.acquired_at
                OR lease.acquired_at > excluded.acquired_at",
            (name, holder, now, now.plus(ttl)),
        )
        .await
    }

    async fn renew_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool> {
        self.change_one(
            "UPDATE lease SET acquired_at = ?3, expires_at = ?4 WHERE name = ?1 AND holder = ?2",
            (name, holder, now, now.plus(ttl)),
        )
        .await
    }

    async fn release_lease(&mut self, name: &str, holder: Uuid) -> Result<bool> {
        self.change_one("DELETE FROM lease WHERE name = ?1 AND holder = ?2", (name, holder)).await
    }

    async fn clear_leases(&mut self) -> Result<()> {
        self.change_all("DELETE FROM lease", ()).await
    }
}
