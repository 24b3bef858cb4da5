//! The interface of devices: running sums, their end, and a report of the unmasking device.

use std::io::{Read, Write};
use std::sync::Arc;

use secure_agg::mask::MaskPlan;

use crate::error::AggregationError;
use crate::memory::MemoryUse;
use crate::robust::{Inputs, RobustStatistics};
use crate::shape::Shape;
use crate::work::{Effort, Stopwatch, Work};

/// A device that sums, unmasks and computes robust statistics. Shared by all rounds; every call may come from any
/// thread.
pub trait Aggregator: RobustStatistics {
    /// Description for operators, for example `cpu (avx512, 16 threads)`.
    fn name(&self) -> &str;

    /// Starts an empty sum. Allocates about `shape.words()` words, however many inputs are added.
    ///
    /// # Errors
    /// [`AggregationError::OutOfMemory`] if the sum does not fit into memory.
    fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError>;

    /// Applies every mask of the plan to a slice of a sum stored elsewhere, and reduces it: `sum` holds the words from
    /// `offset` on, a multiple of [`Shape::SLICE_START`], and `out` takes as many. Keep masked sums in main memory,
    /// where they survive the loss of a device.
    ///
    /// # Errors
    /// [`AggregationError::Slice`] or [`AggregationError::Length`] if slices do not fit; [`AggregationError::Device`]
    /// or [`AggregationError::OutOfMemory`] if the device fails: the content of `out` is then undefined.
    fn unmask_slice(&self, plan: &MaskPlan, offset: u64, sum: &[u32], out: &mut [u32]) -> Result<(), AggregationError>;

    /// Computes [`median`](RobustStatistics::median), and reports the device and its time.
    ///
    /// # Errors
    /// As for [`median`](RobustStatistics::median).
    fn measured_median(&self, inputs: Inputs<'_>) -> Result<Answered<i32>, AggregationError> {
        answered(self.name(), || self.median(inputs))
    }

    /// Computes [`trimmed_mean`](RobustStatistics::trimmed_mean), and reports likewise.
    ///
    /// # Errors
    /// As for [`trimmed_mean`](RobustStatistics::trimmed_mean).
    fn measured_trimmed_mean(&self, inputs: Inputs<'_>, trim: usize) -> Result<Answered<i32>, AggregationError> {
        answered(self.name(), || self.trimmed_mean(inputs, trim))
    }

    /// Computes [`gram`](RobustStatistics::gram), and reports likewise.
    ///
    /// # Errors
    /// As for [`gram`](RobustStatistics::gram).
    fn measured_gram(&self, inputs: Inputs<'_>) -> Result<Answered<i64>, AggregationError> {
        answered(self.name(), || self.gram(inputs))
    }

    /// Memory of running sums, on this device and on its helpers and fallbacks: of the processor their words, of a GPU the allocations for
    /// sums and for slices being unmasked. Excludes buffers of inputs in transit, seeds and robust statistics.
    fn memory(&self) -> Vec<MemoryUse> {
        Vec::new()
    }

    /// The fallback device, if any. Callers that unmask slice by slice continue with it after the first failure, to avoid waiting for the
    /// failed device at every slice.
    fn spare(&self) -> Option<Arc<dyn Aggregator>> {
        None
    }
}

/// One running sum. A partial sum is a vector like an input, so the sums of several replicas add up.
///
/// Additions are all or nothing: an input rejected for its length or padding leaves the sum unchanged. The exception is a *stream* that
/// fails halfway: it leaves the accumulator *torn*, and every further call returns [`AggregationError::Torn`], so that a partially added
/// input cannot reach a result. Start again from the last stored partial sum.
pub trait Accumulator: Send {
    fn shape(&self) -> Shape;

    /// The adding device, and its working time so far.
    fn summing(&self) -> Effort;

    /// Adds a packed vector (see [`secure_agg::packing`]) in memory.
    ///
    /// # Errors
    /// [`AggregationError::Packing`] if the length is wrong or padding bits are set; the sum is unchanged.
    fn add_packed(&mut self, packed: &[u8]) -> Result<(), AggregationError>;

    /// Adds a packed vector, read through a small fixed buffer.
    ///
    /// `length` is the promised number of bytes; the stream must end right after them. A reader may report a digest mismatch as the error
    /// of its last read; the accumulator is then torn.
    ///
    /// # Errors
    /// [`AggregationError::Packing`] if `length` does not fit the shape: nothing was read, the sum is unchanged.
    /// [`AggregationError::Packing`] or [`AggregationError::Read`] if the stream is shorter or longer, sets padding bits or fails: the
    /// accumulator is torn.
    fn add_stream(&mut self, packed: &mut dyn Read, length: u64) -> Result<(), AggregationError>;

    /// Adds unpacked words: another replica's partial sum, or an input. They need not be reduced.
    ///
    /// # Errors
    /// [`AggregationError::Length`] unless there are exactly `shape().words()`; the sum is unchanged.
    fn merge(&mut self, words: &[u32]) -> Result<(), AggregationError>;

    /// The sum so far, reduced and still masked.
    ///
    /// # Errors
    /// [`AggregationError::OutOfMemory`] if a copy does not fit into memory.
    fn partial(&mut self) -> Result<Vec<u32>, AggregationError>;

    /// Writes the sum so far in packed form, as input for [`add_packed`](Self::add_packed) and
    /// [`add_stream`](Self::add_stream) of another accumulator.
    ///
    /// # Errors
    /// [`AggregationError::Write`] if `out` fails.
    fn write_partial(&mut self, out: &mut dyn Write) -> Result<(), AggregationError>;

    /// Ends the sum: applies every mask of the plan and reduces. With an empty plan (no secure aggregation) it only
    /// reduces.
    ///
    /// # Errors
    /// [`AggregationError::Plan`] if the plan is for vectors of another length or modulus.
    fn unmask(self: Box<Self>, plan: &MaskPlan) -> Result<Vec<u32>, AggregationError> {
        self.shape().check_plan(plan)?;
        self.unmask_at(plan, 0)
    }

    /// Ends the sum of a slice like [`unmask`](Self::unmask): its words are those of the plan's vector from `offset` on, a multiple of
    /// [`Shape::SLICE_START`].
    ///
    /// # Errors
    /// [`AggregationError::Slice`] if the slice is outside the plan's vector, [`AggregationError::Plan`] if it has another modulus.
    fn unmask_at(self: Box<Self>, plan: &MaskPlan, offset: u64) -> Result<Vec<u32>, AggregationError>;

    /// Ends the sum like [`unmask`](Self::unmask), and reports whether another device had to take over.
    ///
    /// # Errors
    /// As for [`unmask`](Self::unmask).
    fn finish(self: Box<Self>, plan: &MaskPlan) -> Result<Finished, AggregationError> {
        self.finish_measured(plan).map(|(finished, _)| finished)
    }

    /// Ends the sum like [`finish`](Self::finish), and reports the devices and their times. The report may be printed and stored; the sum
    /// must not.
    ///
    /// # Errors
    /// As for [`unmask`](Self::unmask).
    fn finish_measured(self: Box<Self>, plan: &MaskPlan) -> Result<(Finished, Work), AggregationError> {
        self.shape().check_plan(plan)?;
        self.finish_slice(plan, 0)
    }

    /// Ends the sum of a slice like [`unmask_at`](Self::unmask_at), and reports like [`finish_measured`](Self::finish_measured).
    ///
    /// # Errors
    /// As for [`unmask_at`](Self::unmask_at).
    fn finish_slice(self: Box<Self>, plan: &MaskPlan, offset: u64) -> Result<(Finished, Work), AggregationError> {
        let (summing, length) = (self.summing(), self.shape().words());
        let (device, watch) = (summing.device.clone(), Stopwatch::start());
        let words = self.unmask_at(plan, offset)?;
        let work = Work::new(summing, Effort { device, took: watch.elapsed() }, plan, length);
        Ok((Finished { words, fallback: None }, work))
    }
}

/// A completed sum. It may have to stay secret until noise is added, so it implements neither `Debug` nor `Clone`.
pub struct Finished {
    /// The sum, unmasked and reduced.
    pub words: Vec<u32>,
    /// Present if the chosen device failed and another one unmasked: an event worth counting.
    pub fallback: Option<FallbackEvent>,
}

/// A robust statistic, and the device that computed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    /// The statistic, as the method of [`RobustStatistics`] gives it.
    pub answers: Vec<T>,
    /// The device of these results, and the working time, including a failed device's.
    pub effort: Effort,
    /// Present if the chosen device failed and another one answered.
    pub fallback: Option<FallbackEvent>,
}

/// Has a device answer, and measures it.
fn answered<T>(
    device: &str,
    answer: impl FnOnce() -> Result<Vec<T>, AggregationError>,
) -> Result<Answered<T>, AggregationError> {
    let watch = Stopwatch::start();
    let answers = answer()?;
    Ok(Answered { answers, effort: Effort { device: device.to_owned(), took: watch.elapsed() }, fallback: None })
}

/// A device failed and another one took over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FallbackEvent {
    /// Name of the device that failed.
    pub device: String,
    /// The failure, for operators.
    pub reason: String,
    /// Name of the device that repeated the work.
    pub taken_over_by: String,
}
