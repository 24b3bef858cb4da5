//! What a device does: sums that run, end and say who unmasked them.

use std::io::{Read, Write};

use secure_agg::mask::MaskPlan;

use crate::error::AggregationError;
use crate::robust::RobustStatistics;
use crate::shape::Shape;
use crate::work::{Effort, Stopwatch, Work};

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

/// A sum that has ended. It may be one that nobody is to see without noise: it is neither printed nor copied.
pub struct Finished {
    /// The sum, unmasked and reduced.
    pub words: Vec<u32>,
    /// What became of the device, when it was not the one that unmasked: an event worth counting.
    pub fallback: Option<FallbackEvent>,
}

/// A device failed, and another one did its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FallbackEvent {
    /// The device that failed.
    pub device: String,
    /// What happened to it.
    pub reason: String,
    /// The device that took over.
    pub taken_over_by: String,
}
