//! Metrics of the whole process, for Prometheus.

use std::sync::Once;
use std::time::Duration;

use aggregation::{Aggregator, MemoryUse};
use federation::round::RoundState;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

static DESCRIBED: Once = Once::new();

/// Interval between folds of histograms.
const FOLD: Duration = Duration::from_secs(5);
/// The process's recorder; installed by the first call. Several coordinators in one process share it.
pub fn recorder() -> PrometheusHandle {
    let handle = listener::recorder();
    DESCRIBED.call_once(|| {
        describe_process();
        describe_connections();
    });
    handle
}

/// The content of `/metrics`.
pub(crate) fn rendered(metrics: &PrometheusHandle, aggregator: &dyn Aggregator) -> String {
    // Operating system counters and device memory are read on each scrape.
    #[cfg(target_os = "linux")]
    metrics_process::Collector::default().collect();
    for MemoryUse { device, in_use, peak } in aggregator.memory() {
        metrics::gauge!("tributary_device_memory_bytes", "device" => device.clone()).set(rounded(in_use));
        metrics::gauge!("tributary_device_memory_peak_bytes", "device" => device).set(rounded(peak));
    }
    metrics.run_upkeep();
    metrics.render()
}

/// Folds measurements into their buckets until the process stops: unread histograms would grow otherwise.
pub(crate) async fn fold(metrics: PrometheusHandle, stopped: CancellationToken) {
    while stopped.run_until_cancelled(tokio::time::sleep(FOLD)).await.is_some() {
        metrics.run_upkeep();
    }
}

/// Converts to a gauge value; exact up to some petabytes.
#[expect(clippy::cast_precision_loss, reason = "a measurement, which nothing depends on")]
fn rounded(bytes: u64) -> f64 {
    bytes as f64
}

/// Counts participants dropped by a round in this phase.
pub(crate) fn count_dropped(phase: RoundState, reason: &'static str, participants: u32) {
    if participants > 0 {
        metrics::counter!("tributary_participants_dropped_total", "phase" => phase.as_str(), "reason" => reason)
            .increment(participants.into());
    }
}

fn describe_process() {
    #[cfg(target_os = "linux")]
    metrics_process::Collector::default().describe();
    metrics::describe_gauge!("tributary_device_memory_bytes", "Memory that sums hold on a device now");
    metrics::describe_gauge!(
        "tributary_device_memory_peak_bytes",
        "The most memory that sums held on a device at once since the start"
    );
    metrics::describe_counter!(
        "tributary_transaction_retries_total",
        "Transactions run again, by transaction and reason"
    );
    metrics::describe_counter!(
        "tributary_transactions_given_up_total",
        "Transactions that failed after all retries, by transaction and reason"
    );
    metrics::describe_counter!("tributary_requests_total", "Requests answered, by route, method and status");
    metrics::describe_counter!("tributary_rejections_total", "Requests rejected, by the code that the peer is told");
    metrics::describe_counter!("tributary_faults_total", "Requests that failed here; the log says why");
    // Registered from the start, so that the first fault shows as an increase.
    metrics::counter!("tributary_faults_total").increment(0);
    metrics::describe_counter!("tributary_polls_total", "Check-ins");
    metrics::describe_counter!("tributary_masked_inputs_total", "Masked inputs admitted");
    metrics::describe_counter!("tributary_masked_input_bytes_total", "Bytes of masked inputs admitted");
    metrics::describe_counter!("tributary_model_bytes_total", "Bytes of model versions sent");
    metrics::describe_counter!(
        "tributary_device_fallbacks_total",
        "Slices of sums or of compared inputs that another device had to finish"
    );
    metrics::describe_counter!(
        "tributary_database_round_trips_total",
        "Waits for the answer of a PostgreSQL server, by transaction"
    );
    metrics::describe_histogram!(
        "tributary_database_connection_wait_seconds",
        "How long a transaction waited for a connection to a PostgreSQL server"
    );
    metrics::describe_histogram!("tributary_admission_batch_size", "Facts written in one transaction");
    metrics::describe_histogram!(
        "tributary_request_seconds",
        "Time to the head of the answer, long polls with their wait, by route and method"
    );
    metrics::describe_counter!(
        "tributary_session_messages_total",
        "Messages of secure aggregation admitted, other than inputs, by kind"
    );
    metrics::describe_counter!(
        "tributary_updates_discarded_total",
        "Updates trained ahead that no round accepts any more, by reason"
    );
    metrics::describe_counter!("tributary_versions_rolled_back_total", "Versions that the gate rolled back");
    metrics::describe_gauge!(
        "tributary_clock_ahead_seconds",
        "How much this machine's clock is ahead of the database's"
    );
    metrics::describe_counter!(
        "tributary_blob_request_failures_total",
        "Requests to S3 stores that got no answer, or one of 500 to 599"
    );
}

fn describe_connections() {
    metrics::describe_counter!("tributary_received_bytes_total", "Bytes received over connections, without TLS");
    metrics::describe_counter!("tributary_sent_bytes_total", "Bytes sent over connections, without TLS");
    metrics::describe_counter!("tributary_handshakes_refused_total", "TLS handshakes that failed");
    metrics::describe_gauge!("tributary_connections", "Connections held now, by kind");
    metrics::describe_counter!(
        "tributary_connections_refused_total",
        "Connections for which there was no slot, by kind"
    );
    metrics::describe_counter!(
        "tributary_connections_unread_total",
        "Connections closed because an answer was left unread"
    );
    metrics::describe_counter!(
        "tributary_answers_unread_total",
        "Answers replaced by 503 because their peer had too many unread"
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Names following `before` in a text, up to a quote.
    fn names<'t>(text: &'t str, before: &'t str) -> impl Iterator<Item = String> + 't {
        let names = text.split(before).skip(1).filter_map(|rest| rest.split_once("\"tributary_"));
        names.filter_map(|(_, rest)| rest.split_once('"')).map(|(name, _)| format!("tributary_{name}"))
    }

    fn described(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => described(&path, found),
                false => found.extend(names(&std::fs::read_to_string(&path).unwrap(), "metrics::describe_")),
            }
        }
    }

    #[test]
    fn every_metric_of_the_manual_has_its_help_and_every_help_is_in_the_manual() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut helped = BTreeSet::new();
        for sources in ["coordinator/src", "store/src", "listener/src", "serving/src", "cli/src/command/participant"] {
            described(&root.join(sources), &mut helped);
        }
        // This test itself contains the beginning of a name.
        helped.remove("tributary_");
        let manual = std::fs::read_to_string(root.join("docs/LOGGING.md")).unwrap();
        let rows = manual.lines().filter(|line| line.starts_with("| `tributary_"));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let told: BTreeSet<_> =
            cells.flat_map(|cell| cell.split('`')).filter(|name| name.starts_with("tributary_")).collect();
        assert_eq!(told, helped.iter().map(String::as_str).collect());
    }
}
