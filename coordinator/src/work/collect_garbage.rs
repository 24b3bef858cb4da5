//! Removes what nothing needs any more: blobs without a row, check-ins and idempotency keys that have expired, keys of
//! releases whose process died before it destroyed them.
//!
//! Blobs come before their rows, so a young blob without a row is most likely about to get one: it is spared for a while.
//! Blobs are shared by content (two participants may send the same bytes), so this is the only place that deletes them,
//! only after looking at every row, and not if the same bytes were stored again meanwhile.

use std::time::Duration;

use federation::time::Timestamp;
use store::StoreError;

use super::shred::collect_keys;
use super::{Environment, StepError};

/// Number of items removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub blobs: usize,
    pub check_ins: u32,
    pub idempotency_keys: u32,
    /// Keys of releases.
    pub release_keys: usize,
}

/// Detects a wall clock that jumped forward. After a jump, a blob that was just stored and whose row is about to be
/// written seems old: garbage collection waits until the clock has kept pace for one interval.
pub(super) struct ClockPace {
    clock: Timestamp,
    elapsed: Duration,
}

impl ClockPace {
    /// Begins to watch: `clock` is the time now.
    pub(super) fn new(clock: Timestamp) -> Self {
        Self { clock, elapsed: Duration::ZERO }
    }

    /// Whether the clock, now at `clock`, has gained more than `tolerance` on the time that has `elapsed` since the beginning.
    pub(super) fn has_jumped_ahead(&mut self, clock: Timestamp, elapsed: Duration, tolerance: Duration) -> bool {
        let gained = clock.since(self.clock).saturating_sub(elapsed.saturating_sub(self.elapsed));
        *self = Self { clock, elapsed };
        gained > tolerance
    }
}

/// Collects once, at most [`super::WorkConfig::garbage_batch`] blobs.
pub(super) async fn collect_garbage(env: &Environment) -> Result<Collected, StepError> {
    let now = env.clock.now();
    let (check_ins, idempotency_keys) = env
        .store
        .transact("expire rows", |tx| {
            Box::pin(
                async move { Ok::<_, StoreError>((tx.expire_check_ins(now).await?, tx.expire_idempotent(now).await?)) },
            )
        })
        .await?;
    let release_keys = collect_keys(env).await?;
    let blobs = collect_blobs(env, now).await?;
    let collected = Collected { blobs, check_ins, idempotency_keys, release_keys };
    if collected != Collected::default() {
        tracing::debug!(blobs, check_ins, idempotency_keys, release_keys, "garbage collected");
        metrics::counter!("tributary_blobs_collected_total").increment(blobs as u64);
    }
    Ok(collected)
}

async fn collect_blobs(env: &Environment, now: Timestamp) -> Result<usize, StepError> {
    let blobs = &env.blobs;
    let grace = i64::try_from(env.config.garbage_grace.as_millis()).unwrap_or(i64::MAX);
    let older_than = Timestamp(now.0.saturating_sub(grace));
    let mut old = blobs.list(older_than).await?;
    if old.is_empty() {
        return Ok(0);
    }
    // After the list: a blob that was listed and has got a row since is seen to have one.
    let referenced =
        env.store.read("referenced blobs", |tx| Box::pin(async move { tx.referenced_blobs().await })).await?;
    old.retain(|digest| !referenced.contains(digest));
    old.truncate(env.config.garbage_batch);
    let mut removed = 0;
    for digest in old {
        env.fail_point.reached("collect_garbage: before a blob")?;
        removed += usize::from(blobs.collect(digest, older_than).await?);
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
