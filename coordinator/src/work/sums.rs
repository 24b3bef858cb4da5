//! Running sums: made of a stored partial sum and stored inputs, slice by slice, or taken up where this process left off.
//!
//! A model that fits into one slice is summed whole, one group of inputs after the other. Of a larger one all inputs of a step
//! are open at once, and each slice is the sum of theirs: memory does not grow with the model.
//!
//! A sum in memory is only a shortcut. It is kept under the digest of the partial sum it was stored as, and whoever finds
//! another digest in the row reads the blob instead.

use std::collections::HashMap;
use std::io::{self, Read};
use std::iter;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use aggregation::{Accumulator, AggregationError, Aggregator, Shape};
use federation::id::{Attempt, Digest};
use learning::UpdateCodec;
use secure_agg::modular::Modulus;
use secure_agg::packing::packed_len;
use store::entity::admitted::Admitted;
use store::entity::partial_sum::PartialSum;
use store::{StoreError, VerifiedRead};

use super::{Environment, StepError, WorkConfig};
use recipe::TaskModel;

use crate::guarded::Guarded;
use crate::inputs::open_input;

/// Sums that may be kept at once, each of the size of a slice at most, or of a model whose inputs are expanded.
const KEPT: usize = 8;
/// Inputs that are opened at once, so that files run out for nobody.
const AT_ONCE: usize = 32;
/// Bytes after which no other is taken into a group: a thread cannot be told to stop before it has added its group.
const GROUP_BYTES: u64 = 64 << 20;
/// Inputs of several slices that are open at once: a reader of one that is far away holds 8 MiB.
const STREAMS: u32 = 8;

type Sum = Box<dyn Accumulator>;

/// How the vectors of a model are cut: into slices of equal length, and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slices {
    words: usize,
    length: usize,
    bits: u8,
}

impl Slices {
    /// The slices of a model's vectors. Some are not cut, however long they are: inputs that are expanded (they are smaller than
    /// the model, which is not) and sums whose noise is drawn at once. Elsewhere, what a robust rule makes of inputs or of groups
    /// is whole (`robust`, `release_groups`), and the sums of codecs that map updates to fewer coordinates are where they become
    /// the mean ([`recipe::server::step`]).
    pub(super) fn of(model: &TaskModel, config: &WorkConfig) -> Self {
        let is_drawn_at_once = model.private.as_ref().is_some_and(|private| private.draws_at_once());
        if model.codec.expanding().is_some() || is_drawn_at_once {
            return Self::whole(model);
        }
        Self::cut(model, model.codec.len(), config)
    }

    /// The slices of a model's stored sum and versions, which are read as they are.
    pub(super) fn of_files(model: &TaskModel, config: &WorkConfig) -> Self {
        Self::cut(model, model.codec.len().max(model.tensors.published.len()), config)
    }

    fn cut(model: &TaskModel, words: usize, config: &WorkConfig) -> Self {
        let start = usize::try_from(Shape::SLICE_START).unwrap_or(usize::MAX);
        let length = config.slice_words.max(1).next_multiple_of(start);
        Self { words, length, ..Self::whole(model) }
    }

    /// Words of a slice that is not the last.
    pub(super) fn length(self) -> usize {
        self.length
    }

    /// One slice.
    pub(super) fn whole(model: &TaskModel) -> Self {
        let words = model.codec.len();
        Self { words, length: words.max(1), bits: model.modulus.bits() }
    }

    pub(super) fn is_one(self) -> bool {
        self.words <= self.length
    }

    /// Words of all slices.
    pub(super) fn words(self) -> usize {
        self.words
    }

    pub(super) fn modulus_bits(self) -> u8 {
        self.bits
    }

    /// Most inputs that one step adds.
    pub(super) fn inputs_at_once(self) -> u32 {
        if self.is_one() { u32::MAX } else { STREAMS }
    }

    fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.words).step_by(self.length).map(move |start| start..self.words.min(start + self.length))
    }
}

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

/// A sum, slice by slice, in order.
pub(super) struct SlicedSum {
    aggregator: Arc<dyn Aggregator>,
    modulus: Modulus,
    left: Box<dyn Iterator<Item = Range<usize>> + Send>,
    /// The only slice, where everything is added already.
    only: Option<Sum>,
    /// What is added to every slice.
    streams: Vec<Stored>,
}

impl SlicedSum {
    /// The sum of the next slice, and the place of its first word. Not on a thread of the runtime.
    ///
    /// # Errors
    /// [`StepError::is_loss`] if a blob cannot be read any more.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Sum)>, StepError> {
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

    /// From the next slice on the device that stands in for the one that failed does the work.
    pub(super) fn go_on_with_the_spare(&mut self) {
        if let Some(spare) = self.aggregator.spare() {
            self.aggregator = spare;
        }
    }

    /// Tells, after the last slice, whether all that was added were the bytes that it was taken for.
    ///
    /// # Errors
    /// [`StepError::is_loss`] if not: none of the slices is the sum then.
    pub(super) fn end(self) -> Result<(), StepError> {
        self.streams.into_iter().try_for_each(Stored::end)
    }
}

/// A blob that is read in order and verified at its end.
struct Stored {
    blob: Digest,
    read: VerifiedRead,
}

impl Stored {
    /// Finds the end, and with it whether the blob was whole.
    fn end(mut self) -> Result<(), StepError> {
        match io::copy(&mut self.read.by_ref().take(1), &mut io::sink()) {
            Ok(0) => Ok(()),
            Ok(_) => Err(not_a_vector(self.blob, "it has become longer").into()),
            Err(error) => Err(StoreError::from(error).into()),
        }
    }
}

/// The sum of `partial` and of `inputs`, of several slices at most [`Slices::inputs_at_once`]. Memory: the sum of a slice and a
/// buffer for each input that is open.
///
/// # Errors
/// [`StepError::is_loss`] if the partial sum or an input cannot be read any more.
pub(super) async fn sum_up(
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
async fn add(mut sum: Sum, expanding: Option<&Arc<UpdateCodec>>, stored: Vec<Stored>) -> Result<Sum, StepError> {
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

/// Adds a vector, or a slice of one, as it is read.
fn add_packed(sum: &mut dyn Accumulator, blob: Digest, packed: &mut dyn Read, length: u64) -> Result<(), StepError> {
    match sum.add_stream(packed, length) {
        Ok(()) => Ok(()),
        // Its length and padding were checked when it was admitted.
        Err(AggregationError::Packing(error)) => Err(not_a_vector(blob, error).into()),
        Err(AggregationError::Read(error)) => Err(StoreError::from(error).into()),
        Err(error) => Err(error.into()),
    }
}

fn not_a_vector(blob: Digest, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::unreadable(format!("blob {blob} is no vector of its task"), why)
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
