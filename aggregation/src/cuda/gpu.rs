//! The kernels and the memory of one NVIDIA GPU.
//!
//! Everything goes through one stream, so work is done in the order of the calls and memory is freed after its last use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use zeroize::Zeroize;

use crate::gpu::{Gpu, GpuError, LONGEST_PIECE, Launch, Limits, SEED_WORDS, SeedList};

/// The kernels as portable code that the driver compiles for the GPU it finds: see `regenerate.py`.
const PTX: &str = include_str!("kernels.sm_75.ptx");
/// The oldest GPUs that can run them.
const CAPABILITY: (i32, i32) = (7, 5);
/// Threads of a block, as in `kernels.cu`.
const BLOCK: u32 = 256;
/// Threads that a multiprocessor holds at 64 registers each.
const RESIDENT: usize = 1024;
/// Bytes of keystream that a multiprocessor makes in 40 ms for each kHz of its clock: 64 lanes of 644 instructions per block
/// of 64 bytes (`check_ptx.py` prints the count), which is 6 bytes per clock.
const BYTES_PER_KHZ: u64 = 240;

/// How long to wait for a GPU that has nothing queued by us, and how much longer for each launch, which takes about 50 ms:
/// others may use it too. One that takes longer is taken for hung.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_PER_LAUNCH: Duration = Duration::from_secs(1);
/// Between two looks at whether it is done: nothing beside what is waited for, and no core is kept busy by waiting.
const PAUSE: Duration = Duration::from_micros(100);

/// One GPU, opened.
pub(super) struct CudaGpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    unmask: CudaFunction,
    add_packed: CudaFunction,
    limits: Limits,
    /// About how many launches nobody has waited for yet.
    queued: AtomicU32,
}

/// Seeds in device memory, wiped when dropped.
pub(super) struct Seeds {
    stream: Arc<CudaStream>,
    records: CudaSlice<u32>,
}

impl Drop for Seeds {
    fn drop(&mut self) {
        // Queued behind the kernels that read the seeds, and before the memory is freed. A GPU that refuses this is lost,
        // and with it its memory.
        let _ = self.stream.memset_zeros(&mut self.records);
    }
}

impl From<DriverError> for GpuError {
    fn from(error: DriverError) -> Self {
        if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY { Self::OutOfMemory } else { Self::Failed(error.to_string()) }
    }
}

impl CudaGpu {
    /// The driver's library must be present.
    pub(super) fn open(ordinal: usize) -> Result<Self, GpuError> {
        let context = CudaContext::new(ordinal)?;
        let capability = context.compute_capability()?;
        if capability < CAPABILITY {
            let ((major, minor), (least, _)) = (capability, CAPABILITY);
            return Err(GpuError::Failed(format!("compute capability {major}.{minor} is below {least}.5")));
        }
        let module = context.load_module(Ptx::from_src(PTX))?;
        let number = |attribute| context.attribute(attribute).map(|value| u64::try_from(value).unwrap_or(0).max(1));
        let multiprocessors = number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let clock_khz = number(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
        let limits = Limits {
            piece_words: LONGEST_PIECE,
            threads: RESIDENT.saturating_mul(usize::try_from(multiprocessors).unwrap_or(usize::MAX)),
            launch_bytes: multiprocessors.saturating_mul(clock_khz).saturating_mul(BYTES_PER_KHZ),
        };
        let (unmask, add_packed) = (module.load_function("unmask")?, module.load_function("add_packed")?);
        let (stream, queued) = (context.new_stream()?, AtomicU32::new(0));
        Ok(Self { context, stream, unmask, add_packed, limits, queued })
    }

    /// Waits until everything that was queued is done. What failed in it fails here.
    fn settle(&self) -> Result<(), GpuError> {
        let queued = self.queued.load(Ordering::Relaxed);
        let done = self.stream.record_event(None)?;
        wait(PATIENCE + PATIENCE_PER_LAUNCH.saturating_mul(queued), || Ok(done.try_is_complete()?))?;
        let less = |now: u32| Some(now.saturating_sub(queued));
        // Another thread may have taken the same launches off: the number is only ever a measure of patience.
        let _ = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        Ok(())
    }

    /// As the driver calls it.
    pub(super) fn name(&self) -> String {
        self.context.name().unwrap_or_else(|_| "a GPU without a name".to_owned())
    }
}

impl Gpu for CudaGpu {
    type Memory = CudaSlice<u32>;
    type Seeds = Seeds;

    fn limits(&self) -> Limits {
        self.limits
    }

    fn zeros(&self, words: usize) -> Result<Self::Memory, GpuError> {
        Ok(self.stream.alloc_zeros(words)?)
    }

    fn write(&self, memory: &mut Self::Memory, words: &[u32]) -> Result<(), GpuError> {
        Ok(self.stream.memcpy_htod(words, memory)?)
    }

    fn add_packed(
        &self,
        memory: &mut Self::Memory,
        at: usize,
        packed: &[u8],
        words: usize,
        bits: u8,
    ) -> Result<(), GpuError> {
        assert!(at + words <= memory.len() && packed.len() >= (words * usize::from(bits)).div_ceil(8), "it fits");
        let mut input = self.stream.alloc_zeros::<u8>(packed.len().next_multiple_of(4) + 4)?;
        self.stream.memcpy_htod(packed, &mut input)?;
        let (at, len, bits, config) = (at as u64, words as u64, u32::from(bits), config(words, 1)?);
        let mut builder = self.stream.launch_builder(&self.add_packed);
        builder.arg(memory).arg(&at).arg(&input).arg(&len).arg(&bits);
        // SAFETY: the arguments have the number, order and types of the kernel's parameters. Thread i below `len` reads packed
        // words i·bits/32 and the one after, which the padding holds, and adds to word at + i; both lie inside, as asserted.
        // Both buffers belong to this stream, which frees them after the kernel.
        #[expect(unsafe_code, reason = "a kernel's launch")]
        unsafe { builder.launch(config) }?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The seeds travel through page-locked memory of our own, so that the driver makes no copy of them to send.
    fn load(&self, seeds: &SeedList) -> Result<Seeds, GpuError> {
        let words = SEED_WORDS * seeds.records().len();
        let records = self.stream.alloc_zeros(words)?;
        let mut records = Seeds { stream: Arc::clone(&self.stream), records };
        // SAFETY: the memory is written in full before anything reads it: by `fill` here or by the loop below.
        #[expect(unsafe_code, reason = "page-locked memory comes without contents")]
        let mut staging = unsafe { self.context.alloc_pinned::<u32>(words) }?;
        let place = staging.as_mut_slice()?;
        place.fill(0);
        for (place, record) in place.chunks_mut(SEED_WORDS).zip(seeds.records()) {
            let mut record = record.words();
            place.copy_from_slice(&record);
            record.zeroize();
        }
        let sent = self.stream.memcpy_htod(&staging, &mut records.records);
        if sent.is_ok()
            && let Err(error) = self.settle()
        {
            // Freeing or wiping it would wait for a GPU that may never be done with it.
            std::mem::forget(staging);
            return Err(error);
        }
        staging.as_mut_slice()?.zeroize();
        sent?;
        Ok(records)
    }

    fn apply(&self, memory: &mut Self::Memory, seeds: &Seeds, launch: &Launch) -> Result<(), GpuError> {
        assert!(
            launch.words <= memory.len() && SEED_WORDS * launch.seeds.end as usize <= seeds.records.len(),
            "it fits"
        );
        let (len, first, count) = (launch.words as u64, launch.seeds.start, launch.seeds.end - launch.seeds.start);
        let ([nonce0, nonce1], config) = (launch.nonce, config(launch.blocks(), launch.parts)?);
        let mut builder = self.stream.launch_builder(&self.unmask);
        builder.arg(&seeds.records).arg(memory).arg(&len).arg(&first).arg(&count);
        builder.arg(&launch.first_block).arg(&nonce0).arg(&nonce1);
        // SAFETY: the arguments have the number, order and types of the kernel's parameters. Threads touch words below `len`
        // of the sum, each its own or by atomic additions, and read the seeds of the range; both lie inside, as asserted.
        // Seeds are records of 12 words, device memory is aligned to more than their 16 bytes.
        #[expect(unsafe_code, reason = "a kernel's launch")]
        unsafe { builder.launch(config) }?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, memory: &mut Self::Memory, into: &mut [u32]) -> Result<(), GpuError> {
        self.settle()?;
        let words = memory.try_slice(..into.len());
        let words = words.ok_or_else(|| GpuError::Failed("a read beyond a piece".to_owned()))?;
        self.stream.memcpy_dtoh(&words, into)?;
        Ok(self.stream.synchronize()?)
    }
}

/// Looks again and again until something is done.
fn wait(patience: Duration, done: impl Fn() -> Result<bool, GpuError>) -> Result<(), GpuError> {
    let mut waited = Duration::ZERO;
    while !done()? {
        if waited >= patience {
            return Err(GpuError::Failed(format!("it did not finish within {} s", patience.as_secs())));
        }
        sleep(PAUSE);
        waited += PAUSE;
    }
    Ok(())
}

fn config(threads: usize, parts: u32) -> Result<LaunchConfig, GpuError> {
    let blocks = u32::try_from(threads.div_ceil(BLOCK as usize));
    let blocks = blocks.map_err(|_| GpuError::Failed("a piece is longer than a launch".to_owned()))?;
    Ok(LaunchConfig { grid_dim: (blocks, parts, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_gpu_that_hangs_is_given_up_and_one_that_is_slow_is_not() {
        let looks = Cell::new(0);
        let slow = || Ok(looks.replace(looks.get() + 1) == 5);
        wait(Duration::from_secs(1), slow).unwrap();
        let message = wait(10 * PAUSE, || Ok(false)).unwrap_err().to_string();
        assert_eq!(message, "it did not finish within 0 s");
        assert!(wait(PAUSE, || Err(GpuError::OutOfMemory)).is_err());
    }
}
