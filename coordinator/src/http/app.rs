//! Shared state of all handlers.

use std::sync::Arc;

use aggregation::Aggregator;
use federation::id::TaskId;
use federation::time::{Clock, Timestamp};
use metrics_exporter_prometheus::PrometheusHandle;
use store::entity::task::TaskRow;
use store::entity::token::TaskScope;
use store::{Store, StoreError, Transaction};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::identities::Identities;
use super::inspect::ended_rounds::EndedRounds;
use super::limits::Limiter;
use super::nonces::Nonces;
use super::openapi::Document;
use super::problem::{Error, Result};
use super::refusals::Refusals;
use crate::admission::{CheckIns, Inbox, RoundWakeups, Uploads};
use crate::config::Config;
use crate::event_feed::EventFeed;
use crate::identity::{Authority, Members};
use crate::invitations::Invitations;
use crate::lacking::Lacking;
use crate::models::Models;
use crate::observe::Traces;
use crate::observe::health::Health;
use crate::oidc::Oidc;
use crate::provenance::Signer;
use crate::proximal::ProximalSchedule;
use crate::random::Random;
use crate::reported_rounds::ReportedRounds;
use crate::retries::Retries;
use crate::seal::Sealer;
use crate::sessions::Sessions;

/// Shared by all requests.
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    /// For ids, tokens and jitter.
    pub(crate) random: Random,
    /// Our own authority, unless the server presents another authority's certificate and participants are certified
    /// elsewhere.
    pub(crate) authority: Option<Arc<Authority>>,
    pub(crate) members: Members,
    /// The provider of operators' identities, if there is one.
    pub(crate) oidc: Option<Oidc>,
    /// Cache of certificates.
    pub(crate) identities: Identities,
    /// Rate limits of peers.
    pub(crate) limiter: Limiter,
    /// Rate limits for events that tokens which only read may cause.
    pub(crate) log_limiter: Limiter,
    /// Participants that wait for work.
    pub(crate) check_ins: CheckIns,
    /// Requests that wait for their round to change.
    pub(crate) round_wakeups: RoundWakeups,
    /// Cache of secure aggregation sessions.
    pub(crate) sessions: Sessions,
    pub(crate) models: Models,
    /// Cache of views of rounds that have ended.
    pub(crate) ended_rounds: EndedRounds,
    /// The proximal μ of current rounds.
    pub(crate) mus: ProximalSchedule,
    /// The invitations to rounds that have not drawn yet.
    pub(crate) invitations: Invitations,
    /// What tasks wait for, for participants that wait with them.
    pub(crate) lacking: Lacking,
    /// The pauses of background work after failed attempts at a round.
    pub(crate) retries: Retries,
    /// Seals data that must not be readable from a backup.
    pub(crate) sealer: Arc<Sealer>,
    /// New events.
    pub(crate) events: EventFeed,
    /// Places for streams of events.
    pub(crate) event_streams: Arc<Semaphore>,
    /// The entrance for facts.
    pub(crate) inbox: Inbox,
    /// Masked inputs being received.
    pub(crate) uploads: Uploads,
    /// Nonces of signed requests.
    pub(crate) nonces: Nonces,
    /// Of which refused sign-ins the log was told.
    pub(crate) refusals: Refusals,
    /// Participants that have seen more than this coordinator.
    pub(crate) reported_rounds: ReportedRounds,
    /// Results of `/readyz`.
    pub(crate) health: Health,
    /// Content of `/openapi.json`.
    pub(crate) document: Document,
    /// Traces of updates, if any.
    pub(crate) traces: Traces,
    /// What sums; its memory is told.
    pub(crate) aggregator: Arc<dyn Aggregator>,
    /// Content of `/metrics`.
    pub(crate) metrics: PrometheusHandle,
    pub(crate) config: Config,
    /// Cancelled at shutdown; long polls then answer at once.
    pub(crate) shutdown: CancellationToken,
}

impl App {
    #[must_use]
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Signs where model versions come from.
    pub(crate) fn signer(&self) -> Signer<'_> {
        Signer { models: &self.models, sealer: &self.sealer }
    }

    /// The task that a path names by its id or name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) async fn task(&self, named: &str) -> Result<TaskRow> {
        let found = self.store.read("find_task", |tx| Box::pin(async move { named_task(tx, named).await })).await?;
        found.ok_or_else(|| no_task(named))
    }

    /// The same, if it is within a scope; another one is as if it were not there.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) async fn task_within(&self, scope: &TaskScope, named: &str) -> Result<TaskRow> {
        let task = self.task(named).await?;
        if scope.has(Some(task.id)) { Ok(task) } else { Err(no_task(named)) }
    }
}

/// The task of this id or name.
///
/// # Errors
/// The store's.
pub(super) async fn named_task(
    tx: &mut Transaction<'_>,
    named: &str,
) -> std::result::Result<Option<TaskRow>, StoreError> {
    match named.parse::<TaskId>() {
        Ok(id) => tx.task(id).await,
        Err(_) if task_spec::is_name(named) => tx.task_by_name(named).await,
        Err(_) => Ok(None),
    }
}

fn no_task(named: &str) -> Error {
    Error::NotFound(format!("there is no task {named:?}"))
}
