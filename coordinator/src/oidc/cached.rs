//! A cache of the provider's documents, with background refresh.
//!
//! A request satisfied by the cached document never waits, even during a refresh. Requests for a missing entry contact the provider at a
//! limited rate.

use std::sync::Arc;
use std::time::Duration;

use federation::time::{Clock, Timestamp};
use listener::PoisonFreeMutex;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Minimum interval between requests to the provider.
const PAUSE: Duration = Duration::from_secs(10);
/// Age at which a document is refreshed in the background, so that withdrawn keys expire.
const REFRESH: Duration = Duration::from_secs(300);

/// Why an entry is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The provider does not publish it.
    Unknown,
    /// The provider's document is currently unknown.
    Unavailable,
}

/// Cache of one document of the provider, at most `max_age` old.
pub(super) struct Cached<T> {
    max_age: Duration,
    clock: Arc<dyn Clock>,
    known: PoisonFreeMutex<CachedDocument<T>>,
    /// Held during a request to the provider.
    turn: Arc<Mutex<()>>,
}

struct CachedDocument<T> {
    value: Option<Arc<T>>,
    /// Time of the request for this document.
    fetched_at: Option<Timestamp>,
    /// Time of the latest request, whatever its outcome.
    asked_at: Option<Timestamp>,
}

impl<T: Send + Sync + 'static> Cached<T> {
    /// Starts empty. A document is valid up to this age.
    pub(super) fn new(max_age: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        let known = CachedDocument { value: None, fetched_at: None, asked_at: None };
        Arc::new(Self { max_age, clock, known: PoisonFreeMutex::new(known), turn: Arc::default() })
    }

    /// Returns the cached document if it suffices, and otherwise the result of `fetch`.
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
            // The caller may disconnect; the result is for all callers.
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

    /// The cached document, unless it has expired.
    fn usable(&self, now: Timestamp) -> Option<Arc<T>> {
        self.known.with(|known| {
            let is_good = known.fetched_at.is_some_and(|at| now < at.plus(self.max_age));
            known.value.clone().filter(|_| is_good)
        })
    }

    fn may_ask(&self, now: Timestamp) -> bool {
        self.known.with(|known| known.asked_at.is_none_or(|at| at.plus(PAUSE) <= now))
    }

    /// Starts a refresh if the document is stale and no refresh is in progress.
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

    /// Fetches and caches the document.
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
