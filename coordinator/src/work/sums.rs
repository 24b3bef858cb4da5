//! Running sums: made of a stored partial sum and stored inputs, or taken up where this process left off.
//!
//! A sum in memory is only a shortcut. It is kept under the digest of the partial sum it was stored as, and whoever finds
//! another digest in the row reads the blob instead.

use std::collections::HashMap;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use aggregation::{Accumulator, AggregationError, Shape};
use federation::id::{Digest, RoundKey};
use learning::UpdateCodec;
use store::entity::admitted::Admitted;
use store::entity::partial_sum::PartialSum;
use store::{StoreError, VerifiedRead};

use super::{Environment, StepError};
use crate::model::TaskModel;

/// Sums that may be kept at once, each of the size of a model.
const KEPT: usize = 8;

type Sum = Box<dyn Accumulator>;

/// Sums that were stored and may be added to.
#[derive(Default)]
pub(super) struct SumCache(Mutex<HashMap<(RoundKey, u32), (Digest, Sum)>>);

impl SumCache {
    /// Takes the sum that was stored as `partial`, if it is here.
    fn take(&self, partial: &PartialSum) -> Option<Sum> {
        let (digest, sum) = self.lock().remove(&(partial.round, partial.attempt))?;
        (digest == partial.blob).then_some(sum)
    }

    /// Keeps a sum that has just been stored as `partial`.
    pub(super) fn keep(&self, partial: &PartialSum, sum: Sum) {
        let mut kept = self.lock();
        if kept.len() < KEPT {
            kept.insert((partial.round, partial.attempt), (partial.blob, sum));
        }
    }

    /// Forgets the sums of all rounds but these.
    pub(super) fn retain(&self, open: impl Fn(RoundKey, u32) -> bool) {
        self.lock().retain(|&(key, attempt), _| open(key, attempt));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(RoundKey, u32), (Digest, Sum)>> {
        // A map has no state between two of its calls that a panic could leave behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sum of `partial` and of `inputs`. Memory: the sum and a small buffer.
///
/// # Errors
/// [`StepError::is_loss`] if the partial sum or an input cannot be read any more.
pub(super) async fn sum_up(
    env: &Environment,
    cache: &SumCache,
    model: &TaskModel,
    partial: Option<&PartialSum>,
    inputs: &[Admitted],
) -> Result<Sum, StepError> {
    let mut sum = match partial.and_then(|partial| cache.take(partial)) {
        Some(sum) => sum,
        None => {
            let shape = Shape::new(model.codec.len(), model.modulus.bits())?;
            let sum = env.aggregator.begin(shape)?;
            match partial {
                Some(partial) => add(env, sum, partial.blob).await?,
                None => sum,
            }
        }
    };
    for input in inputs {
        sum = match model.codec.expanding() {
            Some(codec) => add_expanded(env, sum, codec, input.sha256).await?,
            None => add(env, sum, input.sha256).await?,
        };
    }
    Ok(sum)
}

/// Adds one stored upload of a codec that is not summable: read whole, since it is small, and expanded to words.
async fn add_expanded(
    env: &Environment,
    mut sum: Sum,
    codec: &Arc<UpdateCodec>,
    blob: Digest,
) -> Result<Sum, StepError> {
    let mut stored = VerifiedRead::new(env.blobs.open(blob).await?, blob);
    let codec = Arc::clone(codec);
    blocking(move || {
        let mut bytes = Vec::with_capacity(codec.upload_bytes());
        let most = codec.upload_bytes() as u64 + 1;
        (&mut stored).take(most).read_to_end(&mut bytes).map_err(StoreError::from)?;
        // It was checked when it was admitted.
        let words = codec
            .expand(&bytes)
            .map_err(|error| StoreError::Corrupt(format!("blob {blob} is no update of its task: {error}")))?;
        sum.merge(&words)?;
        Ok(sum)
    })
    .await
}

/// Adds one stored vector as it is read. Whether it has its digest is known at its end only: after any error the sum is
/// gone, so that nobody goes on with one that holds bytes of a damaged blob.
async fn add(env: &Environment, mut sum: Sum, blob: Digest) -> Result<Sum, StepError> {
    let mut packed = VerifiedRead::new(env.blobs.open(blob).await?, blob);
    blocking(move || {
        let length = packed.size();
        match sum.add_stream(&mut packed, length) {
            Ok(()) => Ok(sum),
            // Its length and padding were checked when it was admitted.
            Err(AggregationError::Packing(error)) => {
                Err(StoreError::Corrupt(format!("blob {blob} is no vector of its task: {error}")).into())
            }
            Err(AggregationError::Read(error)) => Err(error.downcast().unwrap_or_else(StoreError::from).into()),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// Runs what would hold up other requests on a thread of its own, which ends with it: an allocator keeps what a thread has
/// freed for that thread, and a pool of threads that take turns would each keep buffers for vectors.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StepError> + Send + 'static,
) -> Result<T, StepError> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let run = move || {
        // Nobody listens any more if the step was given up meanwhile.
        let _ = tell.send(catch_unwind(AssertUnwindSafe(work)));
    };
    let cannot = |error: &dyn std::fmt::Display| StepError::Unworkable(format!("no thread does the work: {error}"));
    std::thread::Builder::new().name("step".to_owned()).spawn(run).map_err(|error| cannot(&error))?;
    match told.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(error) => Err(cannot(&error)),
    }
}
