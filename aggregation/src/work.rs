//! The cost of a sum: the devices, their times, and the amount of keystream. For operators only, not for decisions. It is the only module
//! of the devices with access to a clock.

use std::time::{Duration, Instant};

use secure_agg::mask::MaskPlan;

/// A part of the work on a sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effort {
    /// Name of the device, as in [`Aggregator::name`](crate::Aggregator::name).
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
    /// Unmasking, including transfers and attempts of a failed device. `device` computed the result.
    pub unmasking: Effort,
    /// Bytes of keystream generated for the answer: those of the mask plan, 0 without masks.
    pub keystream_bytes: u64,
}

impl Work {
    /// The work on a sum of this many `words` of the plan's vector.
    pub(crate) fn new(summing: Effort, unmasking: Effort, plan: &MaskPlan, words: usize) -> Self {
        let keystream_bytes = 4 * words as u128 * plan.len() as u128;
        Self { summing, unmasking, keystream_bytes: u64::try_from(keystream_bytes).unwrap_or(u64::MAX) }
    }

    /// Combines the work of two consecutive slices of a sum. Reports the devices of the last slice.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        let both = |first: Effort, next: Effort| Effort { took: first.took + next.took, ..next };
        Self {
            summing: both(self.summing, next.summing),
            unmasking: both(self.unmasking, next.unmasking),
            keystream_bytes: self.keystream_bytes.saturating_add(next.keystream_bytes),
        }
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
