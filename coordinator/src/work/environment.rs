//! The environment of steps, and their configuration.

use std::sync::Arc;
use std::time::Duration;

use aggregation::Aggregator;
use federation::device_reason::DeviceReason;
use federation::time::Clock;
use store::{BlobStore, Store};

use super::StepError;
use crate::models::Models;
use crate::observe::Traces;
use crate::random::Random;
use crate::seal::Sealer;

/// The environment of steps. Clones share it.
#[derive(Clone)]
pub struct Environment {
    /// Rows and wake-ups.
    pub store: Store,
    /// The store's blobs; tests put a failing store in between.
    pub blobs: Arc<dyn BlobStore>,
    /// The device that sums and unmasks.
    pub aggregator: Arc<dyn Aggregator>,
    /// Why it is that one.
    pub aggregator_because: DeviceReason,
    /// How the process is called in what is stored of its work on sums; `None`: nothing is told of it.
    pub name: Option<String>,
    /// The time of deadlines and leases.
    pub clock: Arc<dyn Clock>,
    /// Draws cohorts of tasks that have no seed.
    pub random: Random,
    /// Opens the answers that unmask a sum, and the seeds of noise.
    pub sealer: Arc<Sealer>,
    /// What tasks mean in numbers.
    pub models: Models,
    /// Traces of updates and rounds, if any.
    pub traces: Traces,
    /// Configuration of background work.
    pub config: WorkConfig,
    /// Where tests stop a step; [`NoFailPoint`] elsewhere.
    pub fail_point: Arc<dyn FailPoint>,
}

impl Environment {
    /// The store's own blobs, no fail-points, default numbers, and a sealing key that vanishes with the process. The device is the one
    /// that the caller asks for.
    #[must_use]
    pub fn new(store: Store, aggregator: Arc<dyn Aggregator>, clock: Arc<dyn Clock>, random: Random) -> Self {
        let (blobs, config) = (Arc::clone(store.blobs()), WorkConfig::default());
        let sealer = Arc::new(Sealer::in_memory(&random));
        let (models, fail_point) = (Models::default(), Arc::new(NoFailPoint));
        let (traces, aggregator_because, name) = (Traces::default(), DeviceReason::AskedFor, None);
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

/// How background work paces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkConfig {
    /// Stored facts are looked at this often even if no wake-up came.
    pub poll_interval: Duration,
    /// A worker not heard of for so long has lost its lease.
    pub lease_ttl: Duration,
    /// Whether a worker is heard of while a step takes its time. Not where time is simulated: real time means nothing there.
    pub renews_leases: bool,
    /// Tasks that are worked on at once.
    pub concurrency: usize,
    /// So many inputs are worth folding while others still arrive.
    pub fold_inputs: u32,
    /// So many bytes of inputs are worth folding while others still arrive.
    pub fold_bytes: u64,
    /// Words of a vector that are worked on at once; rounded up to a multiple of [`aggregation::Shape::SLICE_START`]. Nothing that is
    /// published depends on it.
    pub slice_words: usize,
    /// Wait after the first failed attempt at a round; doubles with each further one.
    pub retry_initial: Duration,
    /// Longest wait between two attempts at a round.
    pub retry_max: Duration,
    /// How often garbage is looked for.
    pub garbage_interval: Duration,
    /// A blob is spared for so long after it was last stored: its row may be about to be written.
    pub garbage_grace: Duration,
    /// Most blobs that are removed in one go.
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

/// Called between any two effects of a step, so that a test can stop a worker there.
pub trait FailPoint: Send + Sync {
    /// # Errors
    /// [`StepError::Stopped`] ends the worker as its death would: it does nothing more, not even give up its lease.
    fn reached(&self, point: &'static str) -> Result<(), StepError>;
}

/// Lets every step go on.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFailPoint;

impl FailPoint for NoFailPoint {
    fn reached(&self, _point: &'static str) -> Result<(), StepError> {
        Ok(())
    }
}
