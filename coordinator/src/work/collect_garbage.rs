//! Removes unused data: blobs without a row; expired check-ins, idempotency keys, nonces, sign-ins and reports of model servers; release
//! keys left by dead processes.
//!
//! Blobs are stored before their rows, so a young blob without a row is spared for a while. Blobs are shared by content (two participants
//! may send the same bytes). Only this module deletes them, after checking every row, unless the same bytes were stored again in the
//! meantime. One worker removes blobs at a time, and dooms them first: transactions cannot reference a doomed blob.

use std::time::Duration;

use federation::id::Digest;
use federation::time::Timestamp;
use futures_util::future::try_join_all;
use store::StoreError;
use uuid::Uuid;

use super::engine::lease::Lease;
use super::shred::{UnknownUses, collect_keys};
use super::{Environment, StepError};

/// Number of items removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub blobs: usize,
    pub check_ins: u32,
    pub idempotency_keys: u32,
    /// Keys of noised releases.
    pub release_keys: usize,
}

/// Detects a wall clock that jumped forward. After a jump, a blob dated by this machine whose row is about to be written seems old, and
/// records of removed blobs expire too early. Garbage collection then waits until the clock has kept pace for one interval.
pub(super) struct ClockPace {
    clock: Timestamp,
    elapsed: Duration,
}

impl ClockPace {
    /// Starts observing at time `clock`.
    pub(super) fn new(clock: Timestamp) -> Self {
        Self { clock, elapsed: Duration::ZERO }
    }

    /// Whether the clock, now at `clock`, has gained more than `tolerance` on the `elapsed` time since the start.
    pub(super) fn has_jumped_ahead(&mut self, clock: Timestamp, elapsed: Duration, tolerance: Duration) -> bool {
        let gained = clock.since(self.clock).saturating_sub(elapsed.saturating_sub(self.elapsed));
        *self = Self { clock, elapsed };
        gained > tolerance
    }
}

/// Collects once, at most [`super::WorkConfig::garbage_batch`] blobs; none while another worker removes blobs.
pub(super) async fn collect_garbage(
    env: &Environment,
    holder: Uuid,
    unknown: &UnknownUses,
) -> Result<Collected, StepError> {
    let now = env.clock.now();
    let (check_ins, idempotency_keys) = env
        .store
        .transact("expire rows", |tx| {
            Box::pin(async move {
                tx.forget_collected(ago(now, COLLECTED_KEPT)).await?;
                tx.forget_uploads().await?;
                tx.forget_nonces(now).await?;
                tx.forget_sign_ins(now).await?;
                tx.forget_model_servers(now).await?;
                tx.forget_model_uploads(now).await?;
                Ok::<_, StoreError>((tx.expire_check_ins(now).await?, tx.expire_idempotent(now).await?))
            })
        })
        .await?;
    let release_keys = collect_keys(env, unknown).await?;
    let mut lease = Lease::of_garbage(holder, env.config.lease_ttl);
    let blobs = match collect_blobs(env, &mut lease).await {
        Err(StepError::LeaseLost(_)) => 0,
        Err(error @ StepError::Stopped(_)) => return Err(error),
        collected => {
            lease.release(env).await?;
            collected?
        }
    };
    let collected = Collected { blobs, check_ins, idempotency_keys, release_keys };
    if collected != Collected::default() {
        tracing::debug!(blobs, check_ins, idempotency_keys, release_keys, "garbage collected");
        metrics::counter!("tributary_blobs_collected_total").increment(blobs as u64);
    }
    Ok(collected)
}

/// How long a removed blob is remembered: longer than the time between storing and referencing a blob.
const COLLECTED_KEPT: Duration = Duration::from_secs(600);
/// Maximum concurrent removals: the store may be remote.
const REMOVED_AT_ONCE: usize = 8;

fn ago(now: Timestamp, before: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(before.as_millis()).unwrap_or(i64::MAX)))
}

/// Dooms unreferenced blobs, removes them, and records their removal: see [`store::entity::doomed`].
async fn collect_blobs(env: &Environment, lease: &mut Lease) -> Result<usize, StepError> {
    lease.hold(env).await?;
    let mut old = env.blobs.list(env.config.garbage_grace).await?;
    // Read after the list, so that a row written since then is seen.
    let (needed, abandoned) = env
        .store
        .read("referenced blobs", |tx| {
            Box::pin(async move { Ok::<_, StoreError>((tx.referenced_blobs().await?, tx.abandoned_blobs().await?)) })
        })
        .await?;
    env.blobs.even_out(&needed).await?;
    old.retain(|digest| !needed.contains(digest) && !abandoned.contains(digest));
    old.truncate(env.config.garbage_batch);
    old.extend(abandoned);
    if old.is_empty() {
        return Ok(0);
    }
    let (held, candidates) = (&*lease, old.as_slice());
    let doomed = env.store.transact("doom blobs", |tx| {
        Box::pin(async move {
            let (_, now) = held.confirm(tx, &*env.clock).await?;
            Ok::<_, StepError>(tx.doom(candidates, now).await?)
        })
    });
    let doomed = doomed.await?;
    let removed = held.keep_during(env, remove(env, &doomed)).await?;
    let doomed = doomed.as_slice();
    env.store
        .transact("note collected blobs", |tx| {
            Box::pin(async move {
                let (_, ended) = held.confirm(tx, &*env.clock).await?;
                Ok::<_, StepError>(tx.set_collected(doomed, ended).await?)
            })
        })
        .await?;
    Ok(removed)
}

/// Removes these blobs, except those stored again.
async fn remove(env: &Environment, blobs: &[Digest]) -> Result<usize, StepError> {
    let mut removed = 0;
    for together in blobs.chunks(REMOVED_AT_ONCE) {
        env.fail_point.reached("collect_garbage: before blobs")?;
        let collected = together.iter().map(|&digest| env.blobs.collect(digest, env.config.garbage_grace));
        removed += try_join_all(collected).await?.into_iter().filter(|is_removed| *is_removed).count();
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_gains_on_time_has_jumped_ahead() {
        let (second, tolerance) = (Duration::from_secs(1), Duration::from_secs(30));
        let mut pace = ClockPace::new(Timestamp(0));
        let mut asked = |clock_s: i64, elapsed_s: u32| {
            pace.has_jumped_ahead(Timestamp(clock_s * 1000), second * elapsed_s, tolerance)
        };
        assert!(!asked(30, 30), "as fast as time");
        assert!(!asked(85, 60), "a correction of 25 s");
        assert!(asked(3_700, 90), "an hour ahead");
        assert!(!asked(3_730, 120), "and steady again");
        assert!(!asked(100, 150), "set back: blobs seem younger, nothing is lost");
        assert!(!asked(130, 180));
    }
}
