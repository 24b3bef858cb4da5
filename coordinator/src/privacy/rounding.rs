//! Rounding of the metrics of rounds under secure aggregation.
//!
//! Cohorts of different rounds differ in a few members, so exact counts and means of two rounds would reveal the example count and the
//! metrics of one participant. Views, exports and logs therefore show rounded figures:
//!
//! * a number of examples has two significant digits, and is a multiple of 10 and at least 10;
//! * a mean has three significant digits, or two for fewer than 1000 examples, so that the mean does not determine the
//!   total.
//!
//! Database rows keep the exact figures, for the rules that compare rounds. Tasks without secure aggregation show exact
//! figures. Distributions count participants, not examples, and are shown exactly.

use store::entity::round::RoundMetric;
use task_spec::TaskSpec;
use wire::inspect::{CompressionView, MetricView};

/// Number of examples below which a mean has two significant digits.
const FEW: u64 = 1000;

/// Whether the figures of a task's rounds are shown exactly or rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figures {
    /// The coordinator can read every update.
    Exact,
    Rounded,
}

impl Figures {
    pub(crate) fn of(task: &TaskSpec) -> Self {
        if task.secure_aggregation.enabled { Self::Rounded } else { Self::Exact }
    }

    /// A mean over `count` examples, rounded if required.
    pub(crate) fn mean(self, value: f64, count: u64) -> f64 {
        match self {
            Self::Exact => value,
            Self::Rounded => significant(value, if count < FEW { 2 } else { 3 }),
        }
    }

    /// View of a round's metric, with value and count rounded if required.
    pub(crate) fn metric(self, metric: &RoundMetric) -> MetricView {
        let value = self.mean(metric.value, metric.count);
        match self {
            Self::Exact => MetricView { value, count: metric.count },
            Self::Rounded => MetricView { value, count: rounded_count(metric.count) },
        }
    }

    /// View of a codec's distortion, a mean over `participants`.
    pub(crate) fn compression(self, view: CompressionView, participants: u32) -> CompressionView {
        let of = |value: Option<f64>| value.map(|value| self.mean(value, participants.into()));
        CompressionView { norm: of(view.norm), added_error: of(view.added_error), ..view }
    }
}

/// Rounds to two significant digits and a multiple of 10; at least 10.
fn rounded_count(count: u64) -> u64 {
    let step = 10_u64.pow(count.checked_ilog10().unwrap_or(0).saturating_sub(1).max(1));
    let lower = count / step * step;
    let nearest = if count - lower < step.div_ceil(2) { lower } else { lower.saturating_add(step) };
    nearest.max(10)
}

/// The nearest number with `digits` significant decimal digits.
fn significant(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_two_digits_and_are_multiples_of_ten() {
        let cases = [
            (0, 10),
            (1, 10),
            (3, 10),
            (14, 10),
            (15, 20),
            (41, 40),
            (112, 110),
            (153, 150),
            (155, 160),
            (994, 990),
            (995, 1000),
            (1_049, 1_000),
            (1_050, 1_100),
            (60_000, 60_000),
            (u64::MAX, u64::MAX / 10_u64.pow(18) * 10_u64.pow(18)),
        ];
        for (count, expected) in cases {
            assert_eq!(rounded_count(count), expected, "{count}");
            assert_eq!(rounded_count(expected), expected, "rounding again changes nothing");
        }
    }

    #[test]
    fn means_do_not_determine_totals() {
        let metric = |value, count| RoundMetric { name: "accuracy".to_owned(), value, count };
        let view = |value, count| Figures::Rounded.metric(&metric(value, count));
        // 91 of 112, as are 17 of 21, 162 of 200 and many others.
        assert_eq!(view(0.8125, 112), MetricView { value: 0.81, count: 110 });
        assert_eq!(view(0.812_499, 1_534), MetricView { value: 0.812, count: 1_500 });
        assert_eq!(view(-0.000_123_456, 5_000).value, -0.000_123);
        assert_eq!(view(0.0, 7), MetricView { value: 0.0, count: 10 });
        assert_eq!(Figures::Exact.metric(&metric(0.8125, 112)), MetricView { value: 0.8125, count: 112 });
    }

    #[test]
    fn differences_of_totals_are_not_exact() {
        // Cohorts with and without a member of 41 examples, of which 30 are classified correctly.
        let metric = |right: u32, count: u32| {
            let value = f64::from(right) / f64::from(count);
            Figures::Rounded.metric(&RoundMetric { name: "accuracy".to_owned(), value, count: count.into() })
        };
        let (with, without) = (metric(120, 153), metric(90, 112));
        assert_eq!((with.count, without.count), (150, 110), "they differ in 41");
        let right = |view: MetricView| (view.value * view.count as f64).round();
        assert_ne!(right(with) - right(without), 30.0);
    }
}
