//! Assigns positions in the audit log to events, and chains and signs them.
//!
//! Events are written without a position in the transactions of their changes, which need not wait for each other. One worker at a time
//! numbers the committed events, in writing order as far as visible: an event committed later gets a later position, without waiting for
//! gaps.

use std::time::Duration;

use federation::time::Timestamp;
use futures_util::FutureExt as _;
use store::entity::event::Placing;
use store::{Transaction, WakeEvent};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wire::audit::ChainEnd;

use super::engine::lease::Lease;
use super::{Environment, StepError};
use crate::records::audit;

/// Maximum number of events numbered in one transaction.
const BATCH: u32 = 500;
/// Minimum interval between two batches, which collects events.
const REST: Duration = Duration::from_millis(20);
/// Interval between signatures of a growing log's end.
const SIGNED_EVERY: Duration = Duration::from_secs(1);
/// Validity of the lease after its holder dies. A batch takes milliseconds; a slower worker detects in its transaction that another has
/// taken over.
const LEASE_MAX: Duration = Duration::from_secs(1);
/// Pause after a failure.
const BACK_OFF: Duration = Duration::from_secs(1);

/// The log's numbering worker.
pub(super) struct EventLog {
    env: Environment,
    lease: Lease,
    /// When this worker last signed the end.
    signed: Option<Instant>,
    /// Whether the signature covers every known entry.
    is_covered: bool,
    has_failed: bool,
}

/// The result of one transaction.
struct Batch {
    numbered: usize,
    /// When the oldest of them happened.
    oldest: Option<Timestamp>,
    is_signed: bool,
    /// Whether the end of the log is signed.
    is_covered: bool,
    at: Timestamp,
}

impl EventLog {
    pub(super) fn new(env: Environment, holder: Uuid) -> Self {
        let lease = Lease::of_events(holder, env.config.lease_ttl.min(LEASE_MAX));
        Self { env, lease, signed: None, is_covered: false, has_failed: false }
    }

    /// Numbers events as they come, until `shutdown`; then gives the lease up.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        metrics::describe_counter!(
            "tributary_events_numbered_total",
            "Events that got their position in the audit log"
        );
        metrics::describe_histogram!("tributary_event_lag_seconds", "How long events waited for their position");
        let mut wakes = self.env.store.wake().subscribe();
        let mut rested = Instant::now();
        while !shutdown.is_cancelled() {
            // A worker without the lease pauses: the holder gets the same wake-ups.
            let (wait, listens) = match self.place().await {
                Ok(wait) => (wait, true),
                Err(StepError::LeaseLost(_)) => {
                    self.is_covered = true;
                    (LEASE_MAX / 2, false)
                }
                Err(error) => {
                    self.tell(&error);
                    (BACK_OFF, false)
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
                () = wakes.until(|event| *event == WakeEvent::Recorded), if listens => tokio::time::sleep_until(rested).await,
            }
            rested = Instant::now() + REST;
            while wakes.next().now_or_never().flatten().is_some() {}
        }
        if let Err(error) = self.lease.release(&self.env).await {
            tracing::debug!(%error, "the lease of the log ends by itself");
        }
    }

    /// Numbers and signs all events; returns their number, and releases the lease.
    pub(super) async fn place_all(&mut self) -> Result<usize, StepError> {
        let mut placed = 0;
        while self.has_unnumbered().await? {
            placed += self.batch(true).await?;
        }
        self.lease.release(&self.env).await?;
        Ok(placed)
    }

    /// Numbers the events; returns when to check again without a wake-up.
    async fn place(&mut self) -> Result<Duration, StepError> {
        let poll = self.env.config.poll_interval;
        if self.has_unnumbered().await? {
            // An event recorded after an incomplete batch causes a wake-up, with the usual rest.
            while self.batch(self.until_due().is_zero()).await? >= BATCH as usize {}
        }
        if self.is_covered {
            return Ok(poll);
        }
        let left = self.until_due();
        if left.is_zero() {
            self.batch(true).await?;
        }
        Ok(if left.is_zero() { poll } else { left.min(poll) })
    }

    /// Time until the log's end may be signed again.
    fn until_due(&self) -> Duration {
        self.signed.map_or(Duration::ZERO, |signed| SIGNED_EVERY.saturating_sub(signed.elapsed()))
    }

    async fn has_unnumbered(&self) -> Result<bool, StepError> {
        let first =
            self.env.store.read("unnumbered events", |tx| Box::pin(async move { tx.unnumbered_events(1).await }));
        Ok(!first.await?.is_empty())
    }

    /// Numbers one batch, and signs the end of the log on request.
    async fn batch(&mut self, signs: bool) -> Result<usize, StepError> {
        let (env, lease) = (&self.env, &self.lease);
        let done = env.store.transact("number events", |tx| {
            Box::pin(async move {
                let (token, now) = lease.confirm(tx, &*env.clock).await?;
                Ok::<_, StepError>((token, place(tx, env, signs, now).await?))
            })
        });
        let (token, batch) = match done.await {
            Ok(done) => done,
            Err(error) => {
                self.lease.note(None);
                return Err(error);
            }
        };
        self.lease.note(Some(token));
        if std::mem::take(&mut self.has_failed) {
            tracing::info!("events get their positions again");
        }
        self.is_covered = batch.is_covered;
        if batch.is_signed {
            self.signed = Some(Instant::now());
        }
        if let Some(oldest) = batch.oldest {
            metrics::counter!("tributary_events_numbered_total").increment(batch.numbered as u64);
            metrics::histogram!("tributary_event_lag_seconds").record(batch.at.since(oldest));
            self.env.store.wake().publish(WakeEvent::Numbered);
        }
        Ok(batch.numbered)
    }

    fn tell(&mut self, error: &StepError) {
        metrics::counter!("tributary_step_errors_total", "step" => "number_events", "error" => error.code())
            .increment(1);
        if std::mem::replace(&mut self.has_failed, true) {
            tracing::debug!(%error, "events cannot be given their positions");
        } else {
            tracing::error!(%error, "events cannot be given their positions; this is tried again");
        }
    }
}

async fn place(tx: &mut Transaction<'_>, env: &Environment, signs: bool, now: Timestamp) -> Result<Batch, StepError> {
    let mut end = chain_end(tx).await?;
    let rows = tx.unnumbered_events(BATCH).await?;
    let mut placings = Vec::with_capacity(rows.len());
    for row in &rows {
        end = end.and(&row.event);
        placings.push(Placing { id: row.id, position: end.position, hash: end.hash });
    }
    if !placings.is_empty() {
        tx.number_events(&placings).await?;
    }
    let is_covered = tx.last_audit_head().await?.map_or(0, |head| head.position) >= end.position;
    let is_signed = signs && !is_covered;
    if is_signed {
        tx.insert_audit_head(&audit::row(&env.sealer.sign_head(end, now))).await?;
    }
    let oldest = rows.iter().map(|row| row.event.at).min();
    Ok(Batch { numbered: rows.len(), oldest, is_signed, is_covered: is_covered || is_signed, at: now })
}

async fn chain_end(tx: &mut Transaction<'_>) -> Result<ChainEnd, StepError> {
    let last = tx.last_event().await?;
    Ok(last.map_or_else(ChainEnd::default, |(position, hash)| ChainEnd { position, hash }))
}
