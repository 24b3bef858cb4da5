//! Dependency injection: the only place that chooses implementations of database, blobs, device, clock and randomness.
//!
//! What programs call is boxed, here and in the engine: the code behind it is then compiled with this crate, and not again with each
//! program and test that awaits it.

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
use store::{Blobs, Database, Store, StoreConfig, StoreError};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::admin::{CreateOperatorToken, OperatorTokenReply, Role};

use self::choice::{
    aggregator, authority, bucket_apart, connection_limits, count, locks, members, rates, rows_alone, sealer, selected,
    server_key, store_config, traces, url,
};
use self::clock::DatabaseClock;
pub use self::keeping::{ApartFile, back_up, check, files_apart, restore};
pub use self::parts::{Parts, StartError, SystemClock};
pub use self::worker::Worker;
use crate::admission::{CheckIns, Inbox, Linger, RoundWakeups, Uploads};
use crate::config::{Config, is_name};
use crate::event_feed::EventFeed;
use crate::host::host;
use crate::http::{
    App, ConnectionCounts, ConnectionLimits, Document, EndedRounds, Entrance, Identities, Limiter, Listener, Nonces,
    PoolObserver, Refusals, TokenError,
};
use crate::invitations::Invitations;
use crate::lock::Locks;
use crate::models::Models;
use crate::observe;
use crate::observe::health::Health;
use crate::oidc::Oidc;
use crate::provenance::sign_unsigned;
use crate::proximal::ProximalSchedule;
use crate::reported_rounds::ReportedRounds;
use crate::seal::Sealer;
use crate::sessions::Sessions;
use crate::shortage::Lacking;
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
    /// Tells waiting requests to stop.
    stopping: CancellationToken,
    /// Tells the writers that no more facts will arrive.
    stopped: CancellationToken,
    tasks: TaskTracker,
}

/// A serving coordinator.
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
    /// Opens everything except a socket, and starts no background work.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn assemble(config: &Config, parts: Parts) -> BoxFuture<'_, Result<Self, StartError>> {
        Box::pin(async move {
            let store_config = store_config(config, &parts)?;
            let locks = locks(&store_config, &parts)?;
            let store = Store::open(store_config).await?;
            let shared_clock = DatabaseClock::of(&store, Arc::clone(&parts.clock)).await?;
            let clock = shared_clock.clone().map_or(parts.clock, |clock| clock as Arc<dyn Clock>);
            let parts = Parts { clock, random: parts.random };
            let apart = bucket_apart(config, &parts).await.map_err(StartError::Apart)?;
            let _files = shared::hold_files(config, &store)?;
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

    /// The same on a store that is open already, and that others may use as well; `[database]`, `[blobs]` and `identity.seal_url` say
    /// nothing then. For simulations, which own time: nothing that it writes waits for real time to pass.
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
        let app = Arc::new(App {
            check_ins: CheckIns::start(&store, config.http.check_ins_per_second, stopped.clone(), &tasks),
            round_wakeups: RoundWakeups::start(&store, stopped.clone(), &tasks),
            sessions: Sessions::default(),
            models: models.clone(),
            ended_rounds: EndedRounds::default(),
            mus: ProximalSchedule::default(),
            invitations: Invitations::default(),
            lacking: Lacking::default(),
            sealer: Arc::clone(&sealer),
            inbox: Inbox::start(store.clone(), Arc::clone(&parts.clock), linger, stopped.clone(), &tasks),
            events: EventFeed::start(&store, stopped.clone(), &tasks),
            event_streams: Arc::new(Semaphore::new(count(config.http.event_streams_max))),
            uploads: Uploads::default(),
            nonces: Nonces::default(),
            refusals: Refusals::default(),
            aggregator: Arc::clone(&aggregator),
            store: store.clone(),
            clock: Arc::clone(&parts.clock),
            random: parts.random.clone(),
            authority,
            members,
            oidc,
            identities: Identities::new(&store),
            limiter: Limiter::new(rates(config)),
            reported_rounds: ReportedRounds::default(),
            health: Health::default(),
            document: Document::default(),
            traces: traces.clone(),
            metrics,
            config: config.clone(),
            shutdown: stopping.clone(),
        });
        let mut environment = Environment::new(store.clone(), aggregator, parts.clock, parts.random);
        environment.aggregator_because = aggregator_because;
        environment.name = name;
        environment.sealer = sealer;
        environment.models = models;
        environment.traces = traces;
        environment.config = WorkConfig {
            poll_interval: Duration::from_millis(config.work.poll_interval_ms),
            lease_ttl: Duration::from_millis(config.work.lease_ttl_ms),
            ..environment.config
        };
        let engine = Engine::new(environment);
        let router = crate::http::router(Arc::clone(&app));
        Ok(Self { router, engine, store, app, locks, stopping, stopped, tasks })
    }

    /// Opens everything, and looks at what an earlier process left and what others beside this one have.
    async fn begin(config: &Config, parts: Parts) -> Result<Self, StartError> {
        let coordinator = Self::assemble(config, parts).await?;
        shared::check(&coordinator.store, &coordinator.app).await?;
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

    /// Signs where the versions come from that participants may be given, as far as this key has not.
    ///
    /// # Errors
    /// The store's.
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
            // Before anything is opened.
            let files = crate::open_files::raise_limit();
            let connection_limits = connection_limits(config, files);
            let coordinator = Self::begin(config, parts).await?;
            let app = &coordinator.app;
            let key = server_key(config, app)?;
            let tls = crate::http::server_config(key, app.members.certificate())
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

    /// Serves signed requests, without a socket, as [`Coordinator::router`] serves those of whom a handshake knows.
    pub fn signed_router(&self) -> Router {
        crate::http::signed_router(Arc::clone(&self.app))
    }

    /// Serves a balancer that ends TLS, if configured.
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

    /// Our own authority's certificate in PEM, which peers must trust unless the server presents another authority's
    /// certificate. Empty without our own authority: server and participants then have certificates from elsewhere.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.app.authority.as_ref().map_or("", |authority| authority.certificate_pem())
    }

    /// The time by which it judges deadlines and leases: the database's, where several coordinators share one.
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

    /// Creates an admin token if there is no operator token yet. It is valid once it was shown and this returns.
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

    /// The URL for which its certificate is valid.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The authority's certificate in PEM, which peers must trust. See [`Coordinator::ca_pem`].
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

    /// Accepts no new requests, answers those accepted, lets running steps end, and writes queued facts.
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tracing::info!("shutting down");
            self.coordinator.stopping.cancel();
            if let Err(error) = self.served.await {
                tracing::error!(%error, "the listener ended badly: {error}");
            }
            if let Some(Err(error)) = async { Some(self.signed_served?.await) }.await {
                tracing::error!(%error, "the listener of signed requests ended badly: {error}");
            }
            if let Some(worked) = self.worked
                && let Err(error) = worked.await
            {
                tracing::error!(%error, "background work ended badly: {error}");
            }
            self.coordinator.stop().await;
            if let Some(Err(error)) = async { Some(self.health_served?.await) }.await {
                tracing::error!(%error, "the listener for health ended badly: {error}");
            }
        })
    }
}

async fn listen(
    config: &Config,
    address: SocketAddr,
    entrance: Entrance,
    connection_limits: ConnectionLimits,
) -> Result<(Listener, SocketAddr), StartError> {
    let refused = |source| StartError::Listen { address, source };
    let listener = Listener::bind(address, entrance, connection_limits, count(config.http.unsent_max_bytes))
        .await
        .map_err(refused)?;
    let bound = listener.address().map_err(refused)?;
    Ok((listener, bound))
}

/// All devices that this build knows, and the result of the selection.
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

/// Creates an operator token in the database, for callers that may write that file (of a stopped coordinator), or have
/// PostgreSQL's password. It is valid once it was shown and this returns.
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
        // A token that is created beside a running coordinator is a row like any other.
        Database::Postgres(_) => {}
    }
    let _locks = locks(&store_config, &parts)?;
    let store = Store::open(StoreConfig { blobs: Blobs::Memory, ..store_config }).await?;
    crate::http::issue_shown_operator_token(&store, &parts.random, parts.clock.now(), request, show).await
}
