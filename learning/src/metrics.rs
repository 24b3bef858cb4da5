//! Weighted means that can be merged: loss, accuracy and the like, one value per participant and one per round.
//!
//! A round's published metrics come from the exact integer sum (`quantize`). [`MetricValue::merge`] is for plain
//! values, such as an evaluation over several batches or shards.

use serde::{Deserialize, Serialize};

/// Maximum number of metrics of a task.
pub const MAX_METRICS: usize = 256;
/// Maximum length of a metric name, in bytes.
pub const MAX_METRIC_NAME_BYTES: usize = 64;

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

    /// The value, or `None` if it was not measured.
    #[must_use]
    pub fn measured(self) -> Option<f64> {
        (self.count > 0).then_some(self.value)
    }
}

/// A metric's name: 1 to 64 of `a-z`, `0-9` and `_`, starting with a letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MetricName(String);

/// A text that is not a valid metric name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metric name {0:?} is not 1 to {MAX_METRIC_NAME_BYTES} of a-z, 0-9 and _, beginning with a letter")]
pub struct BadMetricName(String);

impl MetricName {
    /// # Errors
    /// [`BadMetricName`].
    pub fn new(name: impl Into<String>) -> Result<Self, BadMetricName> {
        let name = name.into();
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if name.len() <= MAX_METRIC_NAME_BYTES
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(allowed)
        {
            Ok(Self(name))
        } else {
            Err(BadMetricName(name.chars().take(MAX_METRIC_NAME_BYTES).collect()))
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for MetricName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for MetricName {
    type Error = BadMetricName;

    fn try_from(name: String) -> Result<Self, BadMetricName> {
        Self::new(name)
    }
}

impl From<MetricName> for String {
    fn from(name: MetricName) -> Self {
        name.0
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

    #[test]
    fn names_are_bounded() {
        for good in ["loss", "top_5", &"a".repeat(64)] {
            assert_eq!(MetricName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "Loss", "5_top", "_a", "a b", "ä", &"a".repeat(65)] {
            assert!(MetricName::new(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<MetricName>(r#""Loss""#).is_err());
    }
}
