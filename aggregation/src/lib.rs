//! Bulk integers: sums masked vectors as they arrive and takes the masks off the sum.
//!
//! Words are integers modulo 2^b, so neither order nor device can change an answer: replicas with different hardware may
//! share one round, and a device that is lost can be replaced in the middle without a trace in the result. The mask
//! definition is `secure-agg`'s; this crate only makes it fast. It is the one place, beside the C interface of the SDK,
//! where `unsafe` is allowed, and it knows nothing of tasks, rounds, privacy, files or networks.
//!
//! ```
//! use aggregation::{Aggregator, Shape, cpu::CpuAggregator};
//! use secure_agg::mask::{MaskPlan, Plane};
//!
//! let cpu = CpuAggregator::new(1)?;
//! let shape = Shape::new(2, 32)?;
//! let mut sum = cpu.begin(shape)?;
//! sum.add_packed(&[1, 0, 0, 0, 2, 0, 0, 0])?;
//! sum.merge(&[10, 20])?;
//! let plan = MaskPlan::new(Plane::Model, 2, shape.modulus())?;
//! assert_eq!(sum.unmask(&plan)?, [11, 22]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{Read, Write};

use secure_agg::mask::MaskPlan;

use robust::RobustStatistics;
use work::Stopwatch;

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod cpu;
#[cfg(any(feature = "cuda", feature = "host-cuda-test"))]
pub mod cuda;
pub mod device;
mod error;
pub mod fallback;
#[cfg(any(feature = "cuda", feature = "wgpu", feature = "host-cuda-test"))]
mod gpu;
pub mod robust;
mod self_test;
mod shape;
mod stream;
#[cfg(feature = "wgpu")]
pub mod wgpu;
mod work;

pub use error::AggregationError;
pub use fallback::{FallbackEvent, Finished};
pub use shape::Shape;
pub use work::{Effort, Work};

/// A device that sums and unmasks, and computes what robust rules need. Shared by all rounds; every call may come from any
/// thread.
pub trait Aggregator: RobustStatistics {
    /// What it is, for operators: for example `cpu (avx512, 16 threads)`.
    fn name(&self) -> &str;

    /// A sum of nothing. Takes memory for about `shape.words()` words, and no more however many inputs are added.
    ///
    /// # Errors
    /// [`AggregationError::OutOfMemory`] when there is no room for the sum.
    fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError>;

    /// Applies every mask of the plan to a slice of a sum that is kept elsewhere, and reduces it: `sum` holds the words from
    /// `offset` on, a multiple of [`Shape::SLICE_START`], and `out` takes as many. Masked sums are best kept in main memory,
    /// where a device that is lost does not lose them.
    ///
    /// # Errors
    /// [`AggregationError::Slice`] or [`AggregationError::Length`] for what does not fit;
    /// [`AggregationError::Device`] or [`AggregationError::OutOfMemory`] when the device fails: `out` then holds anything.
    fn unmask_slice(&self, plan: &MaskPlan, offset: u64, sum: &[u32], out: &mut [u32]) -> Result<(), AggregationError>;
}

/// One running sum. A partial sum is itself a vector like an input, so sums of several replicas add up.
///
/// Additions are all or nothing. What is refused for its length or padding leaves the sum as it was, with one exception:
/// when a *stream* fails after words of it were added, the accumulator is *torn*. It then refuses every further call with
/// [`AggregationError::Torn`], so a half-added input can never reach a result; start again from the last stored partial sum.
pub trait Accumulator: Send {
    /// What is being summed.
    fn shape(&self) -> Shape;

    /// Which device adds, and how long it has been at it.
    fn summing(&self) -> Effort;

    /// Adds a vector in its wire form (see [`secure_agg::packing`]), held in memory.
    ///
    /// # Errors
    /// [`AggregationError::Packing`] for another length or set padding bits: the sum is unchanged.
    fn add_packed(&mut self, packed: &[u8]) -> Result<(), AggregationError>;

    /// Adds a vector in its wire form that is read through a small fixed buffer.
    ///
    /// `length` is the number of bytes that the owner of the stream promises, and the stream must end right after them.
    /// A reader that checks a digest as it goes may report a mismatch as its last read's error: the accumulator is torn.
    ///
    /// # Errors
    /// [`AggregationError::Packing`] when `length` does not fit the shape: nothing was read, the sum is unchanged.
    /// [`AggregationError::Packing`] or [`AggregationError::Read`] when the stream breaks that promise, sets padding bits
    /// or fails: the accumulator is torn.
    fn add_stream(&mut self, packed: &mut dyn Read, length: u64) -> Result<(), AggregationError>;

    /// Adds words: another replica's partial sum, or an input that is not packed. They need not be reduced.
    ///
    /// # Errors
    /// [`AggregationError::Length`] when there are not exactly `shape().words()`: the sum is unchanged.
    fn merge(&mut self, words: &[u32]) -> Result<(), AggregationError>;

    /// The sum so far, reduced, masks and all.
    ///
    /// # Errors
    /// [`AggregationError::OutOfMemory`] when there is no room for a copy.
    fn partial(&mut self) -> Result<Vec<u32>, AggregationError>;

    /// Writes the sum so far in its wire form: what [`add_packed`](Self::add_packed) and
    /// [`add_stream`](Self::add_stream) of another accumulator take.
    ///
    /// # Errors
    /// [`AggregationError::Write`] when `out` fails.
    fn write_partial(&mut self, out: &mut dyn Write) -> Result<(), AggregationError>;

    /// Ends the sum: applies every mask of the plan and reduces. With an empty plan (no secure aggregation) it only reduces.
    ///
    /// # Errors
    /// [`AggregationError::Plan`] when the plan is for vectors of another length or modulus.
    fn unmask(self: Box<Self>, plan: &MaskPlan) -> Result<Vec<u32>, AggregationError>;

    /// Ends the sum like [`unmask`](Self::unmask), and tells whether the device did it.
    ///
    /// # Errors
    /// As [`unmask`](Self::unmask).
    fn finish(self: Box<Self>, plan: &MaskPlan) -> Result<Finished, AggregationError> {
        self.finish_measured(plan).map(|(finished, _)| finished)
    }

    /// Ends the sum like [`finish`](Self::finish), and tells besides which devices did the work and what it took. That part
    /// may be printed and stored; the sum may not.
    ///
    /// # Errors
    /// As [`unmask`](Self::unmask).
    fn finish_measured(self: Box<Self>, plan: &MaskPlan) -> Result<(Finished, Work), AggregationError> {
        let summing = self.summing();
        let (device, watch) = (summing.device.clone(), Stopwatch::start());
        let words = self.unmask(plan)?;
        let work = Work::new(summing, Effort { device, took: watch.elapsed() }, plan);
        Ok((Finished { words, fallback: None }, work))
    }
}
