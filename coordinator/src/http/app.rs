//! Shared state of all handlers.

use std::sync::Arc;

use aggregation::Aggregator;
use federation::id::TaskId;
use federation::time::{Clock, Timestamp};
use metrics_exporter_prometheus::PrometheusHandle;
use store::entity::task::TaskRow;
use store::entity::token::TaskScope;
use store::{Store, StoreError, Transaction};
use tokio_util::sync::CancellationToken;

use super::auth::identities::Identities;
use super::auth::nonces::Nonces;
use super::auth::refusals::Refusals;
use super::event_streams::EventStreams;
use super::inspect::ended_rounds::EndedRounds;
use super::limits::Limiter;
use super::openapi::Document;
use super::reply::problem::{Error, Result};
use crate::admission::{CheckIns, Inbox, RoundWakeups, Uploads};
use crate::config::Config;
use crate::identity::{Authority, Members};
use crate::observe::Traces;
use crate::observe::health::Health;
use crate::oidc::Oidc;
use crate::privacy::seal::Sealer;
use crate::random::Random;
use crate::records::event_feed::EventFeed;
use crate::records::provenance::Signer;
use crate::rounds::models::Models;
use crate::rounds::proximal::ProximalSchedule;
use crate::rounds::reported_rounds::ReportedRounds;
use crate::rounds::selection::contests::Contests;
use crate::rounds::selection::invitations::Invitations;
use crate::rounds::sessions::Sessions;
use crate::rounds::waiting::retries::Retries;
use crate::rounds::waiting::waiting_for_cache::WaitingForCache;

/// State shared by all requests.
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    /// For ids, tokens and jitter.
    pub(crate) random: Random,
    /// The coordinator's own authority. `None` if the server presents another authority's certificate and participants are certified
    /// elsewhere.
    pub(crate) authority: Option<Arc<Authority>>,
    pub(crate) members: Members,
    /// The operators' identity provider, if configured.
    pub(crate) oidc: Option<Oidc>,
    /// Cache of certificates.
    pub(crate) identities: Identities,
    /// Rate limits of peers.
    pub(crate) limiter: Limiter,
    /// Rate limits for events caused by read-only tokens.
    pub(crate) log_limiter: Limiter,
    /// Participants waiting for work.
    pub(crate) check_ins: CheckIns,
    /// Requests waiting for a round to change.
    pub(crate) round_wakeups: RoundWakeups,
    /// Cache of secure aggregation sessions.
    pub(crate) sessions: Sessions,
    pub(crate) models: Models,
    /// Cache of views of ended rounds.
    pub(crate) ended_rounds: EndedRounds,
    /// The proximal μ of current rounds.
    pub(crate) mus: ProximalSchedule,
    /// Pending invitations to selecting rounds.
    pub(crate) invitations: Invitations,
    /// Chooses among concurrent key-collecting rounds for each participant.
    pub(crate) contests: Contests,
    /// The reasons why tasks wait, shown to their waiting participants.
    pub(crate) lacking: WaitingForCache,
    /// Retry delays of background work after failed attempts at a round.
    pub(crate) retries: Retries,
    /// Seals data to keep it unreadable in a backup.
    pub(crate) sealer: Arc<Sealer>,
    /// Feed of new events.
    pub(crate) events: EventFeed,
    /// Slots for event streams.
    pub(crate) event_streams: EventStreams,
    /// Queue for facts to be stored.
    pub(crate) inbox: Inbox,
    /// Masked inputs being received.
    pub(crate) uploads: Uploads,
    /// Nonces of signed requests.
    pub(crate) nonces: Nonces,
    /// Rate limit of log entries about rejected sign-ins.
    pub(crate) refusals: Refusals,
    /// Rounds reported by participants but unknown to this coordinator.
    pub(crate) reported_rounds: ReportedRounds,
    /// Results of `/readyz`.
    pub(crate) health: Health,
    /// Content of `/openapi.json`.
    pub(crate) document: Document,
    /// Traces of updates, if enabled.
    pub(crate) traces: Traces,
    /// The aggregator; its memory is shown in the metrics.
    pub(crate) aggregator: Arc<dyn Aggregator>,
    /// Content of `/metrics`.
    pub(crate) metrics: PrometheusHandle,
    pub(crate) config: Config,
    /// Cancelled at shutdown; long polls then return at once.
    pub(crate) shutdown: CancellationToken,
}

impl App {
    #[must_use]
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Signs the provenance of model versions.
    pub(crate) fn signer(&self) -> Signer<'_> {
        Signer { models: &self.models, sealer: &self.sealer }
    }

    /// Finds a task by the id or name in a path.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) async fn task(&self, named: &str) -> Result<TaskRow> {
        let found = self.store.read("find_task", |tx| Box::pin(async move { named_task(tx, named).await })).await?;
        found.ok_or_else(|| no_task(named))
    }

    /// Finds a task like [`Self::task`], but treats tasks outside the scope as missing.
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
/// Errors of the store.
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
