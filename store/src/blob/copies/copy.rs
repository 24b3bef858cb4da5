//! One of several copies: opened when it can be, passed over for a while when it fails.

use std::io::Read as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use federation::id::Digest;
use federation::time::{Clock, Timestamp};
use futures_util::future::BoxFuture;

use crate::blob::{BlobRead, BlobStore};
use crate::error::{Result, StoreError};

/// How long a copy that failed is passed over: everybody would wait for it at every blob.
const PASSED_OVER: Duration = Duration::from_secs(30);
/// Bytes that are read at once to mend a copy.
const PIECE: usize = 1 << 20;

type Open = dyn Fn() -> BoxFuture<'static, Result<Arc<dyn BlobStore>>> + Send + Sync;

/// Where a copy is.
pub(crate) struct Place {
    /// What logs and metrics call it.
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
    /// Whether it may lack blobs.
    owes: bool,
}

impl Copy {
    pub(super) fn new(place: Place, clock: &Arc<dyn Clock>) -> Self {
        Self { place, opened: tokio::sync::OnceCell::new(), clock: Arc::clone(clock), state: Mutex::default() }
    }

    /// What logs and metrics call it.
    pub(super) fn name(&self) -> &str {
        &self.place.name
    }

    /// The store, opened if it was not yet, whatever happened before.
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

    /// What was to be stored here too; if it was not, it is owed.
    pub(super) fn must<T>(&self, done: Result<T>) -> Option<T> {
        if done.is_err() {
            self.owes();
        }
        done.ok()
    }

    pub(super) fn owes(&self) {
        self.lock().owes = true;
    }

    pub(super) fn owes_nothing(&self) {
        self.lock().owes = false;
    }

    pub(super) fn is_owing(&self) -> bool {
        self.lock().owes
    }

    /// Counts and tells that a blob is here again.
    pub(super) fn repaired(&self, digest: Digest, whole: &Self, error: &StoreError) {
        metrics::counter!("tributary_blobs_repaired_total", "copy" => self.name().to_owned()).increment(1);
        tracing::warn!(
            copy = self.name(), %digest, from = whole.name(),
            "blob {digest} was stored again in {} from {}: {error}", self.name(), whole.name()
        );
    }

    /// What an operator should know.
    pub(super) fn trouble(&self) -> Option<String> {
        let state = self.lock();
        match (state.away, state.owes) {
            (Some(_), _) => Some(format!("{} is away; the log says why", self.name())),
            (None, true) => Some(format!("blobs are owed to {}", self.name())),
            (None, false) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic can leave it inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores a blob, which was just opened and verified.
pub(super) async fn transfer(mut blob: Box<dyn BlobRead>, to: &dyn BlobStore, digest: Digest) -> Result<()> {
    let mut writer = to.writer().await?;
    loop {
        let mut piece = vec![0; PIECE];
        let read = move || {
            let got = blob.read(&mut piece)?;
            piece.truncate(got);
            Ok::<_, std::io::Error>((blob, piece))
        };
        let (rest, piece) = crate::with_files(read).await??;
        blob = rest;
        if piece.is_empty() {
            break;
        }
        writer.write(Bytes::from(piece)).await?;
    }
    writer.finish(Some(digest)).await.map(drop)
}
