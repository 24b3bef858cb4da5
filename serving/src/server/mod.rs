//! The model server: the I/O around `inference`, run by `tributary infer serve`.
//!
//! A request is authorized (`access`, `coordinator::tokens`), read (`v2`), queued and computed (`engine`) by the version that
//! answers it (`served`). Versions come from a coordinator (`coordinator`), which gets reports, or from files in a
//! folder (`folder`). Inputs are neither logged nor stored nor reported.

mod access;
mod cache;
mod coordinator;
mod engine;
mod folder;
mod graphs;
mod input;
mod meters;
mod model;
mod served;
mod shared;
mod standing;
mod traffic;
pub(crate) mod v2;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use listener::simple;
use operator_client::failure::{Exit, Failure, Outcome, chain};
use operator_client::{Server, Transfers};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use ring::rand::SystemRandom;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use access::{Access, Operators};
use cache::Predictions;
use coordinator::tokens::Tokens;
use coordinator::{follow, tell};
use engine::Engine;
use served::Served;
use shared::Serving;
pub use shared::{Settings, TlsFiles};

/// Interval at which histograms are folded.
const FOLD: Duration = Duration::from_secs(5);

/// A running model server.
pub struct Running {
    /// Address that the server listens on.
    pub address: SocketAddr,
    /// Address of health and metrics, if configured.
    pub health: Option<SocketAddr>,
    stop: CancellationToken,
    listeners: JoinSet<()>,
    others: JoinSet<()>,
    serving: Arc<Serving>,
}

/// Starts the server. `from`: the coordinator that publishes versions and verifies tokens. `transfers`: shows downloads.
///
/// # Errors
/// If it cannot listen, or the configuration would allow unauthenticated remote requests.
pub async fn start(
    settings: Settings,
    tls: Option<TlsFiles<'_>>,
    from: Option<Server>,
    transfers: Transfers,
) -> Outcome<Running> {
    let access = access(&settings, tls, from.clone())?;
    let acceptor = tls.map(|files| listener::acceptor(files.acceptor())).transpose();
    let acceptor = acceptor.map_err(|error| Failure::new(Exit::Configuration, chain(&error)))?;
    let handle = listener::recorder();
    meters::describe();
    let main = bind(settings.listen).await?;
    let health = match settings.health {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let engine = Engine::start(&settings.names, settings.batching, settings.threads)
        .map_err(Failure::because(Exit::Internal, "cannot start the threads"))?;
    let served = |(index, name): (usize, &String)| {
        let served = Served::new(&settings.models, name, index, settings.rollout, settings.batching.max_batch);
        served
            .map(|served| Arc::new(served.on(settings.device.clone())))
            .map_err(Failure::because(Exit::Io, "what was in use cannot be read"))
    };
    let models = settings.names.iter().enumerate().map(served).collect::<Outcome<_>>()?;
    let cache = (settings.cache_bytes > 0).then(|| Predictions::new(settings.cache_bytes));
    let unreadable = |_| Failure::new(Exit::Internal, "the system gives no randomness");
    let seed: [u8; 32] = ring::rand::generate(&SystemRandom::new()).map_err(unreadable)?.expose();
    let draws = Mutex::new(ChaCha8Rng::from_seed(seed));
    let (engine, latencies, answered) = (Arc::new(engine), Mutex::default(), AtomicU64::new(0));
    let (bodies, desired) = (v2::Bodies::new(settings.body_max), AtomicU32::new(0));
    let serving = Arc::new(Serving {
        settings,
        access,
        models,
        engine,
        cache,
        bodies,
        handle,
        draws,
        latencies,
        answered,
        desired,
    });
    // Existing versions are ready before the first request.
    for served in &serving.models {
        served.look(&serving.engine).await;
    }
    let address = |listener: &TcpListener| {
        listener.local_addr().map_err(Failure::because(Exit::Io, "the listener has no address"))
    };
    let (addresses, stop) = ((address(&main)?, health.as_ref().map(address).transpose()?), CancellationToken::new());
    let mut listeners = JoinSet::new();
    listeners.spawn(simple::serve(main, acceptor, v2::Api::new(Arc::clone(&serving)), stop.clone()));
    if let Some(health) = health {
        listeners.spawn(simple::serve(health, None, v2::health_router(Arc::clone(&serving)), stop.clone()));
    }
    let name = serving.settings.name.clone().unwrap_or_else(|| tell::default_name(addresses.0.port()));
    let others = background(&serving, from.as_ref(), &transfers, &name, &stop);
    Ok(Running { address: addresses.0, health: addresses.1, stop, listeners, others, serving })
}

/// Starts the work beside the listeners: versions of models, reports, load and histograms.
fn background(
    serving: &Arc<Serving>,
    from: Option<&Server>,
    transfers: &Transfers,
    name: &str,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut others = JoinSet::new();
    for served in &serving.models {
        others.spawn(Arc::clone(served).keep(Arc::clone(&serving.engine), stop.clone()));
        if let Some(server) = from {
            others.spawn(follow::follow(server.clone(), Arc::clone(served), Arc::clone(transfers), stop.clone()));
            let (serving, served) = (Arc::clone(serving), Arc::clone(served));
            others.spawn(tell::tell(server.clone(), serving, served, name.to_owned(), stop.clone()));
        }
    }
    let (watcher, stopped) = (Arc::clone(serving), stop.clone());
    others.spawn(async move { watcher.watch_load(&stopped).await });
    let (handle, stopped) = (serving.handle.clone(), stop.clone());
    others.spawn(async move {
        while stopped.run_until_cancelled(tokio::time::sleep(FOLD)).await.is_some() {
            handle.run_upkeep();
        }
    });
    others
}

async fn bind(address: SocketAddr) -> Outcome<TcpListener> {
    simple::bind(address).await.map_err(Failure::because(Exit::Io, format!("cannot listen on {address}")))
}

/// How requests are authorized; always with credentials if other machines can reach the listener.
fn access(settings: &Settings, tls: Option<TlsFiles<'_>>, from: Option<Server>) -> Outcome<Access> {
    let is_loopback = settings.listen.ip().is_loopback();
    if !is_loopback && tls.is_none() {
        let detail = "without --certificate and --key it listens on a loopback address alone: tokens and inputs would travel in the clear";
        return Err(Failure::new(Exit::Usage, detail));
    }
    let operators = tls.and_then(|files| files.operators).map(Operators::read).transpose()?;
    match (tls, from) {
        (None, _) => Ok(Access::Everybody),
        (Some(_), Some(server)) => Ok(Access::Tokens(Arc::new(Tokens::new(server)), operators)),
        (Some(TlsFiles { client_ca: Some(_), .. }), None) => Ok(Access::Certificates(operators)),
        (Some(_), None) if is_loopback => Ok(Access::Everybody),
        (Some(_), None) => {
            let detail = "say who may ask: --client-ca FILE, or --from URL, whose tokens let in";
            Err(Failure::new(Exit::Usage, detail))
        }
    }
}

impl Running {
    /// Models and their active versions by name; `None` before a version is ready.
    #[must_use]
    pub fn models(&self) -> Vec<(String, Option<u32>)> {
        let stable = |served: &Arc<Served>| served.at(None).map(|model| model.version);
        self.serving.models.iter().map(|served| (served.name.clone(), stable(served))).collect()
    }

    /// Waits for requests in progress and stops. Returns the number of answered requests.
    pub async fn shutdown(self) -> u64 {
        let Self { stop, mut listeners, mut others, serving, .. } = self;
        stop.cancel();
        while listeners.join_next().await.is_some() {}
        while others.join_next().await.is_some() {}
        serving.answered.load(Ordering::Relaxed)
    }
}
