//! Running sums: made of a stored partial sum and stored inputs, or taken up where this process left off.
//!
//! A sum in memory is only a shortcut. It is kept under the digest of the partial sum it was stored as, and whoever finds
//! another digest in the row reads the blob instead.

use std::collections::HashMap;
use std::io::Read as _;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use aggregation::{Accumulator, AggregationError, Shape};
use federation::id::{Attempt, Digest};
use learning::UpdateCodec;
use store::entity::admitted::Admitted;
use store::entity::partial_sum::PartialSum;
use store::{StoreError, VerifiedRead};

use super::{Environment, StepError};
use recipe::TaskModel;

use crate::guarded::Guarded;
use crate::inputs::open_input;

/// Sums that may be kept at once, each of the size of a model.
const KEPT: usize = 8;

type Sum = Box<dyn Accumulator>;

/// Sums that were stored and may be added to.
#[derive(Default)]
pub(super) struct SumCache(Guarded<HashMap<Attempt, (Digest, Sum)>>);

impl SumCache {
    /// Takes the sum that was stored as `partial`, if it is here.
    fn take(&self, partial: &PartialSum) -> Option<Sum> {
        let (digest, sum) = self.0.lock().remove(&partial.attempt)?;
        (digest == partial.blob).then_some(sum)
    }

    /// Keeps a sum that has just been stored as `partial`.
    pub(super) fn keep(&self, partial: &PartialSum, sum: Sum) {
        let mut kept = self.0.lock();
        if kept.len() < KEPT {
            kept.insert(partial.attempt, (partial.blob, sum));
        }
    }

    /// Forgets the sums of all rounds but these.
    pub(super) fn retain(&self, open: impl Fn(Attempt) -> bool) {
        self.0.lock().retain(|&attempt, _| open(attempt));
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
                Some(partial) => {
                    let blob = env.blobs.open(partial.blob).await?;
                    add(sum, None, vec![(partial.blob, VerifiedRead::new(blob, partial.blob))]).await?
                }
                None => sum,
            }
        }
    };
    for group in groups(inputs) {
        let mut stored = Vec::with_capacity(group.len());
        for input in group {
            let blob = open_input(&env.blobs, input.sha256, input.bytes).await?;
            stored.push((input.sha256, VerifiedRead::new(blob, input.sha256)));
        }
        sum = add(sum, model.codec.expanding(), stored).await?;
    }
    Ok(sum)
}

/// Inputs that are opened at once, so that files run out for nobody.
const AT_ONCE: usize = 32;
/// Bytes after which no other is taken into a group: a thread cannot be told to stop before it has added its group.
const GROUP_BYTES: u64 = 64 << 20;

/// Inputs that one thread adds, in order: a thread for each would take longer to start than to add a small model.
fn groups(mut inputs: &[Admitted]) -> impl Iterator<Item = &[Admitted]> {
    iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |input: &&Admitted| {
            let first = bytes == 0;
            bytes += input.bytes;
            first || bytes <= GROUP_BYTES
        };
        let size = inputs.iter().take(AT_ONCE).take_while(fits).count();
        let (group, rest) = inputs.split_at(size);
        inputs = rest;
        (size > 0).then_some(group)
    })
}

/// Adds stored blobs, one after another. Whether one has its digest is known at its end only: after any error the sum is
/// gone, so that nobody goes on with one that holds bytes of a damaged blob.
async fn add(
    mut sum: Sum,
    expanding: Option<&Arc<UpdateCodec>>,
    stored: Vec<(Digest, VerifiedRead)>,
) -> Result<Sum, StepError> {
    let expanding = expanding.cloned();
    blocking(move || {
        for (blob, read) in stored {
            match &expanding {
                Some(codec) => add_expanded(&mut *sum, codec, blob, read)?,
                None => add_packed(&mut *sum, blob, read)?,
            }
        }
        Ok(sum)
    })
    .await
}

/// Adds an upload of a codec that is not summable: read whole, since it is small, and expanded to words.
fn add_expanded(
    sum: &mut dyn Accumulator,
    codec: &UpdateCodec,
    blob: Digest,
    stored: VerifiedRead,
) -> Result<(), StepError> {
    let mut bytes = Vec::with_capacity(codec.upload_bytes());
    let most = codec.upload_bytes() as u64 + 1;
    stored.take(most).read_to_end(&mut bytes).map_err(StoreError::from)?;
    // It was checked when it was admitted.
    let words = codec
        .expand(&bytes)
        .map_err(|error| StoreError::unreadable(format!("blob {blob} is no update of its task"), error))?;
    Ok(sum.merge(&words)?)
}

/// Adds a vector as it is read.
fn add_packed(sum: &mut dyn Accumulator, blob: Digest, mut packed: VerifiedRead) -> Result<(), StepError> {
    let length = packed.size();
    match sum.add_stream(&mut packed, length) {
        Ok(()) => Ok(()),
        // Its length and padding were checked when it was admitted.
        Err(AggregationError::Packing(error)) => {
            Err(StoreError::unreadable(format!("blob {blob} is no vector of its task"), error).into())
        }
        Err(AggregationError::Read(error)) => Err(error.downcast().unwrap_or_else(StoreError::from).into()),
        Err(error) => Err(error.into()),
    }
}

/// Runs what would hold up other requests on a thread of its own, which ends with it: an allocator keeps what a thread has
/// freed for that thread, and a pool of threads that take turns would each keep buffers for vectors.
pub(super) async fn blocking<T: Send + 'static, E: From<StepError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let run = move || {
        // Nobody listens any more if the step was given up meanwhile.
        let _ = tell.send(catch_unwind(AssertUnwindSafe(work)));
    };
    let cannot = |error: &dyn std::fmt::Display| StepError::unworkable(format!("no thread does the work: {error}"));
    std::thread::Builder::new().name("step".to_owned()).spawn(run).map_err(|error| cannot(&error))?;
    match told.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(error) => Err(cannot(&error).into()),
    }
}

#[cfg(test)]
mod tests {
    use federation::id::{ParticipantId, TaskId};
    use federation::time::Timestamp;

    use super::*;

    #[test]
    fn groups_are_in_order_and_bounded_and_hold_one_at_least() {
        let attempt = Attempt { task: TaskId(uuid::Uuid::from_bytes([1; 16])), round: 1, attempt: 1 };
        let input = |bytes| Admitted {
            attempt,
            participant: ParticipantId(uuid::Uuid::from_bytes([2; 16])),
            sha256: Digest([3; 32]),
            bytes,
            accepted_at: Timestamp(0),
            folded: false,
        };
        let sizes = |bytes: &[u64]| {
            let inputs: Vec<_> = bytes.iter().copied().map(input).collect();
            assert!(groups(&inputs).flatten().eq(&inputs));
            groups(&inputs).map(<[_]>::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1; 70]), [32, 32, 6]);
        let large = GROUP_BYTES;
        assert_eq!(sizes(&[large + 1, large + 1, 1]), [1, 1, 1]);
        assert_eq!(sizes(&[1, large - 1, 1, large]), [2, 1, 1]);
    }
}
