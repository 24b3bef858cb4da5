//! Leases: the exclusive right to a piece of background work.
//!
//! A lease whose start lies in the future counts as expired: the clock was set back, and the lease might never end.

use std::time::Duration;

use federation::time::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Acquires the lease if it is free, expired, or already the holder's. False if another holder has it.
    pub async fn acquire_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool> {
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

    /// Renews the holder's lease, even an expired one that nobody has acquired. False if it is no longer the holder's.
    pub async fn renew_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool> {
        self.change_one(
            "UPDATE lease SET acquired_at = ?3, expires_at = ?4 WHERE name = ?1 AND holder = ?2",
            (name, holder, now, now.plus(ttl)),
        )
        .await
    }

    /// Releases the lease. False if it was not the holder's.
    pub async fn release_lease(&mut self, name: &str, holder: Uuid) -> Result<bool> {
        self.change_one("DELETE FROM lease WHERE name = ?1 AND holder = ?2", (name, holder)).await
    }

    /// Removes every lease: for a start at which no other process can hold one.
    pub async fn clear_leases(&mut self) -> Result<()> {
        self.change_all("DELETE FROM lease", ()).await
    }
}
