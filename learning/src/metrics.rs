//! Mergeable weighted means: loss, accuracy and the like, one value per participant and one per round.
//!
//! A round's published metrics come from the exact integer sum (`quantize`). [`MetricValue::merge`] is for plain values, such as an
//! evaluation over several batches or shards.

use serde::{Deserialize, Serialize};

/// Maximum number of metrics of a task.
pub const MAX_METRICS: usize = 256;

/// A mean and the number of examples behind it; `count` 0 means not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricValue {
    /// The mean; meaningless when `count` is 0.
    pub value: f64,
    /// Number of examples measured.
    pub count: u64,
}

impl MetricValue {
    /// The mean over both sets of examples. Floating point, so not associative bit for bit.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        if self.count == 0 {
            return other;
        }
        if other.count == 0 {
            return self;
        }
        let count = self.count.saturating_add(other.count);
        let share = other.count as f64 / count as f64;
        Self { value: self.value + (other.value - self.value) * share, count }
    }

    /// The value, or `None` if unmeasured.
    #[must_use]
    pub fn measured(self) -> Option<f64> {
        (self.count > 0).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_is_the_mean_over_all_examples() {
        let a = MetricValue { value: 1.0, count: 30 };
        let b = MetricValue { value: 2.0, count: 10 };
        assert_eq!(a.merge(b), MetricValue { value: 1.25, count: 40 });
        assert_eq!(b.merge(a), MetricValue { value: 1.25, count: 40 });
        let unmeasured = MetricValue { value: f64::NAN, count: 0 };
        assert_eq!(a.merge(unmeasured), a);
        assert_eq!(unmeasured.merge(a), a);
        assert_eq!((a.measured(), unmeasured.measured()), (Some(1.0), None));
    }
}
