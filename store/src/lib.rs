//! Durable state: rows and blobs.
//!
//! Everything the coordinator must not forget is here, behind [`Store`]: rows, changed in named transactions by the traits
//! of [`entity`]; blobs, immutable and addressed by their digest; and [`Wake`], which says that rows may have changed.
//! Blobs come first and rows second: the row is the truth, a blob without a row is garbage.
//!
//! This is the only crate that speaks SQL. It does not know what a blob or a body means, nor any rule by which rounds
//! advance: `federation` decides, `coordinator` asks it, and this crate keeps the outcome by compare and swap.

mod blob;
pub mod entity;
mod error;
mod transaction;
mod wake;

use std::sync::Arc;

pub use crate::blob::{BlobRead, BlobStore, BlobWriter};
pub use crate::error::{Result, StoreError};
use crate::transaction::{Backend, Mode};
pub use crate::transaction::{Transaction, TransactionFuture};
pub use crate::wake::{Wake, WakeEvent, WakeSubscription};

/// Rows and blobs. Clones share them.
#[derive(Clone)]
pub struct Store {
    rows: Arc<dyn Backend>,
    blobs: Arc<dyn BlobStore>,
    wake: Wake,
}

impl Store {
    /// Runs `body` in a transaction that may change rows: `store.transact("name", |tx| Box::pin(async move { … }))`.
    ///
    /// If `body` returns `Ok`, its changes are durable when this returns; otherwise, or if this future is dropped, none of
    /// them is kept. When another writer is in the way, `body` runs again, so it must have no effect outside of `tx`. It
    /// holds the only write lock: do not wait for anything else inside, and never start a transaction in a transaction.
    ///
    /// # Errors
    /// What `body` returns; [`StoreError::Busy`] when every try met another writer; what committing may meet.
    pub async fn transact<'env, T, E, F>(&self, name: &'static str, body: F) -> std::result::Result<T, E>
    where
        F: for<'t> FnMut(&'t mut (dyn Transaction + 'env)) -> TransactionFuture<'t, T, E>,
        E: From<StoreError>,
    {
        transaction::run(&*self.rows, name, Mode::Write, body).await
    }

    /// Runs `body` on one consistent state of the rows, beside whatever is being written. Changes are refused.
    ///
    /// # Errors
    /// What `body` returns; [`StoreError::Busy`].
    pub async fn read<'env, T, E, F>(&self, name: &'static str, body: F) -> std::result::Result<T, E>
    where
        F: for<'t> FnMut(&'t mut (dyn Transaction + 'env)) -> TransactionFuture<'t, T, E>,
        E: From<StoreError>,
    {
        transaction::run(&*self.rows, name, Mode::Read, body).await
    }

    /// The blobs.
    #[must_use]
    pub fn blobs(&self) -> &Arc<dyn BlobStore> {
        &self.blobs
    }

    /// Where to say, and to hear, that rows may have changed.
    #[must_use]
    pub fn wake(&self) -> &Wake {
        &self.wake
    }
}
