//! Leases: who may do a piece of background work just now.

use std::time::Duration;

use async_trait::async_trait;
use federation::time::Timestamp;
use uuid::Uuid;

use crate::error::Result;

/// Takes, prolongs and gives up leases.
///
/// A lease whose start lies in the future counts as expired: the clock was set back since, and by that clock the lease
/// might never end.
#[async_trait]
pub trait Leases {
    /// Takes the lease if it is free, expired, or the holder's already. False if somebody else holds it.
    async fn acquire_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool>;

    /// Prolongs the holder's lease, also an expired one that nobody has taken. False if it is not the holder's any more.
    async fn renew_lease(&mut self, name: &str, holder: Uuid, now: Timestamp, ttl: Duration) -> Result<bool>;

    /// Gives the lease up. False if it was not the holder's.
    async fn release_lease(&mut self, name: &str, holder: Uuid) -> Result<bool>;

    /// Removes every lease: for a start at which no other process can hold one.
    async fn clear_leases(&mut self) -> Result<()>;
}
