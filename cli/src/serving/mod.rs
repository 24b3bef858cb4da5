//! Serving published models: the shell around `inference`, which `tributary infer serve` runs.
//!
//! A request is let in (`access`, `tokens`), read (`v2`), queued and computed (`engine`) by the version that answers it (`served`). Versions come
//! from a coordinator (`follow`), which is told what is served (`tell`), or from whoever puts them into the folder (`folder`). No input is
//! logged, kept or told to anybody.

mod access;
mod cache;
mod engine;
mod folder;
mod follow;
pub(crate) mod listener;
mod meters;
mod model;
mod served;
mod shared;
mod standing;
mod tell;
mod tokens;
mod traffic;
pub(crate) mod v2;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use ring::rand::SystemRandom;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::server::Server;
use access::{Access, Operators};
use cache::Predictions;
use engine::Engine;
pub(crate) use listener::TlsFiles;
use served::Served;
use shared::Serving;
pub(crate) use shared::Settings;
use tokens::Tokens;

/// How often histograms are folded.
const FOLD: Duration = Duration::from_secs(5);

/// A server of models, until it is stopped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) health: Option<SocketAddr>,
    stop: CancellationToken,
    listeners: JoinSet<()>,
    others: JoinSet<()>,
    serving: Arc<Serving>,
}

/// Starts to serve. `from`: the coordinator that new versions come from, and that knows the tokens of who asks.
///
/// # Errors
/// If it cannot listen, or anybody could ask who should not.
pub(crate) async fn start(
    settings: Settings,
    tls: Option<TlsFiles<'_>>,
    from: Option<Server>,
    output: Output,
) -> Outcome<Running> {
    let access = access(&settings, tls, from.clone())?;
    let acceptor = tls.map(listener::tls).transpose()?;
    let handle = coordinator::observe::recorder();
    meters::describe();
    let main = listener::bind(settings.listen).await?;
    let health = match settings.health {
        Some(address) => Some(listener::bind(address).await?),
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
    // What is there is ready before the first request.
    for served in &serving.models {
        served.look(&serving.engine).await;
    }
    let address = |listener: &tokio::net::TcpListener| {
        listener.local_addr().map_err(Failure::because(Exit::Io, "the listener has no address"))
    };
    let (addresses, stop) = ((address(&main)?, health.as_ref().map(address).transpose()?), CancellationToken::new());
    let (mut listeners, mut others) = (JoinSet::new(), JoinSet::new());
    listeners.spawn(listener::serve(main, acceptor, v2::Api::new(Arc::clone(&serving)), stop.clone()));
    if let Some(health) = health {
        listeners.spawn(listener::serve(health, None, v2::health_router(Arc::clone(&serving)), stop.clone()));
    }
    let name = serving.settings.name.clone().unwrap_or_else(|| tell::default_name(addresses.0.port()));
    for served in &serving.models {
        others.spawn(Arc::clone(served).keep(Arc::clone(&serving.engine), stop.clone()));
        if let Some(server) = &from {
            others.spawn(follow::follow(server.clone(), Arc::clone(served), output, stop.clone()));
            let (serving, served) = (Arc::clone(&serving), Arc::clone(served));
            others.spawn(tell::tell(server.clone(), serving, served, name.clone(), stop.clone()));
        }
    }
    let (watcher, stopped) = (Arc::clone(&serving), stop.clone());
    others.spawn(async move { watcher.watch_load(&stopped).await });
    let (handle, stopped) = (serving.handle.clone(), stop.clone());
    others.spawn(async move {
        while stopped.run_until_cancelled(tokio::time::sleep(FOLD)).await.is_some() {
            handle.run_upkeep();
        }
    });
    Ok(Running { address: addresses.0, health: addresses.1, stop, listeners, others, serving })
}

/// By what requests are let in: never by nothing where others can reach the listener.
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
    /// Models and the version of each that answers, by name; none before a version is ready.
    pub(crate) fn models(&self) -> Vec<(String, Option<u32>)> {
        let stable = |served: &Arc<Served>| served.at(None).map(|model| model.version);
        self.serving.models.iter().map(|served| (served.name.clone(), stable(served))).collect()
    }

    /// Lets requests in progress end, and stops. How many were answered.
    pub(crate) async fn shutdown(self) -> u64 {
        let Self { stop, mut listeners, mut others, serving, .. } = self;
        stop.cancel();
        while listeners.join_next().await.is_some() {}
        while others.join_next().await.is_some() {}
        serving.answered.load(Ordering::Relaxed)
    }
}
