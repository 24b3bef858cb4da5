//! The kernels and the memory of one NVIDIA GPU.
//!
//! Kernels run in one stream, in the order of the calls; transfers to and from the device have a stream each, so that
//! they overlap with kernels. cudarc tracks memory so that each stream waits for the work of others on the same memory.
//! Device memory is allocated and freed in the upload stream.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use zeroize::Zeroize;

use super::staging::Staging;
use super::timeout::{DEVICE_TIMEOUT, PATIENCE_PER_LAUNCH, wait};
use crate::gpu::{Gpu, GpuError, LONGEST_PIECE, Launch, Limits, Products, Rows, SEED_WORDS, SeedList, fill_with_bytes};

/// The kernels as portable code, compiled by the driver for the GPU at hand: see `regenerate.py`.
const PTX: &str = include_str!("kernels.sm_75.ptx");
/// Lowest supported compute capability.
const CAPABILITY: (i32, i32) = (7, 5);
/// Threads of a block, as in `kernels.cu`.
const BLOCK: u32 = 256;
/// Threads resident on a multiprocessor at 64 registers each.
const RESIDENT: usize = 1024;
/// Bytes of keystream per multiprocessor in 40 ms and kHz of its clock: 64 lanes of 644 instructions per block of 64 bytes (`check_ptx.py`
/// prints the count), which is 6 bytes per clock.
const BYTES_PER_KHZ: u64 = 240;
/// Clock of a GPU that does not report it, such as some virtual ones: launches of one mask each would be much slower.
const USUAL_KHZ: u64 = 1_500_000;

/// Number of packed inputs kept until later ones are uploaded.
const INPUTS: usize = 2;

pub(super) struct CudaGpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// Stream for uploads.
    upward: Arc<CudaStream>,
    uploads: Mutex<Staging>,
    downloads: Mutex<Staging>,
    /// The last packed inputs: freeing one immediately would delay the next until the kernel reading it has finished.
    inputs: Mutex<VecDeque<CudaSlice<u32>>>,
    unmask: CudaFunction,
    add_packed: CudaFunction,
    trimmed_sum: CudaFunction,
    gram: CudaFunction,
    limits: Limits,
    /// Approximate number of launches not yet waited for.
    queued: AtomicU32,
}

/// Seeds in device memory, wiped when dropped.
pub(super) struct Seeds {
    stream: Arc<CudaStream>,
    records: CudaSlice<u32>,
}

impl Drop for Seeds {
    fn drop(&mut self) {
        // Queued after the kernels that read the seeds and before the memory is freed. If a GPU rejects this, it is lost together with its
        // memory.
        let _ = self.stream.memset_zeros(&mut self.records);
    }
}

impl From<DriverError> for GpuError {
    fn from(error: DriverError) -> Self {
        if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY { Self::OutOfMemory } else { Self::Failed(error.to_string()) }
    }
}

impl CudaGpu {
    /// Requires the driver's library.
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
        let clock_khz = match number(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE) {
            Ok(told) if told > 1 => told,
            Ok(_) | Err(_) => USUAL_KHZ,
        };
        let limits = Limits {
            piece_words: LONGEST_PIECE,
            threads: RESIDENT.saturating_mul(usize::try_from(multiprocessors).unwrap_or(usize::MAX)),
            launch_bytes: multiprocessors.saturating_mul(clock_khz).saturating_mul(BYTES_PER_KHZ),
        };
        let (stream, upward) = (context.new_stream()?, context.new_stream()?);
        Ok(Self {
            unmask: module.load_function("unmask")?,
            add_packed: module.load_function("add_packed")?,
            trimmed_sum: module.load_function("trimmed_sum")?,
            gram: module.load_function("gram")?,
            uploads: Mutex::new(Staging::new(&context, Arc::clone(&upward))?),
            downloads: Mutex::new(Staging::new(&context, context.new_stream()?)?),
            inputs: Mutex::default(),
            stream,
            upward,
            context,
            limits,
            queued: AtomicU32::new(0),
        })
    }

    /// Waits until all queued work is done, and returns its errors.
    fn settle(&self) -> Result<(), GpuError> {
        let queued = self.queued.load(Ordering::Relaxed);
        let done = self.stream.record_event(None)?;
        wait(self.patience(), || Ok(done.try_is_complete()?))?;
        let less = |now: u32| Some(now.saturating_sub(queued));
        // Another thread may have subtracted the same launches: the number only estimates a timeout.
        let _ = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        Ok(())
    }

    /// Timeout for all queued work.
    fn patience(&self) -> Duration {
        DEVICE_TIMEOUT + PATIENCE_PER_LAUNCH.saturating_mul(self.queued.load(Ordering::Relaxed))
    }

    /// The driver's name for the GPU.
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
        Ok(self.upward.alloc_zeros(words)?)
    }

    fn write(
        &self,
        memory: &mut Self::Memory,
        words: usize,
        fill: impl FnMut(usize, &mut [u32]),
    ) -> Result<(), GpuError> {
        locked(&self.uploads).upload(memory, words, self.patience(), fill)
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
        let padded = packed.len().div_ceil(4) + 1;
        let mut input = self.zeros(padded)?;
        self.write(&mut input, padded, |at, place| fill_with_bytes(packed, at, place))?;
        let (at, len, bits, config) = (at as u64, words as u64, u32::from(bits), config(words, 1)?);
        let mut builder = self.stream.launch_builder(&self.add_packed);
        builder.arg(memory).arg(&at).arg(&input).arg(&len).arg(&bits);
        // SAFETY: the arguments have the number, order and types of the kernel's parameters. Thread i below `len` reads packed
        // words i·bits/32 and the one after, which the padding holds, and adds to word at + i; both lie inside, as asserted.
        // Both are freed after the kernel.
        #[expect(unsafe_code, reason = "a kernel's launch")]
        unsafe { builder.launch(config) }?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        let mut inputs = locked(&self.inputs);
        inputs.push_back(input);
        if inputs.len() > INPUTS {
            inputs.pop_front();
        }
        Ok(())
    }

    /// Copies the seeds through our own page-locked memory, so that the driver makes no copy of them.
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
            // Freeing or wiping it would wait for a GPU that may hang.
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

    fn trimmed_sum(&self, rows: &Self::Memory, shape: Rows, trim: u32, out: &mut Self::Memory) -> Result<(), GpuError> {
        let Rows { vectors, width } = shape;
        assert!(
            shape.words() <= rows.len() && 2 * width as usize <= out.len() && 2 * u64::from(trim) < u64::from(vectors),
            "it fits"
        );
        let config = config(width as usize, 1)?;
        let mut builder = self.stream.launch_builder(&self.trimmed_sum);
        builder.arg(rows).arg(&vectors).arg(&width).arg(&trim).arg(out);
        // SAFETY: the arguments have the number, order and types of the kernel's parameters. Thread i below `width` reads word
        // i of each of `vectors` rows and writes two words of its own from 2·i on; all lie inside, as asserted.
        #[expect(unsafe_code, reason = "a kernel's launch")]
        unsafe { builder.launch(config) }?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn gram(&self, rows: &Self::Memory, products: &Products, sums: &mut Self::Memory) -> Result<(), GpuError> {
        let Products { rows: Rows { vectors, width }, ref tiles, first_row } = *products;
        assert!(products.rows.words() <= rows.len() && products.words() <= sums.len(), "it fits");
        let config = config(products.threads(), products.parts())?;
        let mut builder = self.stream.launch_builder(&self.gram);
        builder.arg(rows).arg(&vectors).arg(&width).arg(&tiles.start).arg(&first_row).arg(sums);
        // SAFETY: the arguments have the number, order and types of the kernel's parameters; the last is a pointer to u64, to
        // which device memory is aligned. Threads read `vectors` rows of `width` words and add, by atomic additions, to the
        // sums of the vectors of `tiles` with all vectors; all lie inside, as asserted.
        #[expect(unsafe_code, reason = "a kernel's launch")]
        unsafe { builder.launch(config) }?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for the kernels first, which may take long, and returns their errors.
    fn read(&self, memory: &mut Self::Memory, into: &mut [u32]) -> Result<(), GpuError> {
        self.settle()?;
        locked(&self.downloads).download(memory, into, self.patience())
    }
}

/// Ignores poisoning: a panic left nothing half-done, since a buffer's state is checked before use.
fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(threads: usize, parts: u32) -> Result<LaunchConfig, GpuError> {
    let blocks = u32::try_from(threads.div_ceil(BLOCK as usize));
    let blocks = blocks.map_err(|_| GpuError::Failed("a piece is longer than a launch".to_owned()))?;
    Ok(LaunchConfig { grid_dim: (blocks, parts, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 })
}
