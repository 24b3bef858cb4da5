//! Leases: the exclusive right to a piece of background work.

use std::time::Duration;

use async_trait::async_trait;
use federation::time::Timestamp;
use uuid::Uuid;

use crate::error::Result;

/// Acquires, renews and releases leases.
///
/// A lease whose start lies in the future counts as expired: the clock was set back, and the lease might never end.
#[async_trait]
pub trait Leases {
    /// Acquires the lease if it is free, expired, or already the holder's. False if another holder has it.
    async fn acquire_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool>;

    /// Renews the holder's lease, even an expired one that nobody has acquired. False if it is no longer the holder's.
    async fn renew_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool>;

    /// Releases the lease. False if it was not the holder's.
    async fn release_lease(&mut self, name: &str, holder: Uuid) -> Result<bool>;

    /// Removes every lease: for a start at which no other process can hold one.
    async fn clear_leases(&mut self) -> Result<()>;
}
