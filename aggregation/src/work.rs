//! What a sum cost: which device did it, for how long, and how much keystream was generated. For operators, never a basis
//! for a decision: this is the one module of the crate's devices that reads a clock, and only to measure.

use std::time::{Duration, Instant};

use secure_agg::mask::MaskPlan;

/// A part of the work on a sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effort {
    /// The device, as [`Aggregator::name`](crate::Aggregator::name) says it.
    pub device: String,
    /// How long it was at work. Waiting for a stream's bytes is not in it.
    pub took: Duration,
}

/// The work on a sum, from its first input to its end. It says nothing of what was summed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Adding: inputs and partial sums of this accumulator. What another accumulator did for a partial sum is in that one's
    /// [`summing`](crate::Accumulator::summing).
    pub summing: Effort,
    /// Taking the masks off, the way to the device and back and the attempts of a device that failed included. The device is
    /// the one whose answer counts.
    pub unmasking: Effort,
    /// Bytes of keystream that were generated for the answer: those of the mask plan, 0 when there were no masks.
    pub keystream_bytes: u64,
}

impl Work {
    pub(crate) fn new(summing: Effort, unmasking: Effort, plan: &MaskPlan) -> Self {
        let keystream_bytes = u64::try_from(plan.keystream_bytes()).unwrap_or(u64::MAX);
        Self { summing, unmasking, keystream_bytes }
    }
}

/// Measures one piece of work.
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
