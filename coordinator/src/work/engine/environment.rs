//! The environment of steps, and their configuration.

use std::sync::Arc;
use std::time::Duration;

use aggregation::Aggregator;
use federation::device_reason::DeviceReason;
use federation::time::Clock;
use store::{BlobStore, Store};

use crate::observe::Traces;
use crate::privacy::seal::Sealer;
use crate::random::Random;
use crate::rounds::models::Models;
use crate::rounds::waiting::retries::Retries;
use crate::work::StepError;

/// The environment of steps. Clones share it.
#[derive(Clone)]
pub struct Environment {
    /// The rows, and notifications of their changes.
    pub store: Store,
    /// The store's blobs; tests put a failing store in between.
    pub blobs: Arc<dyn BlobStore>,
    /// The device for summing and unmasking.
    pub aggregator: Arc<dyn Aggregator>,
    /// Why this device was chosen.
    pub aggregator_because: Option<DeviceReason>,
    /// The process name in stored records of its work on sums; `None` disables the records.
    pub name: Option<String>,
    /// The time of deadlines and leases.
    pub clock: Arc<dyn Clock>,
    /// Draws cohorts of tasks without a seed.
    pub random: Random,
    /// Opens unmasking answers and the seeds of noise.
    pub sealer: Arc<Sealer>,
    /// The numbers derived from tasks.
    pub models: Models,
    /// Traces of updates and rounds, if enabled.
    pub traces: Traces,
    /// Configuration of background work.
    pub config: WorkConfig,
    /// Stops steps in tests; [`NoFailPoint`] elsewhere.
    pub fail_point: Arc<dyn FailPoint>,
}

impl Environment {
    /// Uses the store's own blobs, no fail-points, a default configuration, a sealing key in memory, and the given device.
    #[must_use]
    pub fn new(store: Store, aggregator: Arc<dyn Aggregator>, clock: Arc<dyn Clock>, random: Random) -> Self {
        let (blobs, config) = (Arc::clone(store.blobs()), WorkConfig::default());
        let sealer = Arc::new(Sealer::in_memory(&random));
        let (models, fail_point) = (Models::default(), Arc::new(NoFailPoint));
        let (traces, aggregator_because, name) = (Traces::default(), Some(DeviceReason::AskedFor), None);
        Self {
            store,
            blobs,
            aggregator,
            aggregator_because,
            name,
            clock,
            random,
            sealer,
            models,
            traces,
            config,
            fail_point,
        }
    }
}

/// Pace and limits of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkConfig {
    /// Interval between surveys without a wake-up.
    pub poll_interval: Duration,
    /// Validity of a lease after its last renewal.
    pub lease_ttl: Duration,
    /// Whether long steps renew their lease. Disabled with simulated time.
    pub renews_leases: bool,
    /// Maximum number of concurrently processed tasks.
    pub concurrency: usize,
    /// Number of inputs worth folding while others still arrive.
    pub fold_inputs: u32,
    /// Bytes of inputs worth folding while others still arrive.
    pub fold_bytes: u64,
    /// Words of a vector processed at once; rounded up to a multiple of [`aggregation::Shape::SLICE_START`]. Published results do not
    /// depend on it.
    pub slice_words: usize,
    /// Wait after the first failed attempt at a round; doubles with each further one.
    pub retry_initial: Duration,
    /// Longest wait between two attempts at a round.
    pub retry_max: Duration,
    /// Interval between garbage collections.
    pub garbage_interval: Duration,
    /// How long a stored blob is spared: its row may be about to be written.
    pub garbage_grace: Duration,
    /// Maximum number of blobs removed in one collection.
    pub garbage_batch: usize,
}

impl Default for WorkConfig {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(1),
            lease_ttl: Duration::from_secs(30),
            renews_leases: true,
            concurrency: 4,
            fold_inputs: 64,
            fold_bytes: 32 << 20,
            slice_words: 4 << 20,
            retry_initial: Duration::from_secs(1),
            retry_max: Duration::from_secs(300),
            garbage_interval: Duration::from_secs(30),
            garbage_grace: Duration::from_secs(60),
            garbage_batch: 10_000,
        }
    }
}

impl WorkConfig {
    /// The pauses between attempts at a round.
    pub(crate) fn retries(&self) -> Retries {
        Retries { initial: self.retry_initial, max: self.retry_max }
    }
}

/// Called between any two effects of a step, to stop a worker there in tests.
pub trait FailPoint: Send + Sync {
    /// # Errors
    /// [`StepError::Stopped`] simulates the worker's death: it stops at once, and keeps its lease.
    fn reached(&self, point: &'static str) -> Result<(), StepError>;
}

/// Lets every step continue.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFailPoint;

impl FailPoint for NoFailPoint {
    fn reached(&self, _point: &'static str) -> Result<(), StepError> {
        Ok(())
    }
}
