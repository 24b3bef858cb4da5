//! What all requests share.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client_sdk::train::Device;
use inference::batcher::Batching;
use inference::latency::Latencies;
use inference::rollout::Rollout;
use inference::scale::{Load, Replicas};
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

/// How often the load is looked at.
const LOAD: Duration = Duration::from_secs(5);

/// How models are served.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Folder of the models.
    pub(crate) models: PathBuf,
    /// Their names; those of tasks, where there is a coordinator.
    pub(crate) names: Vec<String>,
    pub(crate) listen: SocketAddr,
    /// Where health and metrics are told in the clear, if anywhere.
    pub(crate) health: Option<SocketAddr>,
    pub(crate) batching: Batching,
    pub(crate) rollout: Rollout,
    /// Threads that compute.
    pub(crate) threads: usize,
    /// Where they, and the threads that read requests, compute.
    pub(crate) device: Device,
    /// Longest body of a request.
    pub(crate) body_max: usize,
    /// Bytes of predictions that are remembered; none if 0.
    pub(crate) cache_bytes: u64,
    pub(crate) replicas: Replicas,
    /// A name that has an address for each replica, by which they are counted.
    pub(crate) replicas_of: Option<String>,
    /// What it calls itself to a coordinator; the machine's name and the port unless it is given.
    pub(crate) name: Option<String>,
}

/// What all requests share.
pub(super) struct Serving {
    pub(super) settings: Settings,
    pub(super) access: Access,
    pub(super) models: Vec<Arc<Served>>,
    pub(super) engine: Arc<Engine>,
    pub(super) cache: Option<Predictions>,
    pub(super) bodies: Bodies,
    pub(super) handle: PrometheusHandle,
    /// Of requests without a key.
    pub(super) draws: Mutex<ChaCha8Rng>,
    pub(super) latencies: Mutex<Latencies>,
    pub(super) answered: AtomicU64,
    /// As many replicas there should be; 0 before that is known.
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

    /// Counts an answer; `took`: since the request was read, if it was.
    pub(super) fn note_answer(&self, took: Option<Duration>) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if let Some(took) = took {
            self.latencies.lock().unwrap_or_else(PoisonError::into_inner).note(took);
        }
    }

    /// Publishes how many replicas there should be, until `stop`.
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
            // Of an unknown number nothing follows.
            if let Some(replicas) = replicas {
                let desired = meters::desired(self.settings.replicas, replicas, load);
                self.desired.store(desired, Ordering::Relaxed);
            }
        }
    }

    /// How many replicas there should be, once that is known.
    pub(super) fn desired(&self) -> Option<u32> {
        Some(self.desired.load(Ordering::Relaxed)).filter(|desired| *desired > 0)
    }

    /// How many replicas there are: one, unless a name tells; none if it cannot be looked up now.
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

/// How many replicas have these addresses: each has one, or one of each family. None if there are none.
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
