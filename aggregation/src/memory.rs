//! Memory held by a device's sums. For operators only, not for decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of sums on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUse {
    /// Name of the device, as in [`Aggregator::name`](crate::Aggregator::name).
    pub device: String,
    /// Bytes that sums on the device hold now.
    pub in_use: u64,
    /// Maximum of allocated bytes since the device was opened.
    pub peak: u64,
}

/// The count of one device.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    in_use: AtomicU64,
    peak: AtomicU64,
}

/// Some bytes, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    /// Counts the bytes of so many words.
    pub(crate) fn hold(self: &Arc<Self>, words: usize) -> Reservation {
        let bytes = 4 * words as u64;
        let now = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
        Reservation { memory: Arc::clone(self), bytes }
    }

    pub(crate) fn told(&self, device: &str) -> MemoryUse {
        let (in_use, peak) = (self.in_use.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed));
        MemoryUse { device: device.to_owned(), in_use, peak }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.in_use.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use secure_agg::mask::{MaskPlan, Plane};

    use crate::cpu::CpuAggregator;
    use crate::{Aggregator as _, Shape};

    #[test]
    fn a_sum_is_counted_for_as_long_as_it_is_there() {
        let cpu = CpuAggregator::new(1).unwrap();
        let told = || cpu.memory().iter().map(|one| (one.in_use, one.peak)).collect::<Vec<_>>();
        let sum = |words: usize| cpu.begin(Shape::new(words, 32).unwrap()).unwrap();
        assert_eq!(told(), [(0, 0)]);
        let (first, second) = (sum(100), sum(1000));
        assert_eq!(told(), [(4400, 4400)]);
        drop(second);
        assert_eq!(told(), [(400, 4400)]);
        let plan = MaskPlan::new(Plane::Model, 100, Shape::new(100, 32).unwrap().modulus()).unwrap();
        first.unmask(&plan).unwrap();
        assert_eq!(told(), [(0, 4400)]);
        assert_eq!(cpu.memory()[0].device, cpu.name());
    }
}
