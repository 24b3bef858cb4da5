//! Numbers of a round by their names, for exports and comparisons. The names are the fields of the REST API.

use federation::time::seconds;

use super::{DistributionView, EpsilonView, MetricView, RoundView};

/// A number of a round, by name.
pub type Figure<T> = (&'static str, fn(&T) -> Option<f64>);

/// Numbers of every task's rounds, for charts.
pub const FIGURES: [Figure<RoundView>; 6] = [
    ("seconds", |round| Some(round.seconds)),
    ("cohort", |round| Some(round.cohort.into())),
    ("reported", |round| Some(round.reported.into())),
    ("dropped", |round| Some(round.dropped.into())),
    ("bytes_up", |round| Some(exact(round.bytes_up))),
    ("bytes_down", |round| Some(exact(round.bytes_down))),
];

/// Epsilon spent up to and including a round, by observer.
const EPSILON: [Figure<EpsilonView>; 3] = [
    ("epsilon.published", |spent| Some(spent.published)),
    ("epsilon.cohort_known", |spent| Some(spent.cohort_known)),
    ("epsilon.server", |spent| spent.server),
];

const METRIC: [Figure<MetricView>; 2] =
    [("value", |metric| Some(metric.value)), ("examples", |metric| Some(exact(metric.count)))];

const DISTRIBUTION: [Figure<DistributionView>; 6] = [
    ("participants", |of| Some(exact(of.participants))),
    ("p10", |of| Some(of.p10)),
    ("p25", |of| Some(of.p25)),
    ("p50", |of| Some(of.p50)),
    ("p75", |of| Some(of.p75)),
    ("p90", |of| Some(of.p90)),
];

/// Whether a number of [`figures`] reveals the cohort size: participant counts, byte totals proportional to them, and example counts.
#[must_use]
pub fn reveals_cohort(name: &str) -> bool {
    let part = name.rsplit('.').next().unwrap_or_default();
    match name.split('.').next().unwrap_or_default() {
        "cohort" | "reported" | "dropped" | "bytes_up" | "bytes_down" => true,
        "metrics" => part == "examples",
        "distributions" => part == "participants",
        "phases" => part == "count",
        _ => false,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of bytes and examples are below 2^53")]
pub(super) fn exact(count: u64) -> f64 {
    count as f64
}

/// Every number of a round: `seconds`, `epsilon.published`, `metrics.NAME.value`, `distributions.NAME.p50`,
/// `phases.COLLECTING.seconds`.
pub fn figures(round: &RoundView) -> Vec<(String, f64)> {
    let mut figures = Vec::new();
    let mut add = |name: String, value: Option<f64>| figures.extend(value.map(|value| (name, value)));
    FIGURES.iter().for_each(|(name, of)| add((*name).to_owned(), of(round)));
    if let Some(spent) = &round.epsilon {
        EPSILON.iter().for_each(|(name, of)| add((*name).to_owned(), of(spent)));
    }
    for (metric, view) in &round.metrics {
        METRIC.iter().for_each(|(part, of)| add(format!("metrics.{metric}.{part}"), of(view)));
    }
    for (metric, view) in &round.distributions {
        DISTRIBUTION.iter().for_each(|(part, of)| add(format!("distributions.{metric}.{part}"), of(view)));
    }
    for phase in &round.phases {
        let took = phase.ended_at.map(|end| seconds(end.since(phase.started_at)));
        add(format!("phases.{}.seconds", phase.state), took);
        add(format!("phases.{}.count", phase.state), phase.count.map(f64::from));
    }
    figures
}
