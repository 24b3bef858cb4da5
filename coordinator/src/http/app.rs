//! What every handler may use.

use std::sync::Arc;
use std::time::Duration;

use federation::id::TaskId;
use federation::time::{Clock, Timestamp};
use metrics_exporter_prometheus::PrometheusHandle;
use store::Store;
use store::entity::task::TaskRow;
use tokio_util::sync::CancellationToken;

use super::identities::Identities;
use super::inspect::ended_rounds::EndedRounds;
use super::limits::Limiter;
use super::openapi::Document;
use super::problem::{Error, Result};
use crate::admission::{Bell, Desk, Inbox, Uploads};
use crate::behind::Behind;
use crate::identity::{Authority, Members};
use crate::lines::Lines;
use crate::models::Models;
use crate::observe::health::Health;
use crate::proximal::Mus;
use crate::random::Random;
use crate::seal::Sealer;
use crate::session::Sessions;

/// What every handler may use; shared by all requests.
pub(crate) struct App {
    /// Rows and blobs.
    pub(crate) store: Store,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Ids, tokens and jitter.
    pub(crate) random: Random,
    /// Vouches for this server, unless that shows another authority's certificate and participants have certificates of another.
    pub(crate) authority: Option<Arc<Authority>>,
    /// Certifies participants.
    pub(crate) members: Members,
    /// Certificates seen lately.
    pub(crate) identities: Identities,
    /// How often each peer may ask.
    pub(crate) limiter: Limiter,
    /// Where participants wait for work.
    pub(crate) desk: Desk,
    /// Where participants wait for their round to go on.
    pub(crate) bell: Bell,
    /// Sessions of secure aggregation, as far as they were read lately.
    pub(crate) sessions: Sessions,
    /// The arithmetic of tasks.
    pub(crate) models: Models,
    /// What viewers see of rounds that have ended.
    pub(crate) ended_rounds: EndedRounds,
    /// How strongly the present rounds' local models are held.
    pub(crate) mus: Mus,
    /// Seals what must not be read from a backup.
    pub(crate) sealer: Arc<Sealer>,
    /// Where masked inputs are admitted.
    pub(crate) inbox: Inbox,
    /// Which masked inputs are arriving.
    pub(crate) uploads: Uploads,
    /// Participants that have seen more than this coordinator.
    pub(crate) behind: Behind,
    /// How slow participants' lines are.
    pub(crate) lines: Lines,
    /// What `/readyz` found out.
    pub(crate) health: Health,
    /// What `/openapi.json` shows.
    pub(crate) document: Document,
    /// What `/metrics` shows.
    pub(crate) metrics: PrometheusHandle,
    /// Bounds.
    pub(crate) settings: Settings,
    /// Cancelled when no new work is taken; long-polls then answer at once.
    pub(crate) shutdown: CancellationToken,
}

/// Bounds that handlers keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Largest JSON body.
    pub(crate) body_max_bytes: u64,
    /// Largest masked input of any task.
    pub(crate) masked_input_max_bytes: u64,
    /// Time for a request.
    pub(crate) request_timeout: Duration,
    /// Time for a masked input to arrive.
    pub(crate) upload_timeout: Duration,
    /// Longest wait of a long-poll.
    pub(crate) poll_max: Duration,
    /// Of participants' certificates.
    pub(crate) certificate_lifetime: Duration,
}

impl App {
    /// The time.
    #[must_use]
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The task that a path names by its id or, for people, by its name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) async fn task(&self, named: &str) -> Result<TaskRow> {
        let id: Option<TaskId> = named.parse().ok();
        let found = self
            .store
            .read("find_task", |tx| {
                Box::pin(async move {
                    match id {
                        Some(id) => tx.task(id).await,
                        None if task_spec::is_name(named) => tx.task_by_name(named).await,
                        None => Ok(None),
                    }
                })
            })
            .await?;
        found.ok_or_else(|| Error::NotFound(format!("there is no task {named:?}")))
    }
}
