//! Metrics of serving, without inputs or outputs.

use std::sync::OnceLock;
use std::time::Duration;

use inference::scale::{Load, Replicas};
use metrics::{Counter, Gauge, Histogram};

/// Status of a successful prediction.
const GOOD: u16 = 200;

/// Describes the metrics. Called once, after the recorder is installed.
pub(super) fn describe() {
    metrics::describe_counter!("tributary_infer_requests_total", "Requests for predictions, by model and status");
    metrics::describe_histogram!(
        "tributary_infer_request_seconds",
        "Time from a request for predictions that was read to its answer"
    );
    metrics::describe_gauge!("tributary_infer_queue_size", "Requests that wait to be computed, by model");
    metrics::describe_histogram!("tributary_infer_queue_seconds", "How long a request waited to be computed");
    metrics::describe_histogram!("tributary_infer_batch_size", "Examples computed at once");
    metrics::describe_histogram!("tributary_infer_compute_seconds", "Time that a batch took to be computed");
    metrics::describe_counter!(
        "tributary_infer_swaps_total",
        "What became of versions: used, tried, promoted, taken_back, rolled_back, unfit or unreadable"
    );
    metrics::describe_gauge!("tributary_infer_version", "Number of the version that answers, by model and side");
    metrics::describe_counter!(
        "tributary_infer_fetch_failures_total",
        "Versions that could not be fetched, kept or looked for, by reason: away, integrity, disk or refused"
    );
    metrics::describe_counter!("tributary_infer_cache_hits_total", "Predictions that were remembered");
    metrics::describe_counter!("tributary_infer_cache_misses_total", "Predictions that were not remembered");
    metrics::describe_gauge!("tributary_infer_desired_replicas", "How many replicas there should be by the rule");
}

/// Metrics of a model's queue, looked up once to avoid label lookups.
pub(super) struct QueueMeters {
    size: Gauge,
    waited: Histogram,
    examples: Histogram,
    took: Histogram,
}

impl QueueMeters {
    /// The metrics of a model. They are not recorded if the recorder is installed later.
    pub(super) fn of(model: &str) -> Self {
        Self {
            size: metrics::gauge!("tributary_infer_queue_size", "model" => model.to_owned()),
            waited: metrics::histogram!("tributary_infer_queue_seconds", "model" => model.to_owned()),
            examples: metrics::histogram!("tributary_infer_batch_size", "model" => model.to_owned()),
            took: metrics::histogram!("tributary_infer_compute_seconds", "model" => model.to_owned()),
        }
    }

    pub(super) fn size(&self, waiting: usize) {
        self.size.set(count(waiting));
    }

    pub(super) fn queued(&self, waited: Duration) {
        self.waited.record(waited);
    }

    pub(super) fn computed(&self, examples: usize, took: Duration) {
        self.examples.record(count(examples));
        self.took.record(took);
    }
}

/// Metrics of a model's answers, looked up once as [`QueueMeters`] are.
pub(super) struct AnswerMeters {
    model: String,
    good: Counter,
    took: Histogram,
    /// Cache hits and misses; created on first use.
    cached: OnceLock<[Counter; 2]>,
}

impl AnswerMeters {
    pub(super) fn of(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            good: requests(model, GOOD),
            took: metrics::histogram!("tributary_infer_request_seconds", "model" => model.to_owned()),
            cached: OnceLock::new(),
        }
    }

    /// `took`: the time since the request was read, if it was.
    pub(super) fn answered(&self, status: u16, took: Option<Duration>) {
        if status == GOOD {
            self.good.increment(1);
        } else {
            requests(&self.model, status).increment(1);
        }
        if let Some(took) = took {
            self.took.record(took);
        }
    }

    pub(super) fn cached(&self, is_hit: bool) {
        let [hits, misses] = self.cached.get_or_init(|| {
            [
                metrics::counter!("tributary_infer_cache_hits_total", "model" => self.model.clone()),
                metrics::counter!("tributary_infer_cache_misses_total", "model" => self.model.clone()),
            ]
        });
        if is_hit { hits.increment(1) } else { misses.increment(1) }
    }
}

/// Counts an answer about an unknown model. Names from clients are not used as labels.
pub(super) fn answered_stranger(status: u16) {
    requests("", status).increment(1);
}

fn requests(model: &str, status: u16) -> Counter {
    metrics::counter!("tributary_infer_requests_total", "model" => model.to_owned(), "status" => status.to_string())
}

pub(super) fn swapped(model: &str, outcome: &'static str) {
    metrics::counter!("tributary_infer_swaps_total", "model" => model.to_owned(), "outcome" => outcome).increment(1);
}

/// 0 for a role without a version: version 0 is never served.
pub(super) fn versions(model: &str, stable: Option<u32>, canary: Option<u32>) {
    for (side, version) in [("stable", stable), ("canary", canary)] {
        metrics::gauge!("tributary_infer_version", "model" => model.to_owned(), "side" => side)
            .set(version.unwrap_or(0));
    }
}

pub(super) fn fetch_failed(model: &str, reason: &'static str) {
    metrics::counter!("tributary_infer_fetch_failures_total", "model" => model.to_owned(), "reason" => reason)
        .increment(1);
}

/// The desired number of replicas.
pub(super) fn desired(replicas: Replicas, now: u32, load: Load) -> u32 {
    let desired = replicas.desired(now, load);
    metrics::gauge!("tributary_infer_desired_replicas").set(desired);
    desired
}

/// Processor time of this process; `None` except on Linux.
pub(super) fn processor_time() -> Option<Duration> {
    // Fields 14 and 15, in hundredths of a second. The second field, in parentheses, may contain blanks.
    let told = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = told.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Duration::from_millis(10 * (user + system)))
}

#[expect(clippy::cast_precision_loss, reason = "a measurement, which nothing depends on")]
fn count(items: usize) -> f64 {
    items as f64
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn the_system_tells_the_processor_time() {
        assert!(super::processor_time().is_some());
    }
}
