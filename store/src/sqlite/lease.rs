//! Leases in SQLite.

use std::time::Duration;

use async_trait::async_trait;
use federation::time::Timestamp;
use uuid::Uuid;

use super::SqliteTransaction;
use super::row::Bind as _;
use super::statement::query;
use crate::entity::lease::Leases;
use crate::error::Result;

#[async_trait]
impl Leases for SqliteTransaction {
    async fn acquire_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool> {
        self.change_one(
            query(
                "INSERT INTO lease (name, holder, acquired_at, expires_at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (name) DO UPDATE
                 SET holder = excluded.holder, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
                 WHERE lease.holder = excluded.holder OR lease.expires_at <= excluded.acquired_at
                    OR lease.acquired_at > excluded.acquired_at",
            )
            .bind(name)
            .bind(holder)
            .time(now)
            .time(now.plus(ttl)),
        )
        .await
    }

    async fn renew_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool> {
        self.change_one(
            query("UPDATE lease SET acquired_at = ?3, expires_at = ?4 WHERE name = ?1 AND holder = ?2")
                .bind(name)
                .bind(holder)
                .time(now)
                .time(now.plus(ttl)),
        )
        .await
    }

    async fn release_lease(&mut self, name: &str, holder: Uuid) -> Result<bool> {
        self.change_one(query("DELETE FROM lease WHERE name = ?1 AND holder = ?2").bind(name).bind(holder)).await
    }

    async fn clear_leases(&mut self) -> Result<()> {
        self.change(query("DELETE FROM lease")).await?;
        Ok(())
    }
}
