//! Quantiles over participants, read from the distributions in a round's sum.

use std::collections::{BTreeMap, BTreeSet};

use store::entity::round::RoundMetric;
use task_spec::below;
use wire::inspect::DistributionView;

/// Minimum number of participants for a distribution: fewer would reveal individual values.
const FEWEST: u64 = 3;

/// The distributions of a round by metric, and its remaining metrics. Omits metrics measured by fewer than [`FEWEST`]
/// participants, including their mean.
pub(super) fn distributions(metrics: &[RoundMetric]) -> (BTreeMap<String, DistributionView>, Vec<&RoundMetric>) {
    let mut points: BTreeMap<&str, BTreeMap<u8, &RoundMetric>> = BTreeMap::new();
    for metric in metrics {
        if let Some((of, Some(bound))) = below(&metric.name) {
            points.entry(of).or_default().insert(bound, metric);
        }
    }
    points.retain(|_, points| match step(points) {
        Some(step) => {
            points.retain(|bound, _| bound.is_multiple_of(step));
            true
        }
        None => false,
    });
    let mut told: BTreeSet<&str> =
        points.values().flat_map(|points| points.values().map(|point| &*point.name)).collect();
    let mut views = BTreeMap::new();
    for (of, points) in &points {
        match step(points).map(|step| view(points, step)) {
            Some(view) if view.participants >= FEWEST => drop(views.insert((*of).to_owned(), view)),
            _ => drop(told.insert(of)),
        }
    }
    let rest = metrics.iter().filter(|metric| !told.contains(&*metric.name)).collect();
    (views, rest)
}

/// Step between the points of a distribution, in hundredths: the finest step with all points present. `None` for single points, allowed as
/// ordinary metrics of a task.
fn step(points: &BTreeMap<u8, &RoundMetric>) -> Option<u8> {
    let has_all = |step: &u8| (1..100 / step).all(|point| points.contains_key(&(point * step)));
    (1..=25).filter(|step| 100 % step == 0).find(has_all)
}

fn view(points: &BTreeMap<u8, &RoundMetric>, step: u8) -> DistributionView {
    // A hostile participant may count itself below one point but not below the next: the curve is made monotone.
    let mut curve = vec![(0.0, 0.0)];
    let mut highest = 0.0_f64;
    for (bound, point) in points {
        highest = highest.max(point.value.clamp(0.0, 1.0));
        curve.push((f64::from(*bound) / 100.0, highest));
    }
    curve.push((1.0, 1.0));
    let quantile = |part: f64| {
        let segments = curve.windows(2).find(|pair| pair[1].1 >= part);
        segments.map_or(1.0, |pair| {
            let ((from, less), (to, more)) = (pair[0], pair[1]);
            if more > less { from + (to - from) * (part - less) / (more - less) } else { to }
        })
    };
    DistributionView {
        participants: points.values().map(|point| point.count).max().unwrap_or_default(),
        p10: quantile(0.10),
        p25: quantile(0.25),
        p50: quantile(0.50),
        p75: quantile(0.75),
        p90: quantile(0.90),
        resolution: f64::from(step) / 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, value: f64) -> RoundMetric {
        RoundMetric { name: name.to_owned(), value, count: 20 }
    }

    #[test]
    fn quantiles_are_read_off_the_points() {
        // A tenth below 25 %, half below 50 %, three quarters below 75 %.
        let metrics = [
            point("accuracy", 0.5),
            point("accuracy.below.25", 0.1),
            point("accuracy.below.75", 0.75),
            point("accuracy.below.50", 0.5),
            point("accuracy.below.33", 0.2),
            point("loss.below.50", 0.4),
        ];
        let (views, rest) = distributions(&metrics);
        let view = &views["accuracy"];
        assert_eq!((views.len(), view.participants, view.resolution), (1, 20, 0.25));
        let expected = [0.25, 0.25 + 0.25 * 0.15 / 0.4, 0.5, 0.75, 0.9];
        for (got, expected) in [view.p10, view.p25, view.p50, view.p75, view.p90].into_iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12, "{got} is not {expected}");
        }
        // Points of an incomplete distribution remain metrics.
        let names: Vec<_> = rest.iter().map(|metric| &*metric.name).collect();
        assert_eq!(names, ["accuracy", "accuracy.below.33", "loss.below.50"]);
    }

    #[test]
    fn what_one_or_two_measured_is_nobodys_business() {
        for count in 1..=3 {
            let metrics = ["a", "a.below.25", "a.below.50", "a.below.75"];
            let metrics = metrics.map(|name| RoundMetric { count, ..point(name, 0.5) });
            let (views, rest) = distributions(&metrics);
            assert_eq!((views.len(), rest.len()), if count < 3 { (0, 0) } else { (1, 1) });
        }
    }

    #[test]
    fn points_that_nobody_honest_makes_give_quantiles_in_order() {
        let metrics = [point("a.below.25", 0.9), point("a.below.50", -3.0), point("a.below.75", 7.0)];
        let (views, _) = distributions(&metrics);
        let view = &views["a"];
        assert!(view.p10 <= view.p25 && view.p25 <= view.p50 && view.p50 <= view.p75 && view.p75 <= view.p90);
        assert!((0.0..=1.0).contains(&view.p10) && (0.0..=1.0).contains(&view.p90));
    }
}
