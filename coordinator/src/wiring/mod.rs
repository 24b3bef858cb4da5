//! Dependency injection: the only place that chooses implementations of database, blobs, device, clock and randomness.
//!
//! Public futures are boxed, here and in the engine: their code is then compiled once with this crate, instead of with each program and
//! test.

mod choice;
mod clock;
mod found;
mod keeping;
mod parts;
mod shared;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aggregation::device::DeviceReport;
use axum::Router;
use federation::time::{Clock, Timestamp};
use futures_util::future::BoxFuture;
use listener::{ConnectionCounts, ConnectionLimits, Entrance, Listener, PoolObserver};
use store::{Blobs, Database, Store, StoreConfig, StoreError};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::admin::{CreateOperatorToken, OperatorTokenReply, Role};

use self::choice::{
    aggregator, authority, bucket_apart, connection_limits, count, locks, members, rates, rows_alone, sealer, selected,
    server_key, store_config, timeouts, traces, url,
};
use self::clock::DatabaseClock;
pub use self::keeping::{ApartFile, RestoreOptions, back_up, check, files_apart, restore};
pub use self::parts::{Parts, StartError, SystemClock};
pub use self::worker::Worker;
use crate::admission::{CheckIns, Inbox, Linger, RoundWakeups, Uploads};
use crate::config::{Config, is_name};
use crate::http::{App, Document, EndedRounds, EventStreams, Identities, Limiter, Nonces, Rates, Refusals, TokenError};
use crate::observe;
use crate::observe::health::Health;
use crate::oidc::Oidc;
use crate::privacy::seal::Sealer;
use crate::process::host::host;
use crate::process::lock::Locks;
use crate::records::event_feed::EventFeed;
use crate::records::provenance::sign_unsigned;
use crate::rounds::models::Models;
use crate::rounds::proximal::ProximalSchedule;
use crate::rounds::reported_rounds::ReportedRounds;
use crate::rounds::selection::contests::Contests;
use crate::rounds::selection::invitations::Invitations;
use crate::rounds::sessions::Sessions;
use crate::rounds::waiting::waiting_for_cache::WaitingForCache;
use crate::work::{Engine, Environment, WorkConfig};

/// A coordinator without a socket, for tests and simulations.
pub struct Coordinator {
    /// Serves requests; each carries an [`crate::http::Connection`] in its extensions.
    pub router: Router,
    /// Runs the steps of background work.
    pub engine: Engine,
    pub store: Store,
    app: Arc<App>,
    /// Locks the data against other coordinators.
    locks: Locks,
    /// Cancelled at shutdown; ends waiting requests.
    stopping: CancellationToken,
    /// Signals the end of new facts to the writers.
    stopped: CancellationToken,
    tasks: TaskTracker,
}

/// A coordinator whose listeners accept connections.
pub struct Running {
    address: SocketAddr,
    url: String,
    signed_address: Option<SocketAddr>,
    health_address: Option<SocketAddr>,
    coordinator: Coordinator,
    observer: PoolObserver,
    served: JoinHandle<()>,
    signed_served: Option<JoinHandle<()>>,
    health_served: Option<JoinHandle<()>>,
    worked: Option<JoinHandle<()>>,
}

impl Coordinator {
    /// Opens everything except a socket, without background work.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn assemble(config: &Config, parts: Parts) -> BoxFuture<'_, Result<Self, StartError>> {
        Box::pin(async move {
            let store_config = store_config(config, &parts)?;
            let locks = locks(&store_config, &parts)?;
            let store = shared::open_store(config, &store_config).await?;
            let shared_clock = DatabaseClock::of(&store, Arc::clone(&parts.clock)).await?;
            let clock = shared_clock.clone().map_or(parts.clock, |clock| clock as Arc<dyn Clock>);
            let parts = Parts { clock, random: parts.random };
            let apart = bucket_apart(config, &parts).await.map_err(StartError::Apart)?;
            let _files = shared::hold_files(config, &store)?;
            shared::check_missing(config, &store).await?;
            let sealer = sealer(config, &parts, apart.as_ref())?;
            let name = config.work.name.clone().or_else(|| host().filter(|name| is_name(name)));
            let coordinator = Self::compose(config, name, parts, store, locks, sealer, Linger::USUAL)?;
            let (metrics, stopped) = (coordinator.app.metrics.clone(), coordinator.stopped.clone());
            coordinator.tasks.spawn(observe::fold(metrics, stopped));
            if let Some(clock) = shared_clock {
                let (store, stopped) = (coordinator.store.clone(), coordinator.stopped.clone());
                coordinator.tasks.spawn(async move { clock.follow(&store, &stopped).await });
            }
            Ok(coordinator)
        })
    }

    /// Assembles the coordinator on an open, possibly shared store; ignores `[database]`, `[blobs]` and `identity.seal_url`. For
    /// simulations with virtual time: its writes never wait for real time.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn assemble_on(config: &Config, parts: Parts, store: Store) -> Result<Self, StartError> {
        let sealer = sealer(config, &parts, None)?;
        Self::compose(config, config.work.name.clone(), parts, store, Locks::default(), sealer, Linger::NONE)
    }

    fn compose(
        config: &Config,
        name: Option<String>,
        parts: Parts,
        store: Store,
        locks: Locks,
        sealer: Sealer,
        linger: Linger,
    ) -> Result<Self, StartError> {
        let metrics = observe::recorder();
        let (aggregator, aggregator_because) = aggregator(config)?;
        let authority = authority(config, &parts)?;
        let members = members(config, authority.as_ref())?;
        let oidc = config.oidc.as_ref().map(|oidc| Oidc::open(oidc, &parts.clock)).transpose()?;
        let sealer = Arc::new(sealer);
        let (stopping, stopped, tasks) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        let models = Models::default();
        let traces = traces(config, &parts, &sealer, stopped.clone(), &tasks)?;
        let mut environment =
            Environment::new(store.clone(), Arc::clone(&aggregator), Arc::clone(&parts.clock), parts.random.clone());
        environment.aggregator_because = aggregator_because;
        environment.name = name;
        environment.sealer = Arc::clone(&sealer);
        environment.models = models.clone();
        environment.traces = traces.clone();
        environment.config = WorkConfig {
            poll_interval: Duration::from_millis(config.work.poll_interval_ms),
            lease_ttl: Duration::from_millis(config.work.lease_ttl_ms),
            ..environment.config
        };
        let app = Arc::new(App {
            check_ins: CheckIns::start(&store, config.http.check_ins_per_second, stopped.clone(), &tasks),
            round_wakeups: RoundWakeups::start(&store, stopped.clone(), &tasks),
            sessions: Sessions::default(),
            models,
            ended_rounds: EndedRounds::default(),
            mus: ProximalSchedule::default(),
            invitations: Invitations::default(),
            contests: Contests::default(),
            lacking: WaitingForCache::default(),
            retries: environment.config.retries(),
            sealer,
            inbox: Inbox::start(store.clone(), Arc::clone(&parts.clock), linger, stopped.clone(), &tasks),
            events: EventFeed::start(&store, stopped.clone(), &tasks),
            event_streams: EventStreams::new(config.http.event_streams_max, config.http.event_streams_per_token),
            uploads: Uploads::default(),
            nonces: Nonces::default(),
            refusals: Refusals::default(),
            aggregator,
            store: store.clone(),
            clock: parts.clock,
            random: parts.random,
            authority,
            members,
            oidc,
            identities: Identities::new(&store),
            limiter: Limiter::new(rates(config)),
            log_limiter: Limiter::new(Rates::OF_LOG),
            reported_rounds: ReportedRounds::default(),
            health: Health::default(),
            document: Document::default(),
            traces,
            metrics,
            config: config.clone(),
            shutdown: stopping.clone(),
        });
        let engine = Engine::new(environment);
        let router = crate::http::router(Arc::clone(&app));
        Ok(Self { router, engine, store, app, locks, stopping, stopped, tasks })
    }

    /// Opens everything, and checks the state left by earlier and concurrent processes.
    async fn begin(config: &Config, parts: Parts) -> Result<Self, StartError> {
        let coordinator = Self::assemble(config, parts).await?;
        shared::check(config, &coordinator.store, &coordinator.app).await?;
        let leases = if coordinator.store.is_shared() {
            0
        } else {
            // The locks guarantee that this is the only process: any remaining lease belongs to a dead one.
            coordinator.store.transact("clear_leases", |tx| Box::pin(async move { tx.clear_leases().await })).await?
        };
        coordinator.engine.check_ledgers().await?;
        coordinator.sign_versions().await?;
        found::tell(&coordinator.store, leases).await?;
        Ok(coordinator)
    }

    /// Signs the provenance of versions available to participants, where this key's signature is missing.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn sign_versions(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (store, app) = (&self.store, &self.app);
            let signed = sign_unsigned(store, app.signer(), app.now()).await?;
            if signed > 0 {
                let key = app.sealer.audit_key();
                tracing::warn!(signed, %key, "{signed} model versions had no record signed by {key}, and have one now");
            }
            Ok(())
        })
    }

    /// Opens everything, listens, serves, and runs background work if configured.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: &Config, parts: Parts) -> BoxFuture<'_, Result<Running, StartError>> {
        Box::pin(async move {
            // Before opening any files.
            let files = crate::process::open_files::raise_limit();
            let connection_limits = connection_limits(config, files);
            let coordinator = Self::begin(config, parts).await?;
            let app = &coordinator.app;
            let key = server_key(config, app)?;
            let tls = listener::server_config(key.chain, key.key, app.members.certificate())
                .map_err(|error| StartError::Tls(error.into()))?;
            let (listener, address) =
                listen(config, config.http.listen, Entrance::Tls(Arc::new(tls).into()), connection_limits).await?;
            let (signed_served, signed_address) = coordinator.serve_signed(config, connection_limits).await?.unzip();
            let (health_served, health_address) = coordinator.serve_health(config).await?.unzip();
            let observer = listener.observer();
            let served =
                tokio::spawn(listener.serve(Arc::clone(app), coordinator.router.clone(), coordinator.stopping.clone()));
            let worked = config.work.enabled.then(|| coordinator.run_engine());
            let url = url(config, address);
            tracing::info!(%address, url, "serving at {url}");
            Ok(Running {
                address,
                url,
                signed_address,
                health_address,
                coordinator,
                observer,
                served,
                signed_served,
                health_served,
                worked,
            })
        })
    }

    /// Serves signed requests without a socket, like [`Coordinator::router`] for requests authenticated by handshakes.
    pub fn signed_router(&self) -> Router {
        crate::http::signed_router(Arc::clone(&self.app))
    }

    /// Serves a TLS-terminating balancer, if configured.
    async fn serve_signed(
        &self,
        config: &Config,
        connection_limits: ConnectionLimits,
    ) -> Result<Option<(JoinHandle<()>, SocketAddr)>, StartError> {
        let Some(wanted) = config.http.signed_listen else { return Ok(None) };
        let (listener, address) = listen(config, wanted, Entrance::Signed, connection_limits).await?;
        let served = tokio::spawn(listener.serve(Arc::clone(&self.app), self.signed_router(), self.stopping.clone()));
        tracing::info!(%address, "serving signed requests at {address}, without TLS");
        Ok(Some((served, address)))
    }

    /// Our own authority's certificate in PEM. Peers must trust it unless the server presents another authority's certificate. Empty
    /// without our own authority: server and participants then have external certificates.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.app.authority.as_ref().map_or("", |authority| authority.certificate_pem())
    }

    /// The time for deadlines and leases: the database's, if several coordinators share one.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.app.now()
    }

    /// Creates an operator token without authorization: the caller controls the process.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn create_operator_token(&self, name: &str, role: Role) -> Result<OperatorTokenReply, TokenError> {
        let request = CreateOperatorToken { name: name.to_owned(), role, valid_for_ms: None, tasks: None };
        crate::http::issue_operator_token(&self.store, &self.app.random, self.app.now(), &request).await
    }

    /// Creates an admin token if no operator token exists. It is valid once it was shown and this returns.
    ///
    /// # Errors
    /// [`TokenError`]; the next start creates another.
    pub async fn first_operator_token(
        &self,
        show: impl FnOnce(&OperatorTokenReply) -> io::Result<()>,
    ) -> Result<Option<OperatorTokenReply>, TokenError> {
        let (any, admins) = self
            .store
            .read("find_tokens", |tx| {
                Box::pin(async move {
                    let any = !tx.operator_tokens(None, 1).await?.is_empty();
                    Ok::<_, StoreError>((any, tx.lasting_operator_tokens(Role::Admin.as_str()).await?))
                })
            })
            .await?;
        if any {
            if admins == 0 {
                tracing::warn!(
                    "every admin token is revoked or expires; `tributary token create --role admin --name NAME --offline` makes one \
                     while the coordinator does not run"
                );
            }
            return Ok(None);
        }
        let (random, now) = (&self.app.random, self.app.now());
        let first =
            CreateOperatorToken { name: "first".to_owned(), role: Role::Admin, valid_for_ms: None, tasks: None };
        crate::http::issue_shown_operator_token(&self.store, random, now, &first, show).await.map(Some)
    }

    /// Stops the background tasks after writing all queued facts; the data may then be opened by another process.
    pub fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.stopping.cancel();
            self.stopped.cancel();
            self.tasks.close();
            self.tasks.wait().await;
            self.locks.release();
        })
    }
}

impl Running {
    /// Address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the listener of signed requests, if configured.
    #[must_use]
    pub fn signed_address(&self) -> Option<SocketAddr> {
        self.signed_address
    }

    /// Address of the plain-text health listener, if configured.
    #[must_use]
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.health_address
    }

    /// Current connections and their memory.
    #[must_use]
    pub fn held(&self) -> ConnectionCounts {
        self.observer.held()
    }

    /// The URL with a valid certificate.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The authority's certificate in PEM, trusted by peers. See [`Coordinator::ca_pem`].
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.coordinator.ca_pem()
    }

    /// Creates an operator token; see [`Coordinator::create_operator_token`].
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn create_operator_token(&self, name: &str, role: Role) -> Result<OperatorTokenReply, TokenError> {
        self.coordinator.create_operator_token(name, role).await
    }

    /// Rejects new requests, answers accepted ones, waits for running steps, and writes queued facts.
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tracing::info!("shutting down");
            self.coordinator.stopping.cancel();
            ended("the listener", Some(self.served)).await;
            ended("the listener of signed requests", self.signed_served).await;
            ended("background work", self.worked).await;
            self.coordinator.stop().await;
            ended("the listener for health", self.health_served).await;
        })
    }
}

/// Waits for the end of a task, if it was started.
async fn ended(what: &str, task: Option<JoinHandle<()>>) {
    if let Some(task) = task
        && let Err(error) = task.await
    {
        tracing::error!(%error, "{what} ended badly: {error}");
    }
}

async fn listen(
    config: &Config,
    address: SocketAddr,
    entrance: Entrance,
    connection_limits: ConnectionLimits,
) -> Result<(Listener, SocketAddr), StartError> {
    let refused = |source| StartError::Listen { address, source };
    let unsent_max_bytes = count(config.http.unsent_max_bytes);
    let listener = Listener::bind(address, entrance, connection_limits, unsent_max_bytes, timeouts(config))
        .await
        .map_err(refused)?;
    let bound = listener.address().map_err(refused)?;
    Ok((listener, bound))
}

/// All devices known to this build, and the selected one.
///
/// # Errors
/// [`StartError::Device`].
pub fn devices(config: &Config) -> Result<Vec<DeviceReport>, StartError> {
    selected(config).map(|selected| selected.report)
}

/// Migrates the database to the newest schema.
///
/// # Errors
/// [`StartError::Locked`], [`StartError::Store`].
pub fn migrate(config: &Config, parts: Parts) -> BoxFuture<'_, Result<(), StartError>> {
    Box::pin(async move {
        let store_config = rows_alone(store_config(config, &parts)?);
        let _locks = locks(&store_config, &parts)?;
        Store::open(store_config).await?;
        Ok(())
    })
}

/// Creates an operator token in the database, for callers with write access to the file of a stopped coordinator, or with PostgreSQL's
/// password. It is valid once it was shown and this returns.
///
/// # Errors
/// [`TokenError`].
pub async fn create_operator_token_offline(
    config: &Config,
    parts: Parts,
    request: &CreateOperatorToken,
    show: impl FnOnce(&OperatorTokenReply) -> io::Result<()>,
) -> Result<OperatorTokenReply, TokenError> {
    let store_config = rows_alone(store_config(config, &parts)?);
    match &store_config.database {
        Database::SqliteFile(path) if path.exists() => {}
        Database::SqliteFile(path) => return Err(TokenError::NoDatabase(path.clone())),
        Database::SqliteMemory => return Err(TokenError::NoDatabase(":memory:".into())),
        // A running coordinator accepts the new token as a normal row.
        Database::Postgres(_) => {}
    }
    let _locks = locks(&store_config, &parts)?;
    let store = Store::open(StoreConfig { blobs: Blobs::Memory, ..store_config }).await?;
    crate::http::issue_shown_operator_token(&store, &parts.random, parts.clock.now(), request, show).await
}
