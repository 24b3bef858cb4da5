//! Leases: the exclusive right to a piece of background work.
//!
//! Clocks of processes may differ by as much as a lease lasts: one whose start lies farther in the future counts as expired, since
//! the clock was set back, and the lease might never end.

use std::time::Duration;

use federation::time::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Acquires the lease if it is free, expired, or already the holder's. Returns its token, which differs from those
    /// of all earlier acquisitions. A writer under the lease renews it by that token in the same transaction, and fails
    /// if the lease was acquired or released since. Returns `None` if another holder has it.
    pub async fn acquire_lease(
        &mut self,
        name: &str,
        holder: Uuid,
        now: Timestamp,
        ttl: Duration,
    ) -> Result<Option<u64>> {
        self.change_returning(
            "INSERT INTO lease (name, holder, token, acquired_at, expires_at) VALUES (?1, ?2, 1, ?3, ?4)
             ON CONFLICT (name) DO UPDATE
             SET holder = excluded.holder, token = lease.token + 1, acquired_at = excluded.acquired_at,
                 expires_at = excluded.expires_at
             WHERE lease.holder = excluded.holder OR lease.expires_at <= excluded.acquired_at
                OR lease.acquired_at > excluded.expires_at
             RETURNING token",
            (name, holder, now, now.plus(ttl)),
        )
        .await
    }

    /// Renews the lease that was acquired with this token, even an expired one that was not acquired since. False if
    /// it was acquired again or released.
    pub async fn renew_lease(&mut self, name: &str, token: u64, now: Timestamp, ttl: Duration) -> Result<bool> {
        self.change_one(
            "UPDATE lease SET acquired_at = ?3, expires_at = ?4 WHERE name = ?1 AND token = ?2",
            (name, token, now, now.plus(ttl)),
        )
        .await
    }

    /// Releases the lease that was acquired with this token. False if it is another's, or was released.
    pub async fn release_lease(&mut self, name: &str, token: u64) -> Result<bool> {
        // The row stays, or tokens would begin anew.
        self.change_one(
            "UPDATE lease SET token = token + 1, expires_at = acquired_at WHERE name = ?1 AND token = ?2",
            (name, token),
        )
        .await
    }

    /// The token of the last acquisition or release of the lease; `None` before the first.
    pub async fn lease_token(&mut self, name: &str) -> Result<Option<u64>> {
        self.find("SELECT token FROM lease WHERE name = ?1", name).await
    }

    /// Releases every lease: for a start at which all other processes have stopped. Returns how many were held.
    pub async fn clear_leases(&mut self) -> Result<u32> {
        let held = "UPDATE lease SET token = token + 1, expires_at = acquired_at WHERE expires_at > acquired_at";
        self.change(held, ()).await
    }
}
