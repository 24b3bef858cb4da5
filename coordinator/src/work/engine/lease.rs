//! The lease of one task's work, or of garbage collection: at most one worker holds it.
//!
//! A lease avoids duplicate work, and fences former holders. Every write is a compare-and-swap in a transaction that first renews the lease
//! by its token, so a worker that lost it unnoticed cannot write, even if the lease is free again.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use federation::id::TaskId;
use federation::time::{Clock, Timestamp};
use store::Transaction;
use uuid::Uuid;

use crate::work::{Environment, StepError};

/// A worker's lease, held or not.
#[derive(Debug)]
pub(in crate::work) struct Lease {
    name: String,
    /// The kind of work, for metrics.
    work: &'static str,
    holder: Uuid,
    ttl: Duration,
    /// Its token while held.
    held: Option<u64>,
    /// Its expiry by the clock of the worker that took it.
    #[cfg(feature = "deliberate-faults")]
    until: Option<Timestamp>,
}

impl Lease {
    /// The lease of a task, not held yet.
    pub(in crate::work) fn new(task: TaskId, holder: Uuid, ttl: Duration) -> Self {
        Self::named(format!("round:{task}"), "task", holder, ttl)
    }

    /// The lease for removing blobs, not held yet.
    pub(in crate::work) fn of_garbage(holder: Uuid, ttl: Duration) -> Self {
        Self::named("garbage".to_owned(), "garbage", holder, ttl)
    }

    /// The lease for numbering events, not held yet.
    pub(in crate::work) fn of_events(holder: Uuid, ttl: Duration) -> Self {
        Self::named("events".to_owned(), "events", holder, ttl)
    }

    fn named(name: String, work: &'static str, holder: Uuid, ttl: Duration) -> Self {
        Self {
            name,
            work,
            holder,
            ttl,
            held: None,
            #[cfg(feature = "deliberate-faults")]
            until: None,
        }
    }

    /// Takes or prolongs the lease within the caller's transaction. Returns its token, and the time for decisions in this transaction,
    /// since a transaction may begin late and repeat.
    ///
    /// # Errors
    /// [`StepError::LeaseLost`] if another process holds it, or held it in between. [`StepError::ClockOff`] if the clock was wrong: after a
    /// suspension, the worker would end newer work, and treat others' leases as expired.
    pub(in crate::work) async fn confirm(
        &self,
        tx: &mut Transaction<'_>,
        clock: &dyn Clock,
    ) -> Result<(u64, Timestamp), StepError> {
        let now = clock.now();
        #[cfg(feature = "deliberate-faults")]
        if let Some(token) = self.unseen(now) {
            return Ok((token, now));
        }
        if tx.time().await?.is_some_and(|told| clock.is_off(now, told)) {
            return Err(StepError::ClockOff);
        }
        let token = match self.held {
            Some(token) => tx.renew_lease(&self.name, token, now, self.ttl).await?.then_some(token),
            None => tx.acquire_lease(&self.name, self.holder, now, self.ttl).await?,
        };
        Ok((token.ok_or_else(|| self.lost())?, now))
    }

    /// Gives up the lease with this token, within the transaction that confirmed it.
    pub(in crate::work) async fn give_up(&self, tx: &mut Transaction<'_>, token: u64) -> Result<(), StepError> {
        tx.release_lease(&self.name, token).await?;
        Ok(())
    }

    /// Records the token of the lease after a committed transaction; `None` if it gave the lease up.
    pub(in crate::work) fn note(&mut self, held: Option<u64>) {
        self.held = held;
    }

    /// Takes the lease before expensive work.
    pub(in crate::work) async fn hold(&mut self, env: &Environment) -> Result<(), StepError> {
        if self.held.is_none() {
            let (lease, clock) = (&*self, &*env.clock);
            let taken = env.store.transact("hold lease", |tx| Box::pin(async move { lease.confirm(tx, clock).await }));
            let taken = taken.await?;
            self.held = Some(taken.0);
            #[cfg(feature = "deliberate-faults")]
            {
                self.until = Some(taken.1.plus(self.ttl));
            }
        }
        Ok(())
    }

    /// Gives the lease up if held.
    pub(in crate::work) async fn release(&mut self, env: &Environment) -> Result<(), StepError> {
        if let Some(token) = self.held.take() {
            let lease = &*self;
            env.store.transact("release lease", |tx| Box::pin(async move { lease.give_up(tx, token).await })).await?;
        }
        Ok(())
    }

    /// The token of a faulty worker that skips the check of its lease.
    #[cfg(feature = "deliberate-faults")]
    fn unseen(&self, now: Timestamp) -> Option<u64> {
        use crate::faults::{Fault, present};
        let is_early = self.until.is_some_and(|until| now < until);
        let does_not_look = present() == Some(Fault::LostLease) || (present() == Some(Fault::OwnClock) && is_early);
        self.held.filter(|_| does_not_look)
    }

    /// Takes the lease again after losing it, ignoring changes in between; returns its token.
    #[cfg(feature = "deliberate-faults")]
    pub(in crate::work) async fn take_anew(&self, tx: &mut Transaction<'_>, now: Timestamp) -> Result<u64, StepError> {
        let token = tx.acquire_lease(&self.name, self.holder, now, self.ttl).await?;
        token.ok_or_else(|| self.lost())
    }

    fn lost(&self) -> StepError {
        if self.held.is_some() {
            metrics::counter!("tributary_leases_lost_total", "work" => self.work).increment(1);
        } else {
            // A process without the lease merely came second, and retries after a pause.
            metrics::counter!("tributary_leases_refused_total", "work" => self.work).increment(1);
        }
        StepError::LeaseLost(self.name.clone())
    }

    /// Prolongs the held lease during `work`.
    ///
    /// # Errors
    /// [`StepError::LeaseLost`] as soon as another process holds it; then `work` is dropped.
    pub(in crate::work) async fn keep_during<T, E: From<StepError>>(
        &self,
        env: &Environment,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut work = pin!(work);
        if !env.config.renews_leases {
            return work.await;
        }
        loop {
            if let Ok(done) = tokio::time::timeout(self.ttl / 3, &mut work).await {
                return done;
            }
            let clock = &*env.clock;
            let renewal =
                env.store.transact("renew lease", |tx| Box::pin(async move { self.confirm(tx, clock).await }));
            let renewed = match first(&mut work, renewal).await {
                Ok(done) => return done,
                Err(renewed) => renewed,
            };
            match renewed {
                Ok(_) => {}
                Err(error @ StepError::LeaseLost(_)) => return Err(error.into()),
                // The database is briefly unavailable: the step's own write will check the lease.
                Err(error) => tracing::warn!(lease = self.name, %error, "could not renew a lease"),
            }
        }
    }
}

/// Returns the output of `work`, or that of `other` as an error if it finishes first. Polls both: `work` may hold the write connection
/// needed by `other`, and would otherwise hold it forever.
async fn first<T, U>(work: impl Future<Output = T>, other: impl Future<Output = U>) -> Result<T, U> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        other = other => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_holds_the_writer_goes_on_while_another_waits_for_it() {
        let writer = Semaphore::new(1);
        let mut work = pin!(async {
            let _held = writer.acquire().await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            7
        });
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut work).await.is_err(), "it is in the middle");
        let renewal = async { writer.acquire().await.is_ok() };
        let ended = tokio::time::timeout(Duration::from_secs(60), first(&mut work, renewal)).await;
        assert_eq!(ended, Ok(Ok(7)));
    }
}
