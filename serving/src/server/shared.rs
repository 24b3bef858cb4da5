//! State shared by all requests.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client_sdk::train::Device;
use inference::batcher::Batching;
use inference::latency::Latencies;
use inference::rollout::Rollout;
use inference::scale::{Load, Replicas};
use listener::AcceptorFiles;
use metrics_exporter_prometheus::PrometheusHandle;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::cache::Predictions;
use super::engine::Engine;
use super::meters;
use super::served::Served;
use super::v2::Bodies;

/// Interval at which the load is measured.
const LOAD: Duration = Duration::from_secs(5);

/// Configuration of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of the models.
    pub models: PathBuf,
    /// Names of the models; with a coordinator, names of tasks.
    pub names: Vec<String>,
    /// Address of the server.
    pub listen: SocketAddr,
    /// Plain-HTTP address for health and metrics, if configured.
    pub health: Option<SocketAddr>,
    /// How requests are batched.
    pub batching: Batching,
    /// How new versions are tried.
    pub rollout: Rollout,
    /// Number of compute threads.
    pub threads: usize,
    /// Device of all computations.
    pub device: Device,
    /// Maximum size of a request body.
    pub body_max: usize,
    /// Size of the prediction cache in bytes; 0 disables it.
    pub cache_bytes: u64,
    /// Bounds of the recommended number of replicas.
    pub replicas: Replicas,
    /// DNS name with one address per replica, used to count replicas.
    pub replicas_of: Option<String>,
    /// Name shown to the coordinator; by default host name and port.
    pub name: Option<String>,
}

/// Files of the server's identity.
#[derive(Clone, Copy, Debug)]
pub struct TlsFiles<'a> {
    /// Certificate chain in PEM.
    pub certificate: &'a Path,
    /// Its key in PEM.
    pub key: &'a Path,
    /// CA of client certificates.
    pub client_ca: Option<&'a Path>,
    /// Client certificates that may also roll back.
    pub operators: Option<&'a Path>,
}

impl<'a> TlsFiles<'a> {
    pub(super) fn acceptor(self) -> AcceptorFiles<'a> {
        AcceptorFiles { certificate: self.certificate, key: self.key, client_ca: self.client_ca }
    }
}

/// State shared by all requests.
pub(super) struct Serving {
    pub(super) settings: Settings,
    pub(super) access: Access,
    pub(super) models: Vec<Arc<Served>>,
    pub(super) engine: Arc<Engine>,
    pub(super) cache: Option<Predictions>,
    pub(super) bodies: Bodies,
    pub(super) handle: PrometheusHandle,
    /// Random source for requests without a key.
    pub(super) draws: Mutex<ChaCha8Rng>,
    pub(super) latencies: Mutex<Latencies>,
    pub(super) answered: AtomicU64,
    /// Desired number of replicas; 0 until it is known.
    pub(super) desired: AtomicU32,
}

impl Serving {
    pub(super) fn model(&self, name: &str) -> Option<&Arc<Served>> {
        self.models.iter().find(|served| served.name == name)
    }

    pub(super) fn draw(&self) -> u64 {
        self.draws.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    pub(super) fn metrics(&self) -> String {
        self.handle.run_upkeep();
        self.handle.render()
    }

    /// Counts an answer; `took`: time since the request was read, if it was.
    pub(super) fn note_answer(&self, took: Option<Duration>) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if let Some(took) = took {
            self.latencies.lock().unwrap_or_else(PoisonError::into_inner).note(took);
        }
    }

    /// Publishes the desired number of replicas until `stop`.
    pub(super) async fn watch_load(&self, stop: &CancellationToken) {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let (mut before, mut used, mut replicas) = (Instant::now(), meters::processor_time(), None);
        while stop.run_until_cancelled(tokio::time::sleep(LOAD)).await.is_some() {
            let (now, uses) = (Instant::now(), meters::processor_time());
            let spent = uses.zip(used).map(|(uses, used)| uses.saturating_sub(used).as_secs_f64());
            let processor = spent.map_or(f64::NAN, |spent| spent / (now - before).as_secs_f64() / cores);
            (before, used) = (now, uses);
            let latency = {
                let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
                let latency = latencies.percentile(99).unwrap_or_default();
                latencies.clear();
                latency
            };
            let load = Load { latency, processor, queue: self.engine.take_demand() };
            replicas = self.replicas().await.or(replicas);
            // Without a count there is no recommendation.
            if let Some(replicas) = replicas {
                let desired = meters::desired(self.settings.replicas, replicas, load);
                self.desired.store(desired, Ordering::Relaxed);
            }
        }
    }

    /// The desired number of replicas, once known.
    pub(super) fn desired(&self) -> Option<u32> {
        Some(self.desired.load(Ordering::Relaxed)).filter(|desired| *desired > 0)
    }

    /// The number of replicas: one unless a DNS name is configured; `None` if the lookup fails.
    async fn replicas(&self) -> Option<u32> {
        let Some(name) = &self.settings.replicas_of else { return Some(1) };
        match tokio::net::lookup_host((name.as_str(), self.settings.listen.port())).await {
            Ok(found) => replicas_at(found.map(|address| address.ip())),
            Err(error) => {
                tracing::debug!("{name} cannot be looked up: the replicas are those of before: {error}");
                None
            }
        }
    }
}

/// The number of replicas with these addresses: each has one address, or one per family. `None` without addresses.
fn replicas_at(addresses: impl Iterator<Item = IpAddr>) -> Option<u32> {
    let (four, six): (BTreeSet<IpAddr>, BTreeSet<IpAddr>) = addresses.partition(IpAddr::is_ipv4);
    let count = four.len().max(six.len());
    (count > 0).then(|| u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_with_addresses_of_both_families_are_counted_once() {
        let count = |addresses: &[&str]| replicas_at(addresses.iter().map(|address| address.parse().unwrap()));
        assert_eq!(count(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]), Some(3));
        assert_eq!(count(&["10.0.0.1", "fd00::1", "fd00::2", "10.0.0.2"]), Some(2));
        assert_eq!(
            count(&["fd00::1", "fd00::2", "10.0.0.2"]),
            Some(2),
            "one of them has no address of the other family"
        );
        assert_eq!(count(&["10.0.0.1", "10.0.0.1"]), Some(1));
        assert_eq!(count(&[]), None, "then the number of before stays");
    }
}
