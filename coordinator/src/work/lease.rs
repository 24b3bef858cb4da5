//! The lease of one task's work, or of collecting garbage: at most one worker at a time does it.
//!
//! A lease spares double work, and fences who lost it: every write is a compare and swap in a transaction that first renews the
//! lease by its token, so a worker that lost it without noticing writes nothing, even if it is free again.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use federation::id::TaskId;
use federation::time::{Clock, Timestamp};
use store::Transaction;
use uuid::Uuid;

use super::{Environment, StepError};

/// A worker's lease, held or wanted.
#[derive(Debug)]
pub(super) struct Lease {
    name: String,
    /// What kind of work it is for, for metrics.
    work: &'static str,
    holder: Uuid,
    ttl: Duration,
    /// Its token while it is held.
    held: Option<u64>,
    /// When it ends by the clock of the worker that took it.
    #[cfg(feature = "deliberate-faults")]
    until: Option<Timestamp>,
}

impl Lease {
    /// A lease that is not held yet.
    pub(super) fn new(task: TaskId, holder: Uuid, ttl: Duration) -> Self {
        Self::named(format!("round:{task}"), "task", holder, ttl)
    }

    /// The lease of whoever removes blobs, not held yet.
    pub(super) fn of_garbage(holder: Uuid, ttl: Duration) -> Self {
        Self::named("garbage".to_owned(), "garbage", holder, ttl)
    }

    /// The lease of whoever gives events their positions, not held yet.
    pub(super) fn of_events(holder: Uuid, ttl: Duration) -> Self {
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

    /// Takes the lease if it is not held, else prolongs it, as a part of the caller's transaction. Returns its token, and the
    /// time by which the transaction is to judge: a transaction may begin long after it was wanted, and again and again.
    ///
    /// # Errors
    /// [`StepError::LeaseLost`] if somebody else has it, or had it since it was taken; [`StepError::ClockOff`] if the clock
    /// was: after a suspension it would end what others have begun since, and take their leases for expired.
    pub(super) async fn confirm(
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

    /// Gives the lease with this token up, as a part of the transaction that confirmed it.
    pub(super) async fn give_up(&self, tx: &mut Transaction<'_>, token: u64) -> Result<(), StepError> {
        tx.release_lease(&self.name, token).await?;
        Ok(())
    }

    /// Notes the token with which a transaction that has committed left the lease, if it did not give it up.
    pub(super) fn note(&mut self, held: Option<u64>) {
        self.held = held;
    }

    /// Takes the lease before expensive work.
    pub(super) async fn hold(&mut self, env: &Environment) -> Result<(), StepError> {
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

    /// Gives the lease up if it is held.
    pub(super) async fn release(&mut self, env: &Environment) -> Result<(), StepError> {
        if let Some(token) = self.held.take() {
            let lease = &*self;
            env.store.transact("release lease", |tx| Box::pin(async move { lease.give_up(tx, token).await })).await?;
        }
        Ok(())
    }

    /// The token with which a worker goes on that does not look whether it still holds the lease.
    #[cfg(feature = "deliberate-faults")]
    fn unseen(&self, now: Timestamp) -> Option<u64> {
        use crate::faults::{Fault, present};
        let is_early = self.until.is_some_and(|until| now < until);
        let does_not_look = present() == Some(Fault::LostLease) || (present() == Some(Fault::OwnClock) && is_early);
        self.held.filter(|_| does_not_look)
    }

    /// Takes the lease again after it was lost, as if nothing could have happened meanwhile; returns its token.
    #[cfg(feature = "deliberate-faults")]
    pub(super) async fn take_anew(&self, tx: &mut Transaction<'_>, now: Timestamp) -> Result<u64, StepError> {
        let token = tx.acquire_lease(&self.name, self.holder, now, self.ttl).await?;
        token.ok_or_else(|| self.lost())
    }

    fn lost(&self) -> StepError {
        if self.held.is_some() {
            metrics::counter!("tributary_leases_lost_total", "work" => self.work).increment(1);
        } else {
            // Whoever does not hold it yet only comes second, and asks again after a pause.
            metrics::counter!("tributary_leases_refused_total", "work" => self.work).increment(1);
        }
        StepError::LeaseLost(self.name.clone())
    }

    /// Prolongs the lease, which is held, for as long as `work` takes.
    ///
    /// # Errors
    /// [`StepError::LeaseLost`] as soon as somebody else is seen to hold it; `work` is dropped then.
    pub(super) async fn keep_during<T, E: From<StepError>>(
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
                // The database is away for a moment: the step's own write will tell whether the lease outlived that.
                Err(error) => tracing::warn!(lease = self.name, %error, "could not renew a lease"),
            }
        }
    }
}

/// What `work` yields, or as an error what `other` does before. Both go on meanwhile: `work` may hold what `other` waits for, the
/// connection that writes, and would hold it for ever if nobody polled it.
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
