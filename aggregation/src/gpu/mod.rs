//! The common part of all GPUs: a sum in pieces of device memory, masks as lists of seeds, and work split into launches.
//!
//! The interface of each vendor is reduced to the few operations of [`Gpu`]; all decisions on *what* to compute are here, and are tested
//! through each of them. Device memory holds sums, inputs in transit and seeds; every [`Gpu`] wipes seeds after use.

mod accumulator;
mod aggregator;
mod launch;
mod robust;
mod rows;

use secure_agg::mask::{MaskPlan, Sign};
use thiserror::Error;
use zeroize::Zeroize;

pub(crate) use self::aggregator::GpuAggregator;
pub(crate) use self::launch::{Launch, Limits};
pub(crate) use self::rows::{Products, Rows};
use crate::AggregationError;

/// Maximum length of a piece: the words of one nonce, 64 MiB. Pieces are powers of two no longer than this, so each lies within one nonce
/// and starts on a word of its packed form.
pub(crate) const LONGEST_PIECE: usize = 1 << 24;
/// Minimum length of a piece (256 KiB), unless the vector is shorter. A device with less memory is useless.
pub(crate) const SHORTEST_PIECE: usize = 1 << 16;
/// Maximum number of seeds on a device at a time: 3 MiB.
pub(crate) const SEEDS_AT_ONCE: usize = 1 << 16;

/// Reasons a device operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum GpuError {
    /// Not enough device memory; a smaller piece may fit.
    #[error("out of device memory")]
    OutOfMemory,
    /// Anything else; the device may be lost.
    #[error("{0}")]
    Failed(String),
}

impl GpuError {
    /// Converts to an error for the user of device `name`; `bytes` could not be allocated.
    pub(crate) fn of(self, name: &str, bytes: usize) -> AggregationError {
        match self {
            Self::OutOfMemory => AggregationError::OutOfMemory { bytes },
            Self::Failed(reason) => AggregationError::Device { device: name.to_owned(), reason },
        }
    }
}

/// A mask as the kernels read it.
#[repr(C, align(16))]
#[derive(Clone, Copy, Zeroize)]
pub(crate) struct SeedRecord {
    key: [u32; 8],
    /// 1 to add the mask, 2^32 - 1 to subtract it.
    factor: u32,
    unused: [u32; 3],
}

/// Words of a [`SeedRecord`].
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) const SEED_WORDS: usize = 12;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl SeedRecord {
    /// The words as they lie in device memory.
    pub(crate) fn words(&self) -> [u32; SEED_WORDS] {
        let mut words = [0; SEED_WORDS];
        words[..8].copy_from_slice(&self.key);
        words[8] = self.factor;
        words
    }
}

/// Seeds of a plan in transit to a device; erased when dropped.
pub(crate) struct SeedList(Vec<SeedRecord>);

impl SeedList {
    /// The masks of `plan` from number `first` on, at most [`SEEDS_AT_ONCE`].
    pub(crate) fn of(plan: &MaskPlan, first: usize) -> Self {
        let left = plan.len().saturating_sub(first).min(SEEDS_AT_ONCE);
        // Allocated once, so that growth does not leave keys in freed memory.
        let mut list = Self(Vec::with_capacity(left));
        for (seed, sign) in plan.masks().skip(first).take(left) {
            let mut record = SeedRecord { key: [0; 8], factor: 1, unused: [0; 3] };
            let (key, _) = seed.expose().as_chunks::<4>();
            for (word, bytes) in record.key.iter_mut().zip(key) {
                *word = u32::from_le_bytes(*bytes);
            }
            if sign == Sign::Subtract {
                record.factor = u32::MAX;
            }
            list.0.push(record);
            record.zeroize();
        }
        list
    }

    pub(crate) fn records(&self) -> &[SeedRecord] {
        &self.0
    }
}

impl Drop for SeedList {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// One device. Calls may come from any thread and concern one buffer each; a device executes them in the order of the
/// calls.
///
/// Callers in this module check lengths. `apply` may return before the work is done; `read` waits for it and returns
/// its errors.
pub(crate) trait Gpu: Send + Sync + 'static {
    /// Words of a sum in device memory.
    type Memory: Send;
    /// Seeds in device memory. Dropping them wipes that memory, after the work queued before.
    type Seeds;

    fn limits(&self) -> Limits;

    /// `words` zeros, at most `limits().piece_words`.
    fn zeros(&self, words: usize) -> Result<Self::Memory, GpuError>;

    /// Replaces the first `words` words. `fill` is called for consecutive pieces, with the index of the first word of
    /// each, and writes every word of the piece.
    fn write(
        &self,
        memory: &mut Self::Memory,
        words: usize,
        fill: impl FnMut(usize, &mut [u32]),
    ) -> Result<(), GpuError>;

    /// Adds `words` packed words of `bits` bits to the words from `at` on.
    fn add_packed(
        &self,
        memory: &mut Self::Memory,
        at: usize,
        packed: &[u8],
        words: usize,
        bits: u8,
    ) -> Result<(), GpuError>;

    /// Copies seeds to the device.
    fn load(&self, seeds: &SeedList) -> Result<Self::Seeds, GpuError>;

    /// Applies some of the seeds to the first `launch.words` words.
    fn apply(&self, memory: &mut Self::Memory, seeds: &Self::Seeds, launch: &Launch) -> Result<(), GpuError>;

    /// Writes the trimmed sum of each column, without its `trim` smallest and largest words, as `i32`: two words per
    /// word of a row.
    fn trimmed_sum(&self, rows: &Self::Memory, shape: Rows, trim: u32, out: &mut Self::Memory) -> Result<(), GpuError>;

    /// Adds inner products to sums of two words each, low half first.
    fn gram(&self, rows: &Self::Memory, products: &Products, sums: &mut Self::Memory) -> Result<(), GpuError>;

    /// Copies the first `into.len()` words out.
    fn read(&self, memory: &mut Self::Memory, into: &mut [u32]) -> Result<(), GpuError>;
}

/// Writes the bytes from 4 * `at` on into `place` as words, padded with zeros.
#[cfg(any(feature = "cuda", feature = "host-cuda-test"))]
pub(crate) fn fill_with_bytes(bytes: &[u8], at: usize, place: &mut [u32]) {
    let bytes = &bytes[bytes.len().min(4 * at)..];
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain(std::iter::once(&last)).map(|word| u32::from_le_bytes(*word));
    for (place, word) in place.iter_mut().zip(words.chain(std::iter::repeat(0))) {
        *place = word;
    }
}

/// The packed form for b = 32.
pub(crate) fn bytes_of(words: &[u32], bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}
