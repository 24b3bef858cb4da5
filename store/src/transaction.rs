//! Transactions: named, all or nothing, retried after interference by another writer.

use std::pin::Pin;

use async_trait::async_trait;

use crate::entity::admitted::AdmittedInputs;
use crate::entity::assignment::Assignments;
use crate::entity::blob_reference::BlobReferences;
use crate::entity::check_in::CheckIns;
use crate::entity::idempotency::IdempotencyKeys;
use crate::entity::lease::Leases;
use crate::entity::model_version::ModelVersions;
use crate::entity::noised_sum::NoisedSums;
use crate::entity::partial_sum::PartialSums;
use crate::entity::participant::Participants;
use crate::entity::privacy_ledger::PrivacyLedger;
use crate::entity::round::Rounds;
use crate::entity::round_summary::RoundSummaries;
use crate::entity::sampled::Sampled;
use crate::entity::secret::Secrets;
use crate::entity::session::Sessions;
use crate::entity::session_message::SessionMessages;
use crate::entity::task::Tasks;
use crate::entity::token::Tokens;
use crate::entity::training::Trainings;
use crate::entity::unopened::Unopened;
use crate::error::{Result, StoreError};

/// Number of attempts before the caller gets [`StoreError::Busy`].
const MAX_ATTEMPTS: u32 = 5;

/// The queries and changes possible within a transaction: the traits of all entities.
pub trait Transaction:
    Tasks
    + Participants
    + Tokens
    + CheckIns
    + Rounds
    + RoundSummaries
    + Assignments
    + AdmittedInputs
    + Sessions
    + SessionMessages
    + PartialSums
    + NoisedSums
    + ModelVersions
    + PrivacyLedger
    + Sampled
    + Trainings
    + Unopened
    + Secrets
    + Leases
    + IdempotencyKeys
    + BlobReferences
    + Send
{
}

/// The future that a transaction's closure returns.
pub type TransactionFuture<'t, T, E> = Pin<Box<dyn Future<Output = std::result::Result<T, E>> + Send + 't>>;

/// Whether a transaction may change rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// Waits for a connection and begins.
    async fn begin(&self, mode: Mode) -> Result<Box<dyn OpenTransaction>>;

    /// Flushes the write-ahead log to the database and truncates it.
    async fn empty_log(&self) -> Result<()>;
    /// Reads the whole database and fails if it is malformed.
    async fn check(&self) -> Result<()>;

    /// Limits the database to this many pages, as if the disk were full.
    #[cfg(feature = "conformance")]
    async fn limit_pages(&self, pages: u32) -> Result<()>;

    /// Takes every migration back.
    #[cfg(feature = "conformance")]
    async fn revert_schema(&self) -> Result<()>;

    /// Takes every missing migration.
    #[cfg(feature = "conformance")]
    async fn migrate_schema(&self) -> Result<()>;
}

/// A transaction in progress. Dropping it without a commit undoes it.
#[async_trait]
pub(crate) trait OpenTransaction: Transaction {
    /// Whether another writer interfered, so that the whole transaction must be retried.
    fn must_retry(&self) -> bool;

    /// Makes every change durable.
    async fn commit(self: Box<Self>) -> Result<()>;

    async fn rollback(self: Box<Self>) -> Result<()>;
}

/// Runs `body` in a transaction, and commits if it returns `Ok`.
pub(crate) async fn run<'env, T, E, F>(
    backend: &dyn Backend,
    name: &'static str,
    mode: Mode,
    mut body: F,
) -> std::result::Result<T, E>
where
    F: for<'t> FnMut(&'t mut (dyn Transaction + 'env)) -> TransactionFuture<'t, T, E>,
    E: From<StoreError>,
{
    for attempt in 1..=MAX_ATTEMPTS {
        match run_once(backend, mode, &mut body).await {
            Outcome::Done(result) => return result,
            Outcome::Again => tracing::debug!(transaction = name, attempt, "another writer was in the way"),
        }
    }
    tracing::warn!(transaction = name, attempts = MAX_ATTEMPTS, "gave up on transaction {name}: the database is busy");
    Err(StoreError::Busy.into())
}

enum Outcome<T, E> {
    Done(std::result::Result<T, E>),
    Again,
}

impl<T, E: From<StoreError>> Outcome<T, E> {
    fn failed(error: StoreError) -> Self {
        match error {
            StoreError::Busy => Self::Again,
            error => Self::Done(Err(error.into())),
        }
    }
}

async fn run_once<'env, T, E, F>(backend: &dyn Backend, mode: Mode, body: &mut F) -> Outcome<T, E>
where
    F: for<'t> FnMut(&'t mut (dyn Transaction + 'env)) -> TransactionFuture<'t, T, E>,
    E: From<StoreError>,
{
    let mut transaction = match backend.begin(mode).await {
        Ok(transaction) => transaction,
        Err(error) => return Outcome::failed(error),
    };
    let result = body(&mut *transaction).await;
    if transaction.must_retry() || result.is_err() {
        let again = transaction.must_retry();
        // The caller must get the original error; a connection that fails to roll back is not used again.
        if let Err(error) = transaction.rollback().await {
            tracing::warn!(%error, "could not roll a transaction back");
        }
        return if again { Outcome::Again } else { Outcome::Done(result) };
    }
    match transaction.commit().await {
        Ok(()) => Outcome::Done(result),
        Err(error) => Outcome::failed(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::sqlite::SqliteBackend;

    /// A database that is busy for the first few calls.
    struct Flaky {
        database: SqliteBackend,
        busy: AtomicU32,
    }

    #[async_trait]
    impl Backend for Flaky {
        async fn begin(&self, mode: Mode) -> Result<Box<dyn OpenTransaction>> {
            let countdown = |left: u32| left.checked_sub(1);
            match self.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, countdown) {
                Ok(_) => Err(StoreError::Busy),
                Err(_) => self.database.begin(mode).await,
            }
        }

        async fn empty_log(&self) -> Result<()> {
            self.database.empty_log().await
        }

        async fn check(&self) -> Result<()> {
            Ok(())
        }

        #[cfg(feature = "conformance")]
        async fn limit_pages(&self, pages: u32) -> Result<()> {
            self.database.limit_pages(pages).await
        }

        #[cfg(feature = "conformance")]
        async fn revert_schema(&self) -> Result<()> {
            self.database.revert_schema().await
        }

        #[cfg(feature = "conformance")]
        async fn migrate_schema(&self) -> Result<()> {
            self.database.migrate_schema().await
        }
    }

    async fn try_with(busy: u32) -> Result<u32> {
        let flaky = Flaky { database: SqliteBackend::open_memory()?, busy: busy.into() };
        let mut runs = 0;
        run(&flaky, "test", Mode::Write, |tx| {
            runs += 1;
            let runs = runs;
            Box::pin(async move { tx.clear_leases().await.map(|()| runs) })
        })
        .await
    }

    #[tokio::test]
    async fn a_busy_database_is_tried_again_up_to_the_bound() {
        assert!(matches!(try_with(0).await, Ok(1)));
        assert!(matches!(try_with(MAX_ATTEMPTS - 1).await, Ok(1)));
        assert!(matches!(try_with(MAX_ATTEMPTS).await, Err(StoreError::Busy)));
    }
}
