//! Running sums: computed from a stored partial sum and stored inputs, slice by slice, or continued from this process's cache.
//!
//! A model of one slice is summed whole, one group of inputs after the other. For a larger one all inputs of a step are open at once, and
//! each slice is summed over them: memory does not grow with the model.
//!
//! A sum in memory is only a cache. Its key is the digest of the stored partial sum; with another digest in the row, a process reads the
//! blob instead.

use std::collections::HashMap;
use std::io::{self, Read};
use std::iter;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use aggregation::{Accumulator, AggregationError, Aggregator, Shape};
use federation::id::{Attempt, Digest};
use learning::WeightedCodec;
use listener::PoisonFreeMutex;
use secure_agg::modular::Modulus;
use secure_agg::packing::packed_len;
use store::entity::admitted::Admitted;
use store::entity::partial_sum::PartialSum;
use store::{StoreError, VerifiedRead};

use crate::work::{Environment, StepError, WorkConfig};
use recipe::TaskModel;

use crate::rounds::inputs::open_input;

/// Maximum number of cached sums, each at most of the size of a slice, or of a model with expanded inputs.
const KEPT: usize = 8;
/// Maximum number of open inputs, to limit open files.
const AT_ONCE: usize = 32;
/// Maximum bytes of a group: a thread cannot stop before it has added its group.
const GROUP_BYTES: u64 = 64 << 20;
/// Maximum open inputs of several slices: a reader of a remote one holds 8 MiB.
const STREAMS: u32 = 8;

type Sum = Box<dyn Accumulator>;

/// How a model's vectors are cut: into slices of equal length, and a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::work) struct Slices {
    words: usize,
    length: usize,
    bits: u8,
}

impl Slices {
    /// The slices of a model's vectors. Some vectors are never cut, whatever their length: expanded inputs (smaller than the model, whose
    /// sum is whole) and sums with noise drawn at once. Elsewhere, the results of robust rules over inputs or groups are whole (`robust`,
    /// `release_groups`), and so are the sums of dimension-reducing codecs when they become the mean ([`recipe::server::step`]).
    pub(in crate::work) fn of(model: &TaskModel, config: &WorkConfig) -> Self {
        let is_drawn_at_once = model.private.as_ref().is_some_and(|private| private.draws_at_once());
        if model.codec.expanding().is_some() || is_drawn_at_once {
            return Self::whole(model);
        }
        Self::cut(model, model.codec.len(), config)
    }

    /// The slices of a model's stored sum and versions, read unchanged.
    pub(in crate::work) fn of_files(model: &TaskModel, config: &WorkConfig) -> Self {
        Self::cut(model, model.codec.len().max(model.tensors.published.len()), config)
    }

    fn cut(model: &TaskModel, words: usize, config: &WorkConfig) -> Self {
        let start = usize::try_from(Shape::SLICE_START).unwrap_or(usize::MAX);
        let length = config.slice_words.max(1).next_multiple_of(start);
        Self { words, length, ..Self::whole(model) }
    }

    /// Words of a slice, except for the last.
    pub(in crate::work) fn length(self) -> usize {
        self.length
    }

    /// One slice.
    pub(in crate::work) fn whole(model: &TaskModel) -> Self {
        let words = model.codec.len();
        Self { words, length: words.max(1), bits: model.modulus.bits() }
    }

    pub(in crate::work) fn is_one(self) -> bool {
        self.words <= self.length
    }

    /// Words of all slices.
    pub(in crate::work) fn words(self) -> usize {
        self.words
    }

    pub(in crate::work) fn modulus_bits(self) -> u8 {
        self.bits
    }

    /// Maximum number of inputs added by one step.
    pub(in crate::work) fn inputs_at_once(self) -> u32 {
        if self.is_one() { u32::MAX } else { STREAMS }
    }

    fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.words).step_by(self.length).map(move |start| start..self.words.min(start + self.length))
    }
}

/// Stored sums available for further addition.
#[derive(Default)]
pub(in crate::work) struct SumCache(PoisonFreeMutex<HashMap<Attempt, (Digest, Sum)>>);

impl SumCache {
    /// Takes the cached sum stored as `partial`.
    fn take(&self, partial: &PartialSum) -> Option<Sum> {
        let (digest, sum) = self.0.lock().remove(&partial.attempt)?;
        (digest == partial.blob).then_some(sum)
    }

    /// Caches a sum just stored as `partial`.
    pub(in crate::work) fn keep(&self, partial: &PartialSum, sum: Sum) {
        let mut kept = self.0.lock();
        if kept.len() < KEPT {
            kept.insert(partial.attempt, (partial.blob, sum));
        }
    }

    /// Forgets the sums of all other rounds.
    pub(in crate::work) fn retain(&self, open: impl Fn(Attempt) -> bool) {
        self.0.lock().retain(|&attempt, _| open(attempt));
    }
}

/// A sum, slice by slice, in order.
pub(in crate::work) struct SlicedSum {
    aggregator: Arc<dyn Aggregator>,
    modulus: Modulus,
    left: Box<dyn Iterator<Item = Range<usize>> + Send>,
    /// The only slice, if everything is already added.
    only: Option<Sum>,
    /// The blobs to add to every slice.
    streams: Vec<Stored>,
}

impl SlicedSum {
    /// The sum of the next slice, and the position of its first word. Call it outside of the runtime's threads.
    ///
    /// # Errors
    /// [`StepError::is_loss`] if a blob is unreadable.
    pub(in crate::work) fn next(&mut self) -> Result<Option<(u64, Sum)>, StepError> {
        let Some(slice) = self.left.next() else { return Ok(None) };
        let mut sum = match self.only.take() {
            Some(sum) => sum,
            None => self.aggregator.begin(Shape::new(slice.len(), self.modulus.bits())?)?,
        };
        let bytes = packed_len(slice.len(), self.modulus) as u64;
        for stored in &mut self.streams {
            let packed = &mut stored.read.by_ref().take(bytes);
            add_packed(&mut *sum, stored.blob, packed, bytes)?;
        }
        Ok(Some((slice.start as u64, sum)))
    }

    /// Switches to the spare of a failed device from the next slice on.
    pub(in crate::work) fn go_on_with_the_spare(&mut self) {
        if let Some(spare) = self.aggregator.spare() {
            self.aggregator = spare;
        }
    }

    /// Checks, after the last slice, that all added bytes matched their digests.
    ///
    /// # Errors
    /// [`StepError::is_loss`] otherwise: all slices are then invalid.
    pub(in crate::work) fn end(self) -> Result<(), StepError> {
        self.streams.into_iter().try_for_each(Stored::end)
    }
}

/// A blob read in order and verified at its end.
struct Stored {
    blob: Digest,
    read: VerifiedRead,
}

impl Stored {
    /// Reads to the end, which verifies the blob.
    fn end(mut self) -> Result<(), StepError> {
        match io::copy(&mut self.read.by_ref().take(1), &mut io::sink()) {
            Ok(0) => Ok(()),
            Ok(_) => Err(not_a_vector(self.blob, "it has become longer").into()),
            Err(error) => Err(StoreError::from(error).into()),
        }
    }
}

/// The sum of `partial` and `inputs`; at most [`Slices::inputs_at_once`] inputs for several slices. Memory: the sum of a slice and a buffer
/// for each open input.
///
/// # Errors
/// [`StepError::is_loss`] if the partial sum or an input is unreadable.
pub(in crate::work) async fn sum_up(
    env: &Environment,
    cache: &SumCache,
    model: &TaskModel,
    slices: Slices,
    partial: Option<&PartialSum>,
    inputs: &[Admitted],
) -> Result<SlicedSum, StepError> {
    let mut sum = SlicedSum {
        aggregator: Arc::clone(&env.aggregator),
        modulus: model.modulus,
        left: Box::new(slices.ranges()),
        only: None,
        streams: Vec::new(),
    };
    if slices.is_one() {
        sum.only = Some(whole_sum(env, cache, model, partial, inputs).await?);
        return Ok(sum);
    }
    let expected = packed_len(slices.words(), model.modulus) as u64;
    if let Some(partial) = partial {
        sum.streams.push(open_partial(env, partial).await?);
    }
    for input in inputs {
        sum.streams.push(open(env, input).await?);
    }
    match sum.streams.iter().find(|stored| stored.read.size() != expected) {
        Some(stored) => Err(not_a_vector(stored.blob, "it has another length").into()),
        None => Ok(sum),
    }
}

/// The sum of vectors of one slice.
async fn whole_sum(
    env: &Environment,
    cache: &SumCache,
    model: &TaskModel,
    partial: Option<&PartialSum>,
    inputs: &[Admitted],
) -> Result<Sum, StepError> {
    let mut sum = match partial.and_then(|partial| cache.take(partial)) {
        Some(sum) => sum,
        None => {
            let sum = env.aggregator.begin(Shape::new(model.codec.len(), model.modulus.bits())?)?;
            match partial {
                Some(partial) => add(sum, None, vec![open_partial(env, partial).await?]).await?,
                None => sum,
            }
        }
    };
    for group in groups(inputs) {
        let mut stored = Vec::with_capacity(group.len());
        for input in group {
            stored.push(open(env, input).await?);
        }
        sum = add(sum, model.codec.expanding(), stored).await?;
    }
    Ok(sum)
}

async fn open_partial(env: &Environment, partial: &PartialSum) -> Result<Stored, StepError> {
    let read = env.blobs.open(partial.blob).await?;
    Ok(Stored { blob: partial.blob, read: VerifiedRead::new(read, partial.blob) })
}

async fn open(env: &Environment, input: &Admitted) -> Result<Stored, StepError> {
    let read = open_input(&env.blobs, input.sha256, input.bytes).await?;
    Ok(Stored { blob: input.sha256, read: VerifiedRead::new(read, input.sha256) })
}

/// Groups of inputs, each added by one thread in order: a thread for each input would take longer to start than to add a small model.
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

/// Adds stored blobs in order. A digest is verified only at the blob's end: after any error the sum is dropped, so that it never continues
/// with damaged bytes.
async fn add(mut sum: Sum, expanding: Option<&Arc<WeightedCodec>>, stored: Vec<Stored>) -> Result<Sum, StepError> {
    let expanding = expanding.cloned();
    blocking(move || {
        for Stored { blob, mut read } in stored {
            let length = read.size();
            match &expanding {
                Some(codec) => add_expanded(&mut *sum, codec, blob, read)?,
                None => add_packed(&mut *sum, blob, &mut read, length)?,
            }
        }
        Ok(sum)
    })
    .await
}

/// Adds an upload of a codec without summable uploads: read whole, since it is small, and expanded to words.
fn add_expanded(
    sum: &mut dyn Accumulator,
    codec: &WeightedCodec,
    blob: Digest,
    stored: VerifiedRead,
) -> Result<(), StepError> {
    let mut bytes = Vec::with_capacity(codec.upload_bytes());
    let most = codec.upload_bytes() as u64 + 1;
    stored.take(most).read_to_end(&mut bytes).map_err(StoreError::from)?;
    // Validated when admitted.
    let words = codec
        .expand(&bytes)
        .map_err(|error| StoreError::unreadable(format!("blob {blob} is no update of its task"), error))?;
    Ok(sum.merge(&words)?)
}

/// Adds a vector, or a slice of one, while reading it.
fn add_packed(sum: &mut dyn Accumulator, blob: Digest, packed: &mut dyn Read, length: u64) -> Result<(), StepError> {
    match sum.add_stream(packed, length) {
        Ok(()) => Ok(()),
        // Its length and padding were validated when admitted.
        Err(AggregationError::Packing(error)) => Err(not_a_vector(blob, error).into()),
        Err(AggregationError::Read(error)) => Err(StoreError::from(error).into()),
        Err(error) => Err(error.into()),
    }
}

fn not_a_vector(blob: Digest, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::unreadable(format!("blob {blob} is no vector of its task"), why)
}

/// Runs blocking work on a new thread. The thread ends with it, since an allocator keeps freed memory for its thread, and each thread of a
/// pool would keep buffers for vectors.
pub(in crate::work) async fn blocking<T: Send + 'static, E: From<StepError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let run = move || {
        // The receiver is gone if the step was abandoned.
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
