//! The processor: always available, the reference for every other device, and fast with wide vector instructions.
//!
//! A vector is cut into blocks of the size of a core's cache, and each block passes through all masks before the next, so memory is
//! traversed once for any number of masks. Threads share only their pool.

mod accumulator;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod chacha;
mod gram;
#[cfg(target_arch = "x86_64")]
mod gram_avx2;
#[cfg(target_arch = "x86_64")]
mod gram_avx512;
mod kernel;
#[cfg(target_arch = "aarch64")]
mod neon;
mod panel;
mod robust;
mod select;
mod unpack;
#[cfg(target_arch = "x86_64")]
mod unpack_avx2;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod width;

use std::sync::Arc;
use std::thread;

use rayon::ThreadPool;

use secure_agg::mask::MaskPlan;

pub(crate) use self::accumulator::CpuAccumulator;
pub use self::kernel::Kernel;
use self::kernel::Present;
use crate::memory::Memory;
use crate::{Accumulator, AggregationError, Aggregator, MemoryUse, Shape};

/// Sums and unmasks on its own threads.
#[derive(Debug)]
pub struct CpuAggregator {
    name: Arc<str>,
    kernel: Present,
    /// `None` to run on the caller's thread.
    pool: Option<Arc<ThreadPool>>,
    memory: Arc<Memory>,
}

impl CpuAggregator {
    /// Uses the fastest kernel of this processor and `threads` threads, 0 for one per core.
    ///
    /// # Errors
    /// [`AggregationError::Device`] if the threads cannot be started.
    pub fn new(threads: usize) -> Result<Self, AggregationError> {
        Self::with_kernel(Kernel::fastest(), threads)
    }

    /// Uses a given kernel, for comparisons.
    ///
    /// # Errors
    /// [`AggregationError::Device`] if the kernel is not one of [`Kernel::available`] or the threads cannot be started.
    pub fn with_kernel(kernel: Kernel, threads: usize) -> Result<Self, AggregationError> {
        let threads = if threads == 0 { thread::available_parallelism().map_or(1, usize::from) } else { threads };
        let name = format!("cpu ({kernel}, {threads} thread{})", if threads == 1 { "" } else { "s" });
        let Some(kernel) = Present::check(kernel) else {
            let reason = "this processor lacks the instructions".to_owned();
            return Err(AggregationError::Device { device: name, reason });
        };
        let pool = match threads {
            1 => None,
            _ => match rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(thread_name).build() {
                Ok(pool) => Some(Arc::new(pool)),
                Err(error) => return Err(AggregationError::Device { device: name, reason: error.to_string() }),
            },
        };
        Ok(Self { name: name.into(), kernel, pool, memory: Arc::default() })
    }

    /// Starts an empty sum with words accessible to this crate.
    pub(crate) fn begin_here(&self, shape: Shape) -> Result<CpuAccumulator, AggregationError> {
        CpuAccumulator::new(shape, Arc::clone(&self.name), self.kernel, self.pool.clone(), &self.memory)
    }
}

fn thread_name(index: usize) -> String {
    format!("aggregation-{index}")
}

impl Aggregator for CpuAggregator {
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError> {
        Ok(Box::new(self.begin_here(shape)?))
    }

    fn memory(&self) -> Vec<MemoryUse> {
        vec![self.memory.told(&self.name)]
    }

    fn unmask_slice(&self, plan: &MaskPlan, offset: u64, sum: &[u32], out: &mut [u32]) -> Result<(), AggregationError> {
        Shape::check_slice(plan, offset, sum.len(), out.len())?;
        out.copy_from_slice(sum);
        accumulator::apply_masks(self.kernel, self.pool.as_deref(), plan, offset, out);
        Ok(())
    }
}
