//! Batches many facts into one transaction: a sender waits for the commit of its fact, and shares its cost with all concurrent senders.

use std::sync::Arc;
use std::time::Duration;

use federation::time::Clock;
use store::{Store, StoreError, WakeEvent};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::receipt::{Fact, FactOutcome, write};

/// Maximum number of facts in a transaction.
const BATCH_MAX: usize = 256;
/// Maximum number of queued facts; further senders wait.
const QUEUE: usize = 1024;

/// How long facts without a waiting sender are held, to batch them with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linger {
    facts: Duration,
    /// The same for batches of renewals only, which extend check-ins still valid for seconds. A crash loses only these: waiting
    /// participants retry, and are written.
    renewals: Duration,
}

impl Linger {
    pub(crate) const USUAL: Self = Self { facts: Duration::from_millis(20), renewals: Duration::from_millis(250) };
    /// Writes at once, for callers with virtual time.
    pub(crate) const NONE: Self = Self { facts: Duration::ZERO, renewals: Duration::ZERO };
}

/// Reasons why a fact was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InboxError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("shut down")]
    Closed,
}

type Job = (Fact, Option<oneshot::Sender<Result<FactOutcome, StoreError>>>);

/// The queue for facts.
#[derive(Clone)]
pub(crate) struct Inbox(mpsc::Sender<Job>);

impl Inbox {
    /// Starts the writer task. After `shutdown` it writes all queued facts and ends.
    #[must_use]
    pub(crate) fn start(
        store: Store,
        clock: Arc<dyn Clock>,
        linger: Linger,
        shutdown: CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tasks.spawn(run(store, clock, linger, receiver, shutdown));
        Self(sender)
    }

    /// Writes a fact; returns once it is durable.
    ///
    /// # Errors
    /// [`InboxError`]; the fact is then not written.
    pub(crate) async fn submit(&self, fact: Fact) -> Result<FactOutcome, InboxError> {
        let (reply, answer) = oneshot::channel();
        self.0.send((fact, Some(reply))).await.map_err(|_| InboxError::Closed)?;
        Ok(answer.await.map_err(|_| InboxError::Closed)??)
    }

    /// Queues a fact to be written soon, before any later submission; returns whether it was queued. A full queue drops the fact: callers
    /// must not depend on it.
    pub(crate) fn note(&self, fact: Fact) -> bool {
        let left = self.0.try_send((fact, None)).is_ok();
        if !left {
            tracing::debug!("a note was dropped: the inbox is full");
        }
        left
    }
}

async fn run(
    store: Store,
    clock: Arc<dyn Clock>,
    linger: Linger,
    mut receiver: mpsc::Receiver<Job>,
    shutdown: CancellationToken,
) {
    let mut jobs = Vec::with_capacity(BATCH_MAX);
    loop {
        tokio::select! {
            biased;
            count = receiver.recv_many(&mut jobs, BATCH_MAX) => if count == 0 { return },
            () = shutdown.cancelled() => {
                // Queued facts are still written; new ones are rejected.
                receiver.close();
                if receiver.recv_many(&mut jobs, BATCH_MAX).await == 0 { return }
            }
        }
        linger.fill(&mut receiver, &mut jobs).await;
        deliver(&store, &*clock, std::mem::take(&mut jobs)).await;
    }
}

impl Linger {
    /// Waits for further facts to join `jobs`.
    async fn fill(self, receiver: &mut mpsc::Receiver<Job>, jobs: &mut Vec<Job>) {
        let began = tokio::time::Instant::now();
        while jobs.len() < BATCH_MAX && jobs.iter().all(|(_, reply)| reply.is_none()) {
            let renew_only = jobs.iter().all(|(fact, _)| matches!(fact, Fact::StillThere(_)));
            let time = if renew_only { self.renewals } else { self.facts };
            if time.is_zero() {
                return;
            }
            let room = BATCH_MAX - jobs.len();
            match tokio::time::timeout_at(began + time, receiver.recv_many(jobs, room)).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

async fn deliver(store: &Store, clock: &dyn Clock, jobs: Vec<Job>) {
    metrics::histogram!("tributary_admission_batch_size").record(u32::try_from(jobs.len()).unwrap_or(u32::MAX));
    let (facts, replies): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
    match write_batch(store, clock, &facts).await {
        Ok(outcomes) => {
            for (reply, outcome) in replies.into_iter().zip(outcomes) {
                answer(reply, Ok(outcome));
            }
        }
        Err(error) if facts.len() == 1 => {
            if let Some(reply) = replies.into_iter().next() {
                answer(reply, Err(error));
            }
        }
        Err(error) if of_everybody(&error).is_some() => {
            let told = replies.into_iter().filter_map(|reply| Some((reply, of_everybody(&error)?)));
            told.for_each(|(reply, error)| answer(reply, Err(error)));
        }
        Err(error) => {
            // One fact may be the cause: writing each separately protects the others.
            tracing::debug!(%error, facts = facts.len(), "a batch failed; writing its facts one by one");
            for (fact, reply) in facts.into_iter().zip(replies) {
                let outcome = write_batch(store, clock, &[fact]).await;
                answer(reply, outcome.map(|mut outcomes| outcomes.pop().unwrap_or(FactOutcome::Written)));
            }
        }
    }
}

/// The error again, if no fact caused it: the database or the disk is unavailable, and retrying each fact would only take longer.
fn of_everybody(error: &StoreError) -> Option<StoreError> {
    match error {
        StoreError::Busy => Some(StoreError::Busy),
        StoreError::Unreachable(why) => Some(StoreError::Unreachable(why.clone())),
        StoreError::NoAccess(why) => Some(StoreError::NoAccess(why.clone())),
        StoreError::BlobsAway(why) => Some(StoreError::BlobsAway(why.clone())),
        StoreError::Full => Some(StoreError::Full),
        StoreError::TooManyFiles => Some(StoreError::TooManyFiles),
        StoreError::ReadOnly => Some(StoreError::ReadOnly),
        StoreError::Conflict(_)
        | StoreError::Corrupt(_)
        | StoreError::MissingBlob(_)
        | StoreError::BeingRemoved(_)
        | StoreError::Schema(_)
        | StoreError::Fault(_) => None,
    }
}

async fn write_batch(store: &Store, clock: &dyn Clock, facts: &[Fact]) -> Result<Vec<FactOutcome>, StoreError> {
    let now = clock.now();
    let outcomes = store.transact("admit", |tx| Box::pin(async move { write(tx, facts, now).await })).await?;
    if facts.iter().any(Fact::may_move_a_round) {
        store.wake().publish(WakeEvent::Work);
    }
    Ok(outcomes)
}

fn answer(reply: Option<oneshot::Sender<Result<FactOutcome, StoreError>>>, outcome: Result<FactOutcome, StoreError>) {
    if let Some(reply) = reply {
        // A sender that gave up retries and gets the result.
        let _ = reply.send(outcome);
    } else if let Err(error) = outcome {
        tracing::warn!(%error, "a note could not be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise each of 256 facts would wait for the database as long as the whole batch.
    #[test]
    fn what_no_fact_causes_is_told_to_everybody_at_once() {
        let away = || "away".to_owned();
        for error in [
            StoreError::Busy,
            StoreError::Unreachable(away()),
            StoreError::NoAccess(away()),
            StoreError::BlobsAway(away()),
            StoreError::Full,
            StoreError::TooManyFiles,
            StoreError::ReadOnly,
        ] {
            assert_eq!(of_everybody(&error).map(|same| same.to_string()), Some(error.to_string()));
        }
        for error in [StoreError::Conflict(away()), StoreError::corrupt("row"), StoreError::fault("a bug")] {
            assert!(of_everybody(&error).is_none(), "{error}: one fact may be the cause");
        }
    }
}
