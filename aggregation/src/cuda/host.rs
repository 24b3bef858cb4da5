//! The source of the CUDA kernels, compiled as C++ and run by the processor: a test device that compares a GPU's
//! computation bit for bit without a GPU. It verifies arithmetic, indices and splits; it cannot reveal races or timing.

use crate::Aggregator;
use crate::gpu::{
    Gpu, GpuAggregator, GpuError, Launch, Limits, Products, Rows, SHORTEST_PIECE, SeedList, SeedRecord, fill_with_bytes,
};

/// Threads of a block, as on a GPU.
const BLOCK: u32 = 256;

#[expect(unsafe_code, reason = "the kernels' entry points in host.cpp")]
unsafe extern "C" {
    fn host_unmask(
        grid_x: u32,
        grid_y: u32,
        block: u32,
        seeds: *const SeedRecord,
        sum: *mut u32,
        len: u64,
        first_seed: u32,
        n_seeds: u32,
        first_block: u32,
        nonce0: u32,
        nonce1: u32,
    );
    fn host_trimmed_sum(grid_x: u32, block: u32, rows: *const u32, vectors: u32, width: u32, trim: u32, out: *mut u32);
    fn host_gram(
        grid_x: u32,
        grid_y: u32,
        block: u32,
        rows: *const u32,
        vectors: u32,
        width: u32,
        first_tile: u32,
        first_row: u32,
        sums: *mut u64,
    );
    fn host_add_packed(grid_x: u32, block: u32, sum: *mut u32, at: u64, packed: *const u32, len: u64, bits: u32);
}

/// Runs the CUDA kernels' text on the processor, slowly: as many devices as configured, each of which runs out of memory beyond
/// `memory_words` words (0: never).
#[must_use]
pub fn open(devices: usize, memory_words: usize) -> impl Aggregator {
    let gpus = (0..devices).map(|_| HostGpu { memory_words }).collect();
    GpuAggregator::new(&format!("cuda text on the processor, {devices} devices"), gpus)
}

struct HostGpu {
    memory_words: usize,
}

impl Gpu for HostGpu {
    type Memory = Vec<u32>;
    type Seeds = Vec<SeedRecord>;

    /// Small limits, so that tests cover split seeds, several pieces and several launches.
    fn limits(&self) -> Limits {
        Limits { piece_words: 16 * SHORTEST_PIECE, threads: 24, launch_bytes: 1 << 20 }
    }

    fn zeros(&self, words: usize) -> Result<Self::Memory, GpuError> {
        if self.memory_words != 0 && words > self.memory_words {
            return Err(GpuError::OutOfMemory);
        }
        Ok(vec![0; words])
    }

    /// Writes odd-sized pieces, for the tests.
    fn write(
        &self,
        memory: &mut Self::Memory,
        words: usize,
        mut fill: impl FnMut(usize, &mut [u32]),
    ) -> Result<(), GpuError> {
        const PIECE: usize = 12_345;
        for (index, place) in memory[..words].chunks_mut(PIECE).enumerate() {
            fill(index * PIECE, place);
        }
        Ok(())
    }

    fn add_packed(
        &self,
        memory: &mut Self::Memory,
        at: usize,
        packed: &[u8],
        words: usize,
        bits: u8,
    ) -> Result<(), GpuError> {
        assert!(at + words <= memory.len() && packed.len() >= (words * usize::from(bits)).div_ceil(8));
        let mut input = vec![0; packed.len().div_ceil(4) + 1];
        fill_with_bytes(packed, 0, &mut input);
        let (sum, bits) = (memory.as_mut_ptr(), u32::from(bits));
        // SAFETY: thread i reads packed words i·bits/32 and the one after, which the padding holds, and adds to word at + i
        // for i below `words`; both lie inside, as asserted. Nothing keeps the pointers.
        #[expect(unsafe_code, reason = "a kernel's entry point")]
        unsafe {
            host_add_packed(grid(words), BLOCK, sum, at as u64, input.as_ptr(), words as u64, bits);
        }
        Ok(())
    }

    fn load(&self, seeds: &SeedList) -> Result<Self::Seeds, GpuError> {
        Ok(seeds.records().to_vec())
    }

    fn apply(&self, memory: &mut Self::Memory, seeds: &Self::Seeds, launch: &Launch) -> Result<(), GpuError> {
        assert!(launch.words <= memory.len() && launch.seeds.end as usize <= seeds.len());
        let count = launch.seeds.end - launch.seeds.start;
        let [nonce0, nonce1] = launch.nonce;
        let (sum, len, first) = (memory.as_mut_ptr(), launch.words as u64, launch.seeds.start);
        // SAFETY: the kernel touches words below `launch.words` of the sum and the seeds of the range, all inside, as
        // asserted; `SeedRecord` has the layout and the alignment of the kernel's `Seed`. Nothing keeps the pointers.
        #[expect(unsafe_code, reason = "a kernel's entry point")]
        unsafe {
            let (blocks, parts) = (grid(launch.blocks()), launch.parts);
            host_unmask(
                blocks,
                parts,
                BLOCK,
                seeds.as_ptr(),
                sum,
                len,
                first,
                count,
                launch.first_block,
                nonce0,
                nonce1,
            );
        }
        Ok(())
    }

    fn trimmed_sum(&self, rows: &Self::Memory, shape: Rows, trim: u32, out: &mut Self::Memory) -> Result<(), GpuError> {
        let Rows { vectors, width } = shape;
        assert!(shape.words() <= rows.len() && 2 * width as usize <= out.len() && 2 * trim < vectors);
        // SAFETY: the kernel reads `vectors` rows of `width` words and writes two words for each of a row, all inside, as
        // asserted. Nothing keeps the pointers.
        #[expect(unsafe_code, reason = "a kernel's entry point")]
        unsafe {
            host_trimmed_sum(grid(width as usize), BLOCK, rows.as_ptr(), vectors, width, trim, out.as_mut_ptr());
        }
        Ok(())
    }

    fn gram(&self, rows: &Self::Memory, products: &Products, sums: &mut Self::Memory) -> Result<(), GpuError> {
        let Products { rows: Rows { vectors, width }, ref tiles, first_row } = *products;
        assert!(products.rows.words() <= rows.len() && products.words() <= sums.len());
        // Words of 64 bits, aligned as such.
        let mut wide: Vec<u64> =
            sums.as_chunks().0.iter().map(|[low, high]| u64::from(*high) << 32 | u64::from(*low)).collect();
        let (blocks, parts) = (grid(products.threads()), products.parts());
        // SAFETY: the kernel reads `vectors` rows of `width` words and adds to sums of the vectors of `tiles` with all, all
        // inside, as asserted. Nothing keeps the pointers.
        #[expect(unsafe_code, reason = "a kernel's entry point")]
        unsafe {
            host_gram(blocks, parts, BLOCK, rows.as_ptr(), vectors, width, tiles.start, first_row, wide.as_mut_ptr());
        }
        for (halves, sum) in sums.as_chunks_mut().0.iter_mut().zip(wide) {
            let bytes = sum.to_le_bytes();
            let (bytes, _) = bytes.as_chunks();
            *halves = [u32::from_le_bytes(bytes[0]), u32::from_le_bytes(bytes[1])];
        }
        Ok(())
    }

    fn read(&self, memory: &mut Self::Memory, into: &mut [u32]) -> Result<(), GpuError> {
        into.copy_from_slice(&memory[..into.len()]);
        Ok(())
    }
}

/// Number of blocks for this many threads.
fn grid(threads: usize) -> u32 {
    u32::try_from(threads.div_ceil(BLOCK as usize)).expect("a piece has at most 2^24 words")
}
