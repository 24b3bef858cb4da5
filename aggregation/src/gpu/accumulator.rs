//! One running sum in device memory.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use secure_agg::mask::{self, MaskPlan};
use secure_agg::modular::{self, Modulus};
use secure_agg::packing::{self, PackingError};

use super::{Gpu, GpuError, Launch, SEEDS_AT_ONCE, SeedList, bytes_of};
use crate::memory::{Memory, Reservation};
use crate::shape::room_for;
use crate::stream::read_full;
use crate::work::Stopwatch;
use crate::{Accumulator, AggregationError, Effort, Shape};

/// Number of words sent to a device at a time. It divides every piece, and any multiple of it is a whole number of
/// words in packed form.
const STEP: usize = 1 << 16;

/// The sum in pieces: piece `i` lies on device `i` modulo the number of devices.
pub(super) struct GpuAccumulator<G: Gpu> {
    shape: Shape,
    name: Arc<str>,
    gpus: Arc<[G]>,
    piece: usize,
    pieces: Vec<G::Memory>,
    torn: bool,
    adding: Duration,
    _held: Reservation,
}

impl<G: Gpu> GpuAccumulator<G> {
    pub(super) fn new(
        shape: Shape,
        name: Arc<str>,
        gpus: Arc<[G]>,
        piece: usize,
        memory: &Arc<Memory>,
    ) -> Result<Self, AggregationError> {
        let lengths = (0..shape.words()).step_by(piece).map(|start| piece.min(shape.words() - start));
        let pieces = gpus.iter().cycle().zip(lengths).map(|(gpu, words)| gpu.zeros(words));
        let pieces: Result<Vec<_>, _> = pieces.collect();
        let pieces = pieces.map_err(|error| error.of(&name, 4 * shape.words()))?;
        let _held = memory.hold(shape.words());
        Ok(Self { shape, name, gpus, piece, pieces, torn: false, adding: Duration::ZERO, _held })
    }

    const fn refuse_if_torn(&self) -> Result<(), AggregationError> {
        if self.torn { Err(AggregationError::Torn) } else { Ok(()) }
    }

    /// Runs `work`; if it fails, the sum becomes torn, since a failed device leaves it in an unknown state.
    fn whole_or_torn<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, AggregationError>,
    ) -> Result<T, AggregationError> {
        self.torn = true;
        let outcome = work(self)?;
        self.torn = false;
        Ok(outcome)
    }

    fn failed(&self, error: GpuError) -> AggregationError {
        error.of(&self.name, 4 * self.shape.words())
    }

    /// Adds the packed words that start at word `at`: at most [`STEP`] words, with `at` a multiple of it.
    fn add_step(&mut self, at: usize, packed: &[u8], words: usize, modulus: Modulus) -> Result<(), AggregationError> {
        let watch = Stopwatch::start();
        let (index, within) = (at / self.piece, at % self.piece);
        let gpu = &self.gpus[index % self.gpus.len()];
        gpu.add_packed(&mut self.pieces[index], within, packed, words, modulus.bits())
            .map_err(|error| self.failed(error))?;
        self.adding += watch.elapsed();
        Ok(())
    }

    fn add_whole_stream(&mut self, stream: &mut dyn Read) -> Result<(), AggregationError> {
        let (modulus, words) = (self.shape.modulus(), self.shape.words());
        let mut buffer = vec![0; packing::packed_len(STEP.min(words), modulus)];
        let mut taken = 0;
        for at in (0..words).step_by(STEP) {
            let here = STEP.min(words - at);
            let packed = &mut buffer[..packing::packed_len(here, modulus)];
            let got = read_full(stream, packed).map_err(AggregationError::Read)?;
            taken += got;
            if got < packed.len() {
                return Err(PackingError::Length { expected: self.shape.packed_len(), got: taken }.into());
            }
            packing::check(packed, here, modulus)?;
            self.add_step(at, packed, here, modulus)?;
        }
        match read_full(stream, &mut [0]).map_err(AggregationError::Read)? {
            0 => Ok(()),
            more => Err(PackingError::Length { expected: self.shape.packed_len(), got: taken + more }.into()),
        }
    }

    /// Copies the sum out, reduced.
    fn read(&mut self) -> Result<Vec<u32>, AggregationError> {
        let mut words = room_for(self.shape)?;
        words.resize(self.shape.words(), 0);
        let gpus = self.gpus.iter().cycle();
        for ((out, memory), gpu) in words.chunks_mut(self.piece).zip(&mut self.pieces).zip(gpus) {
            gpu.read(memory, out).map_err(|error| error.of(&self.name, 4 * self.shape.words()))?;
        }
        modular::reduce(&mut words, self.shape.modulus());
        Ok(words)
    }

    fn apply_all(&mut self, plan: &MaskPlan, offset: u64) -> Result<(), GpuError> {
        let words = self.shape.words();
        for first in (0..plan.len()).step_by(SEEDS_AT_ONCE) {
            let list = SeedList::of(plan, first);
            for (index, (memory, gpu)) in self.pieces.iter_mut().zip(self.gpus.iter().cycle()).enumerate() {
                let start = index * self.piece;
                apply(gpu, plan, offset + start as u64, self.piece.min(words - start), &list, memory)?;
            }
        }
        Ok(())
    }
}

impl<G: Gpu> Accumulator for GpuAccumulator<G> {
    fn shape(&self) -> Shape {
        self.shape
    }

    /// The device may still add after its part was handed over; the rest of that time counts as unmasking.
    fn summing(&self) -> Effort {
        Effort { device: (*self.name).to_owned(), took: self.adding }
    }

    fn add_packed(&mut self, packed: &[u8]) -> Result<(), AggregationError> {
        self.refuse_if_torn()?;
        let (modulus, words) = (self.shape.modulus(), self.shape.words());
        packing::check(packed, words, modulus)?;
        self.whole_or_torn(|sum| {
            let steps = packed.chunks(packing::packed_len(STEP, modulus));
            for (at, packed) in (0..words).step_by(STEP).zip(steps) {
                sum.add_step(at, packed, STEP.min(words - at), modulus)?;
            }
            Ok(())
        })
    }

    fn add_stream(&mut self, packed: &mut dyn Read, length: u64) -> Result<(), AggregationError> {
        self.refuse_if_torn()?;
        let expected = self.shape.packed_len();
        if length != expected as u64 {
            return Err(PackingError::Length { expected, got: usize::try_from(length).unwrap_or(usize::MAX) }.into());
        }
        self.whole_or_torn(|sum| sum.add_whole_stream(packed))
    }

    fn merge(&mut self, words: &[u32]) -> Result<(), AggregationError> {
        self.refuse_if_torn()?;
        if words.len() != self.shape.words() {
            return Err(AggregationError::Length { expected: self.shape.words(), got: words.len() });
        }
        self.whole_or_torn(|sum| {
            let mut bytes = Vec::with_capacity(4 * STEP.min(words.len()));
            for (at, words) in (0..).step_by(STEP).zip(words.chunks(STEP)) {
                bytes_of(words, &mut bytes);
                sum.add_step(at, &bytes, words.len(), Modulus::WORD)?;
            }
            Ok(())
        })
    }

    fn partial(&mut self) -> Result<Vec<u32>, AggregationError> {
        self.refuse_if_torn()?;
        self.read()
    }

    fn write_partial(&mut self, out: &mut dyn Write) -> Result<(), AggregationError> {
        for words in self.partial()?.chunks(STEP) {
            out.write_all(&packing::pack(words, self.shape.modulus())).map_err(AggregationError::Write)?;
        }
        Ok(())
    }

    fn unmask_at(mut self: Box<Self>, plan: &MaskPlan, offset: u64) -> Result<Vec<u32>, AggregationError> {
        self.refuse_if_torn()?;
        self.shape.check_place(plan, offset)?;
        if offset.is_multiple_of(self.piece as u64) {
            self.apply_all(plan, offset).map_err(|error| self.failed(error))?;
            return self.read();
        }
        // A piece would not lie within one nonce: the definition takes the masks off.
        let mut words = self.read()?;
        let (len, plan_words) = (words.len(), plan.words());
        mask::apply(plan, offset, &mut words).map_err(|_| AggregationError::Slice {
            offset,
            len,
            words: plan_words,
        })?;
        Ok(words)
    }
}

/// Applies the masks of `list` to one piece.
pub(super) fn apply<G: Gpu>(
    gpu: &G,
    plan: &MaskPlan,
    offset: u64,
    words: usize,
    list: &SeedList,
    memory: &mut G::Memory,
) -> Result<(), GpuError> {
    let seeds = gpu.load(list)?;
    for launch in Launch::all(plan.plane(), offset, words, list.records().len(), gpu.limits()) {
        gpu.apply(memory, &seeds, &launch)?;
    }
    Ok(())
}
