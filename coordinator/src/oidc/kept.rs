//! What the provider publishes, as it was fetched last: fetched when it is needed, and kept for when it cannot be.
//!
//! A request for which what is there suffices never waits, even while it is fetched again. Whoever wants what is not there makes
//! this coordinator ask the provider once in a while, however often that is.

use std::sync::Arc;
use std::time::Duration;

use federation::time::{Clock, Timestamp};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::guarded::Guarded;

/// The provider is asked no more often than this, whoever wants it.
const PAUSE: Duration = Duration::from_secs(10);
/// What has this age is fetched again on the side, so that a key that the provider withdraws counts no longer.
const REFRESH: Duration = Duration::from_secs(300);

/// Why it cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The provider does not publish it.
    Unknown,
    /// What the provider publishes is not known at present.
    Unavailable,
}

/// What was fetched.
pub(super) struct Kept<T> {
    max_age: Duration,
    clock: Arc<dyn Clock>,
    known: Guarded<Known<T>>,
    /// Whoever has it asks.
    turn: Arc<Mutex<()>>,
}

struct Known<T> {
    value: Option<Arc<T>>,
    /// When this was asked for.
    fetched_at: Option<Timestamp>,
    /// When it was asked for last, whatever came of it.
    asked_at: Option<Timestamp>,
}

impl<T: Send + Sync + 'static> Kept<T> {
    /// Nothing yet. What is fetched counts until it has this age.
    pub(super) fn new(max_age: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        let known = Known { value: None, fetched_at: None, asked_at: None };
        Arc::new(Self { max_age, clock, known: Guarded::new(known), turn: Arc::default() })
    }

    /// What is there if it suffices, and otherwise what `fetch` brings.
    ///
    /// # Errors
    /// [`Missing`].
    pub(super) async fn get<F>(
        self: &Arc<Self>,
        now: Timestamp,
        suffices: impl Fn(&T) -> bool,
        fetch: impl FnOnce() -> F,
    ) -> Result<Arc<T>, Missing>
    where
        F: Future<Output = Option<T>> + Send + 'static,
    {
        if let Some(value) = self.usable(now).filter(|value| suffices(value)) {
            self.refresh_aside(now, fetch);
            return Ok(value);
        }
        let turn = Arc::clone(&self.turn).lock_owned().await;
        if self.may_ask(now) {
            // Whoever asked may go away; what was asked for is for all.
            let asking = tokio::spawn(Arc::clone(self).ask(turn, fetch()));
            if let Err(error) = asking.await {
                tracing::error!(%error, "the identity provider was not asked: {error}");
            }
        }
        let is_current = self.known.with(|known| known.asked_at.is_some() && known.asked_at == known.fetched_at);
        match self.usable(now) {
            Some(value) if suffices(&value) => Ok(value),
            Some(_) if is_current => Err(Missing::Unknown),
            Some(_) | None => Err(Missing::Unavailable),
        }
    }

    /// What is there, unless it is too old.
    fn usable(&self, now: Timestamp) -> Option<Arc<T>> {
        self.known.with(|known| {
            let is_good = known.fetched_at.is_some_and(|at| now < at.plus(self.max_age));
            known.value.clone().filter(|_| is_good)
        })
    }

    fn may_ask(&self, now: Timestamp) -> bool {
        self.known.with(|known| known.asked_at.is_none_or(|at| at.plus(PAUSE) <= now))
    }

    /// Has it fetched if it is no longer fresh, unless somebody does already.
    fn refresh_aside<F>(self: &Arc<Self>, now: Timestamp, fetch: impl FnOnce() -> F)
    where
        F: Future<Output = Option<T>> + Send + 'static,
    {
        let is_fresh = self.known.with(|known| known.fetched_at.is_some_and(|at| now < at.plus(REFRESH)));
        if is_fresh || !self.may_ask(now) {
            return;
        }
        if let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() {
            tokio::spawn(Arc::clone(self).ask(turn, fetch()));
        }
    }

    /// Asks for it, and keeps what comes.
    async fn ask(self: Arc<Self>, turn: OwnedMutexGuard<()>, fetch: impl Future<Output = Option<T>>) {
        let now = self.clock.now();
        self.known.with(|known| known.asked_at = Some(now));
        if let Some(value) = fetch.await {
            self.known.with(|known| {
                known.value = Some(Arc::new(value));
                known.fetched_at = Some(now);
            });
        }
        drop(turn);
    }
}
