//! Several copies of all blobs, each in a store of its own.
//!
//! The first copy is the primary: a blob that it rejects is not stored. An unreachable copy is skipped for a while.
//! Comparing lists ([`BlobStore::even_out`]) finds the blobs that it lacks, so a crash loses no bookkeeping. A blob is
//! lost only if every copy lacks it.

mod copy;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::Digest;
use federation::time::{Clock, Timestamp};
use futures_util::future::{BoxFuture, join_all};

use self::copy::Copy;
pub(crate) use self::copy::Place;
use super::{BlobRead, BlobStore, BlobWriter, transfer};
use crate::error::{Result, StoreError};

/// Lists are compared at so many collections of garbage, and whenever a copy is known to owe something.
const EVEN_OUT_EVERY: u32 = 20;

/// A store of blobs on top of others. Clones share it.
#[derive(Clone)]
pub(crate) struct ReplicatedBlobs(Arc<Copies>);

struct Copies {
    primary: Copy,
    others: Vec<Copy>,
    /// Held while a copy is mended, so that others wait instead of mending it too.
    mending: tokio::sync::Mutex<()>,
    collections: AtomicU32,
    clock: Arc<dyn Clock>,
}

impl ReplicatedBlobs {
    /// Opens all copies. One that cannot be opened is away, unless it is the primary.
    pub(crate) async fn open(primary: Place, others: Vec<Place>, clock: Arc<dyn Clock>) -> Result<Self> {
        let copies = Copies {
            primary: Copy::new(primary, &clock),
            others: others.into_iter().map(|other| Copy::new(other, &clock)).collect(),
            mending: tokio::sync::Mutex::default(),
            collections: AtomicU32::new(0),
            clock,
        };
        copies.primary.open().await?;
        join_all(copies.others.iter().map(|copy| async {
            // The reason is already logged.
            let _ = copy.store().await;
        }))
        .await;
        Ok(Self(Arc::new(copies)))
    }

    fn copies(&self) -> impl Iterator<Item = &Copy> {
        std::iter::once(&self.0.primary).chain(&self.0.others)
    }

    /// The result of `read` from the first copy that has the blob. Earlier copies that have lost or damaged it get it
    /// again.
    async fn first_whole<T>(
        &self,
        digest: Digest,
        read: impl for<'s> Fn(&'s dyn BlobStore) -> BoxFuture<'s, Result<T>>,
    ) -> Result<T> {
        let mut damaged = Vec::new();
        let mut away = None;
        for copy in self.copies() {
            let found = match copy.store().await {
                Ok(store) => copy.note(read(&*store).await),
                Err(error) => Err(error),
            };
            match found {
                Ok(found) => {
                    for (damaged, error) in damaged {
                        self.mend(digest, damaged, copy, &error).await;
                    }
                    return Ok(found);
                }
                Err(error @ (StoreError::MissingBlob(_) | StoreError::Corrupt(_))) => damaged.push((copy, error)),
                Err(error) => away = away.or(Some(error)),
            }
        }
        // A copy that is away may have it.
        let lost = damaged.into_iter().next().map(|(_, error)| error);
        Err(away.or(lost).unwrap_or(StoreError::MissingBlob(digest)))
    }

    /// Stores a blob again in a copy that has lost or damaged it.
    async fn mend(&self, digest: Digest, damaged: &Copy, whole: &Copy, error: &StoreError) {
        let _one_mends = self.0.mending.lock().await;
        let mended = async {
            let (to, from) = (damaged.store().await?, whole.store().await?);
            if to.open_verified(digest).await.is_ok() {
                return Ok(false);
            }
            let blob = whole.note(from.open_verified(digest).await)?;
            damaged.note(transfer(blob, &*to, digest).await).map(|()| true)
        };
        match mended.await {
            Ok(true) => damaged.repaired(digest, whole, error),
            Ok(false) => {}
            Err(failed) => {
                damaged.owes();
                tracing::warn!(copy = damaged.name(), %digest, error = %failed, "could not mend a copy of a blob");
            }
        }
    }

    /// Stores in `copy` the blobs of `needed` that it lacks.
    async fn fill(&self, copy: &Copy, needed: &HashSet<Digest>, began: Timestamp) -> Result<usize> {
        let store = copy.store().await?;
        let there: HashSet<_> = copy.note(store.list(Duration::ZERO).await)?.into_iter().collect();
        let mut filled = 0;
        for &digest in needed.difference(&there) {
            for source in self.copies().filter(|source| !std::ptr::eq(*source, copy)) {
                let Ok(from) = source.store().await else { continue };
                let Ok(blob) = source.note(from.open_verified(digest).await) else { continue };
                copy.note(transfer(blob, &*store, digest).await)?;
                filled += 1;
                copy.repaired(digest, source, &StoreError::MissingBlob(digest));
                break;
            }
        }
        copy.has_paid(began);
        Ok(filled)
    }
}

#[async_trait]
impl BlobStore for ReplicatedBlobs {
    async fn put_bytes(&self, bytes: Bytes) -> Result<Digest> {
        let primary = &self.0.primary;
        // The primary is always tried: a write needs it.
        let first = async { primary.note(primary.open().await?.put_bytes(bytes.clone()).await) };
        let others = join_all(self.0.others.iter().map(|copy| async {
            let put = async { copy.note(copy.store().await?.put_bytes(bytes.clone()).await) };
            copy.must(put.await);
        }));
        tokio::join!(first, others).0
    }

    async fn writer(&self) -> Result<Box<dyn BlobWriter>> {
        let primary = self.0.primary.open().await?.writer().await?;
        let open = join_all(self.0.others.iter().enumerate().map(|(index, copy)| async move {
            let open = async { copy.note(copy.store().await?.writer().await) };
            copy.must(open.await).map(|writer| (index, writer))
        }));
        let others = open.await.into_iter().flatten().collect();
        Ok(Box::new(ReplicatedWriter { blobs: self.clone(), primary, others }))
    }

    /// Verifies the blob first: damage found at the end of a read is too late for another copy.
    async fn open(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        self.open_verified(digest).await
    }

    async fn open_verified(&self, digest: Digest) -> Result<Box<dyn BlobRead>> {
        self.first_whole(digest, move |copy| copy.open_verified(digest)).await
    }

    async fn look(&self, digest: Digest, bytes: u64) -> Result<()> {
        self.first_whole(digest, move |copy| copy.look(digest, bytes)).await
    }

    async fn get(&self, digest: Digest) -> Result<Bytes> {
        self.first_whole(digest, move |copy| copy.get(digest)).await
    }

    async fn len(&self, digest: Digest) -> Result<Option<u64>> {
        let mut away = None;
        for copy in self.copies() {
            let found = match copy.store().await {
                Ok(store) => copy.note(store.len(digest).await),
                Err(error) => Err(error),
            };
            match found {
                Ok(Some(size)) => return Ok(Some(size)),
                Ok(None) => {}
                Err(error) => away = away.or(Some(error)),
            }
        }
        away.map_or(Ok(None), Err)
    }

    /// From a copy that is away it goes as garbage, when that is back.
    async fn delete(&self, digest: Digest) -> Result<bool> {
        let mut was_there = self.0.primary.open().await?.delete(digest).await?;
        for copy in &self.0.others {
            let Ok(store) = copy.store().await else { continue };
            was_there |= copy.note(store.delete(digest).await).unwrap_or(false);
        }
        Ok(was_there)
    }

    async fn collect(&self, digest: Digest, age: Duration) -> Result<bool> {
        let primary = self.0.primary.open().await?;
        let mut removed = primary.collect(digest, age).await?;
        // Young in the primary: another copy's blob is old because that copy was away.
        if !removed && primary.len(digest).await?.is_some() {
            return Ok(false);
        }
        for copy in &self.0.others {
            let Ok(store) = copy.store().await else { continue };
            removed |= copy.note(store.collect(digest, age).await).unwrap_or(false);
        }
        Ok(removed)
    }

    /// Blobs of any copy: a copy that was away during a collection still has garbage.
    async fn list(&self, age: Duration) -> Result<Vec<Digest>> {
        let mut found: HashSet<_> = self.0.primary.open().await?.list(age).await?.into_iter().collect();
        for copy in &self.0.others {
            let Ok(store) = copy.store().await else { continue };
            found.extend(copy.note(store.list(age).await).unwrap_or_default());
        }
        Ok(found.into_iter().collect())
    }

    async fn even_out(&self, needed: &HashSet<Digest>) -> Result<usize> {
        let began = self.0.clock.now();
        let all = self.0.collections.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVEN_OUT_EVERY);
        let mut filled = 0;
        for copy in self.copies().filter(|copy| all || copy.is_owing()) {
            // A copy that is still unavailable has logged that.
            filled += self.fill(copy, needed, began).await.unwrap_or(0);
        }
        Ok(filled)
    }

    fn troubles(&self) -> Vec<String> {
        self.copies().filter_map(Copy::trouble).collect()
    }
}

/// Writes to all copies at once.
struct ReplicatedWriter {
    blobs: ReplicatedBlobs,
    primary: Box<dyn BlobWriter>,
    /// Those of the other copies that have not failed, with their positions.
    others: Vec<(usize, Box<dyn BlobWriter>)>,
}

#[async_trait]
impl BlobWriter for ReplicatedWriter {
    async fn write(&mut self, chunk: Bytes) -> Result<()> {
        let copies = &self.blobs.0.others;
        let others = join_all(std::mem::take(&mut self.others).into_iter().map(|(index, mut writer)| {
            let chunk = chunk.clone();
            async move {
                let copy = &copies[index];
                copy.must(copy.note(writer.write(chunk).await)).map(|()| (index, writer))
            }
        }));
        let (primary, others) = tokio::join!(self.primary.write(chunk.clone()), others);
        self.others = others.into_iter().flatten().collect();
        primary
    }

    async fn finish(self: Box<Self>, expected: Option<Digest>) -> Result<(Digest, u64)> {
        let copies = &self.blobs.0.others;
        let others = join_all(
            self.others
                .into_iter()
                .map(|(index, writer)| async move { (&copies[index], writer.finish(expected).await) }),
        );
        let (primary, others) = tokio::join!(self.primary.finish(expected), others);
        let finished = primary?;
        for (copy, done) in others {
            copy.must(copy.note(done));
        }
        Ok(finished)
    }
}
