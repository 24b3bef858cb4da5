//! The recorder of metrics, for Prometheus.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use super::program::{COMMIT, RELEASE};

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Buckets of batch sizes.
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
/// Buckets of seconds of one fast prediction.
const SHORT_SECONDS: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];
/// Histograms with these buckets.
const SHORT: [&str; 3] =
    ["tributary_infer_request_seconds", "tributary_infer_queue_seconds", "tributary_infer_compute_seconds"];
/// Buckets of seconds.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3600.0];

/// The process's recorder; installed by the first call. Several servers in one process share it.
pub fn recorder() -> PrometheusHandle {
    HANDLE.get_or_init(install).clone()
}

fn install() -> PrometheusHandle {
    let recorder = buckets().unwrap_or_else(|_| PrometheusBuilder::new()).build_recorder();
    let handle = recorder.handle();
    // An executable with its own recorder keeps it; ours then stays empty.
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("another metrics recorder is installed; /metrics stays empty");
    }
    metrics::describe_gauge!("tributary_build_info", "1, with the version of the program and its commit as labels");
    metrics::gauge!("tributary_build_info", "version" => RELEASE, "commit" => COMMIT.unwrap_or_default()).set(1.0);
    handle
}

fn buckets() -> Result<PrometheusBuilder, BuildError> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &SIZES)?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?;
    SHORT.iter().try_fold(builder, |builder, name| {
        builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), &SHORT_SECONDS)
    })
}
