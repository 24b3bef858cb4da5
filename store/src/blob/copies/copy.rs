//! One of several copies: opened when it can be, passed over for a while when it fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use federation::id::Digest;
use federation::time::{Clock, Timestamp};
use futures_util::future::BoxFuture;

use crate::blob::BlobStore;
use crate::error::{Result, StoreError};

/// Time for which a failed copy is skipped, so that not every access waits for it.
const PASSED_OVER: Duration = Duration::from_secs(30);
/// So long after it was stored a blob has its row or is garbage, as its collection has it.
const NAMED_WITHIN: Duration = Duration::from_secs(60);
/// Time within which the comparison of lists, in any process, has detected a blob that is missing in a copy.
const OWED_FOR: Duration = Duration::from_secs(30 * 60);

type Open = dyn Fn() -> BoxFuture<'static, Result<Arc<dyn BlobStore>>> + Send + Sync;

/// Where a copy is.
pub(crate) struct Place {
    /// Name of the copy in logs and metrics.
    pub(crate) name: String,
    /// Opens it; called again if that failed.
    pub(crate) open: Box<Open>,
}

/// A copy of all blobs.
pub(super) struct Copy {
    place: Place,
    opened: tokio::sync::OnceCell<Arc<dyn BlobStore>>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since when it fails, and until when it is passed over.
    away: Option<(Timestamp, Timestamp)>,
    /// It may lack blobs.
    debt: Option<Debt>,
}

/// Blobs that were to be stored in a copy and were not.
#[derive(Clone, Copy)]
struct Debt {
    /// When the last of them was not.
    noted: Timestamp,
    /// Whether those of them that had rows are there by now.
    is_paid: bool,
}

impl Copy {
    pub(super) fn new(place: Place, clock: &Arc<dyn Clock>) -> Self {
        Self { place, opened: tokio::sync::OnceCell::new(), clock: Arc::clone(clock), state: Mutex::default() }
    }

    /// Name of the copy in logs and metrics.
    pub(super) fn name(&self) -> &str {
        &self.place.name
    }

    /// The store, opened on first use. A failed opening is tried again.
    pub(super) async fn open(&self) -> Result<Arc<dyn BlobStore>> {
        self.opened.get_or_try_init(&self.place.open).await.cloned()
    }

    /// The store, unless it is passed over.
    ///
    /// # Errors
    /// [`StoreError::BlobsAway`] while it is away.
    pub(super) async fn store(&self) -> Result<Arc<dyn BlobStore>> {
        if self.lock().away.is_some_and(|(_, until)| self.clock.now() < until) {
            return Err(StoreError::BlobsAway(format!("{} is away", self.name())));
        }
        self.note(self.open().await)
    }

    /// Notes whether the copy answers.
    pub(super) fn note<T>(&self, done: Result<T>) -> Result<T> {
        match &done {
            Ok(_) | Err(StoreError::MissingBlob(_) | StoreError::Corrupt(_) | StoreError::Conflict(_)) => {
                if self.lock().away.take().is_some() {
                    tracing::info!(copy = self.name(), "{} is back", self.name());
                }
            }
            Err(error) => self.passes(error),
        }
        done
    }

    fn passes(&self, error: &StoreError) {
        metrics::counter!("tributary_blob_copy_failures_total", "copy" => self.name().to_owned()).increment(1);
        let now = self.clock.now();
        let mut state = self.lock();
        let is_news = state.away.is_none();
        let since = state.away.map_or(now, |(since, _)| since);
        state.away = Some((since, now.plus(PASSED_OVER)));
        drop(state);
        if is_news {
            let cause = std::error::Error::source(error).map(tracing::field::display);
            tracing::error!(copy = self.name(), %error, cause, "{} is away: what it lacks is stored there when it is back", self.name());
        }
    }

    /// The result of a write that every copy needs. A failed write is recorded as owed.
    pub(super) fn must<T>(&self, done: Result<T>) -> Option<T> {
        if done.is_err() {
            self.owes();
        }
        done.ok()
    }

    pub(super) fn owes(&self) {
        self.lock().debt = Some(Debt { noted: self.clock.now(), is_paid: false });
    }

    /// It has all that rows named when lists began to be compared, at `began`. A blob that was stored shortly before may have got
    /// its row since, and is looked for again.
    pub(super) fn has_paid(&self, began: Timestamp) {
        let mut state = self.lock();
        state.debt = match state.debt {
            Some(debt) if debt.noted >= began => Some(debt),
            Some(debt) if began.since(debt.noted) < NAMED_WITHIN => Some(Debt { is_paid: true, ..debt }),
            Some(_) | None => None,
        };
    }

    pub(super) fn is_owing(&self) -> bool {
        self.debt().is_some()
    }

    /// A debt expires after a while, because this process cannot see that another one has compared the lists.
    fn debt(&self) -> Option<Debt> {
        let now = self.clock.now();
        self.lock().debt.filter(|debt| now.since(debt.noted) < OWED_FOR)
    }

    /// Counts and logs that a blob was restored.
    pub(super) fn repaired(&self, digest: Digest, whole: &Self, error: &StoreError) {
        metrics::counter!("tributary_blobs_repaired_total", "copy" => self.name().to_owned()).increment(1);
        tracing::warn!(
            copy = self.name(), %digest, from = whole.name(),
            "blob {digest} was stored again in {} from {}: {error}", self.name(), whole.name()
        );
    }

    /// A problem that an operator should know.
    pub(super) fn trouble(&self) -> Option<String> {
        if self.lock().away.is_some() {
            return Some(format!("{} is away; the log says why", self.name()));
        }
        self.debt().filter(|debt| !debt.is_paid).map(|_| format!("blobs are owed to {}", self.name()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state stays consistent after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
