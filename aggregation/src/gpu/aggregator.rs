//! One or several equal devices as one [`Aggregator`]: the pieces of a vector are dealt to them in turn.

use std::sync::Arc;

use secure_agg::mask::MaskPlan;
use secure_agg::modular;

use super::accumulator::{GpuAccumulator, apply};
use super::{Gpu, GpuError, LONGEST_PIECE, SEEDS_AT_ONCE, SHORTEST_PIECE, SeedList};
use crate::memory::Memory;
use crate::{Accumulator, AggregationError, Aggregator, MemoryUse, Shape};

/// The devices and their name.
pub(crate) struct GpuAggregator<G> {
    pub(super) name: Arc<str>,
    pub(super) gpus: Arc<[G]>,
    memory: Arc<Memory>,
}

impl<G: Gpu> GpuAggregator<G> {
    /// At least one device.
    pub(crate) fn new(name: &str, gpus: Vec<G>) -> Self {
        assert!(!gpus.is_empty(), "the caller found a device");
        Self { name: name.into(), gpus: gpus.into(), memory: Arc::default() }
    }

    /// Piece length in words: short enough for every device, and for each of them to get a share.
    fn piece_words(&self, words: usize) -> usize {
        let most = self.gpus.iter().map(|gpu| gpu.limits().piece_words).min().unwrap_or(LONGEST_PIECE);
        words.div_ceil(self.gpus.len()).next_power_of_two().clamp(SHORTEST_PIECE, most.max(SHORTEST_PIECE))
    }

    /// Processes as many consecutive pieces as there are devices, all started before the first is waited for.
    fn unmask_pieces(&self, plan: &MaskPlan, offset: u64, sum: &[u32], piece: usize, out: &mut [u32]) -> Outcome {
        let mut held = Vec::with_capacity(self.gpus.len());
        let mut counted = Vec::with_capacity(self.gpus.len());
        for (index, (gpu, words)) in self.gpus.iter().zip(sum.chunks(piece)).enumerate() {
            let mut memory = gpu.zeros(words.len())?;
            counted.push(self.memory.hold(words.len()));
            gpu.write(&mut memory, words.len(), |at, place| place.copy_from_slice(&words[at..at + place.len()]))?;
            held.push((gpu, offset + (index * piece) as u64, words.len(), memory));
        }
        for first in (0..plan.len()).step_by(SEEDS_AT_ONCE) {
            let list = SeedList::of(plan, first);
            for (gpu, offset, words, memory) in &mut held {
                apply(*gpu, plan, *offset, *words, &list, memory)?;
            }
        }
        for ((gpu, _, _, memory), out) in held.iter_mut().zip(out.chunks_mut(piece)) {
            gpu.read(memory, out)?;
        }
        modular::reduce(out, plan.modulus());
        drop(held);
        drop(counted);
        Ok(())
    }
}

type Outcome = Result<(), GpuError>;

impl<G: Gpu> Aggregator for GpuAggregator<G> {
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError> {
        let piece = self.piece_words(shape.words());
        Ok(Box::new(GpuAccumulator::new(shape, Arc::clone(&self.name), Arc::clone(&self.gpus), piece, &self.memory)?))
    }

    fn memory(&self) -> Vec<MemoryUse> {
        vec![self.memory.told(&self.name)]
    }

    /// Allocates device memory for one piece per device; if that fails, halves the pieces until it succeeds.
    fn unmask_slice(&self, plan: &MaskPlan, offset: u64, sum: &[u32], out: &mut [u32]) -> Result<(), AggregationError> {
        Shape::check_slice(plan, offset, sum.len(), out.len())?;
        let mut piece = self.piece_words(sum.len());
        let mut done = 0;
        while done < sum.len() {
            let end = sum.len().min(done + piece * self.gpus.len());
            // A piece that starts at a multiple of its own length lies within one nonce; at other offsets it is
            // shorter.
            let here = offset + done as u64;
            let (part, end) = if here.is_multiple_of(piece as u64) {
                (piece, end)
            } else {
                let aligned = 1 << here.trailing_zeros();
                (aligned, sum.len().min(done + aligned))
            };
            match self.unmask_pieces(plan, here, &sum[done..end], part, &mut out[done..end]) {
                Ok(()) => done = end,
                Err(GpuError::OutOfMemory) if piece > SHORTEST_PIECE => {
                    piece /= 2;
                    tracing::warn!(device = &*self.name, words = piece, "out of device memory: going on with less");
                }
                Err(error) => return Err(error.of(&self.name, 4 * piece * self.gpus.len())),
            }
        }
        Ok(())
    }
}
