//! One running sum in main memory.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rayon::ThreadPool;
use rayon::prelude::*;
use secure_agg::mask::MaskPlan;
use secure_agg::modular;
use secure_agg::packing::{self, PackingError};

use super::batch::BATCH;
use super::kernel::Present;
use crate::memory::{Memory, Reservation};
use crate::shape::room_for;
use crate::stream::read_full;
use crate::work::Stopwatch;
use crate::{Accumulator, AggregationError, Effort, Shape};

/// Number of words that a thread adds at a time, and capacity of a stream's buffer: a multiple of 8, so that every
/// piece of a packed vector starts on a byte.
const PIECE: usize = 1 << 16;

/// The sum, unreduced modulo 2^32 until it is read.
pub(crate) struct CpuAccumulator {
    shape: Shape,
    device: Arc<str>,
    kernel: Present,
    pool: Option<Arc<ThreadPool>>,
    sum: Vec<u32>,
    torn: bool,
    adding: Duration,
    _held: Reservation,
}

impl CpuAccumulator {
    pub(super) fn new(
        shape: Shape,
        device: Arc<str>,
        kernel: Present,
        pool: Option<Arc<ThreadPool>>,
        memory: &Arc<Memory>,
    ) -> Result<Self, AggregationError> {
        let mut sum = room_for(shape)?;
        sum.resize(shape.words(), 0);
        let _held = memory.hold(shape.words());
        Ok(Self { shape, device, kernel, pool, sum, torn: false, adding: Duration::ZERO, _held })
    }

    const fn refuse_if_torn(&self) -> Result<(), AggregationError> {
        if self.torn { Err(AggregationError::Torn) } else { Ok(()) }
    }

    /// The unreduced sum, unless it is torn.
    pub(crate) fn words(&self) -> Result<&[u32], AggregationError> {
        self.refuse_if_torn()?;
        Ok(&self.sum)
    }

    /// Runs `work` on consecutive pieces of the sum, with their indices, on all threads.
    fn for_each_piece(&mut self, words: usize, work: impl Fn(usize, &mut [u32]) + Send + Sync) {
        for_each_piece(self.pool.as_deref(), &mut self.sum, words, work);
    }

    /// Adds the whole `stream`; an error leaves the sum incomplete.
    fn add_whole_stream(&mut self, stream: &mut dyn Read) -> Result<(), AggregationError> {
        let modulus = self.shape.modulus();
        let expected = self.shape.packed_len();
        let mut buffer = vec![0; packing::packed_len(PIECE.min(self.sum.len()), modulus)];
        let mut taken = 0;
        for piece in self.sum.chunks_mut(PIECE) {
            let packed = &mut buffer[..packing::packed_len(piece.len(), modulus)];
            let got = read_full(stream, packed).map_err(AggregationError::Read)?;
            taken += got;
            if got < packed.len() {
                return Err(PackingError::Length { expected, got: taken }.into());
            }
            let watch = Stopwatch::start();
            packing::check(packed, piece.len(), modulus)?;
            self.kernel.add_packed(piece, packed, modulus);
            self.adding += watch.elapsed();
        }
        match read_full(stream, &mut [0]).map_err(AggregationError::Read)? {
            0 => Ok(()),
            more => Err(PackingError::Length { expected, got: taken + more }.into()),
        }
    }
}

fn for_each_piece(
    pool: Option<&ThreadPool>,
    all: &mut [u32],
    words: usize,
    work: impl Fn(usize, &mut [u32]) + Send + Sync,
) {
    match pool {
        Some(pool) if all.len() > words => pool.install(|| {
            all.par_chunks_mut(words).enumerate().for_each(|(index, piece)| work(index, piece));
        }),
        _ => all.chunks_mut(words).enumerate().for_each(|(index, piece)| work(index, piece)),
    }
}

/// Applies all masks of `plan` to words of its vector from `offset` on, a multiple of [`BATCH`], and reduces them.
pub(super) fn apply_masks(kernel: Present, pool: Option<&ThreadPool>, plan: &MaskPlan, offset: u64, words: &mut [u32]) {
    for_each_piece(pool, words, BATCH, |index, words| {
        kernel.apply_masks(plan, offset + (index * BATCH) as u64, words);
    });
}

impl Accumulator for CpuAccumulator {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn summing(&self) -> Effort {
        Effort { device: (*self.device).to_owned(), took: self.adding }
    }

    fn add_packed(&mut self, packed: &[u8]) -> Result<(), AggregationError> {
        self.refuse_if_torn()?;
        let (modulus, watch) = (self.shape.modulus(), Stopwatch::start());
        packing::check(packed, self.shape.words(), modulus)?;
        let kernel = self.kernel;
        let stride = packing::packed_len(PIECE, modulus);
        self.for_each_piece(PIECE, |index, piece| {
            let start = index * stride;
            kernel.add_packed(piece, &packed[start..start + packing::packed_len(piece.len(), modulus)], modulus);
        });
        self.adding += watch.elapsed();
        Ok(())
    }

    fn add_stream(&mut self, packed: &mut dyn Read, length: u64) -> Result<(), AggregationError> {
        self.refuse_if_torn()?;
        let expected = self.shape.packed_len();
        if length != expected as u64 {
            let got = usize::try_from(length).unwrap_or(usize::MAX);
            return Err(PackingError::Length { expected, got }.into());
        }
        // Torn until the stream has ended, so a panicking reader leaves no usable partial sum either.
        self.torn = true;
        self.add_whole_stream(packed)?;
        self.torn = false;
        Ok(())
    }

    fn merge(&mut self, words: &[u32]) -> Result<(), AggregationError> {
        self.refuse_if_torn()?;
        if words.len() != self.sum.len() {
            return Err(AggregationError::Length { expected: self.sum.len(), got: words.len() });
        }
        let (kernel, watch) = (self.kernel, Stopwatch::start());
        self.for_each_piece(PIECE, |index, piece| {
            let start = index * PIECE;
            kernel.add_words(piece, &words[start..start + piece.len()]);
        });
        self.adding += watch.elapsed();
        Ok(())
    }

    fn partial(&mut self) -> Result<Vec<u32>, AggregationError> {
        self.refuse_if_torn()?;
        let mut words = room_for(self.shape)?;
        words.extend_from_slice(&self.sum);
        modular::reduce(&mut words, self.shape.modulus());
        Ok(words)
    }

    fn write_partial(&mut self, out: &mut dyn Write) -> Result<(), AggregationError> {
        self.refuse_if_torn()?;
        for piece in self.sum.chunks(PIECE) {
            out.write_all(&packing::pack(piece, self.shape.modulus())).map_err(AggregationError::Write)?;
        }
        Ok(())
    }

    fn unmask_at(mut self: Box<Self>, plan: &MaskPlan, offset: u64) -> Result<Vec<u32>, AggregationError> {
        self.refuse_if_torn()?;
        self.shape.check_place(plan, offset)?;
        apply_masks(self.kernel, self.pool.as_deref(), plan, offset, &mut self.sum);
        Ok(self.sum)
    }
}
