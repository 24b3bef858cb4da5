//! The cost of a sum: which device did the work, how long it took, and how much keystream it generated. For operators,
//! never a basis for decisions. The only module of the devices that reads a clock, and only to measure.

use std::time::{Duration, Instant};

use secure_agg::mask::MaskPlan;

/// A part of the work on a sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effort {
    /// As in [`Aggregator::name`](crate::Aggregator::name).
    pub device: String,
    /// Working time, without waiting for a stream's bytes.
    pub took: Duration,
}

/// The work on a sum, from its first input to its end. Reveals nothing about the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Additions by this accumulator. Work on a merged partial sum is reported by its own accumulator's
    /// [`summing`](crate::Accumulator::summing).
    pub summing: Effort,
    /// Unmasking, including transfers and attempts of a device that failed. `device` is the one whose answer was used.
    pub unmasking: Effort,
    /// Bytes of keystream generated for the answer: those of the mask plan, 0 without masks.
    pub keystream_bytes: u64,
}

impl Work {
    pub(crate) fn new(summing: Effort, unmasking: Effort, plan: &MaskPlan) -> Self {
        let keystream_bytes = u64::try_from(plan.keystream_bytes()).unwrap_or(u64::MAX);
        Self { summing, unmasking, keystream_bytes }
    }
}

/// Measures the duration of some work.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a measurement, which nothing depends on")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
