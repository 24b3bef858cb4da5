//! Running sums: made of a stored partial sum and stored inputs, or taken up where this process left off.
//!
//! A sum in memory is only a shortcut. It is kept under the digest of the partial sum it was stored as, and whoever finds
//! another digest in the row reads the blob instead.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use aggregation::{Accumulator, AggregationError, Shape};
use federation::id::{Digest, RoundKey};
use store::entity::admitted::Admitted;
use store::entity::partial_sum::PartialSum;

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

/// The sum of `partial` and of `inputs`. Memory: the sum and one input.
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
        sum = add(env, sum, input.sha256).await?;
    }
    Ok(sum)
}

/// Adds one stored vector, after its digest was verified.
async fn add(env: &Environment, mut sum: Sum, blob: Digest) -> Result<Sum, StepError> {
    let packed = env.blobs.get(blob).await?;
    blocking(move || match sum.add_packed(&packed) {
        Ok(()) => Ok(sum),
        // Its length and padding were checked when it was admitted.
        Err(AggregationError::Packing(error)) => {
            Err(store::StoreError::Corrupt(format!("blob {blob} is no vector of its task: {error}")).into())
        }
        Err(error) => Err(error.into()),
    })
    .await
}

/// Runs what would hold up other requests on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StepError> + Send + 'static,
) -> Result<T, StepError> {
    tokio::task::spawn_blocking(work).await.map_err(StepError::Thread)?
}
