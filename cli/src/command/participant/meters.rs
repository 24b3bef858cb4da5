//! Metrics of a participant, for Prometheus.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use client_sdk::Event;
use client_sdk::process_trainer::{ProgramEvent, Progress};
use listener::simple;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::silo::report;

/// Address of the metrics.
#[derive(clap::Args)]
pub(super) struct MetricsArgs {
    /// Plain-HTTP address for Prometheus metrics of the participant and its program (/metrics)
    #[arg(long, env = "TRIBUTARY_PARTICIPANT_METRICS", value_name = "ADDR")]
    metrics: Option<SocketAddr>,
}

/// The listener for metrics.
pub(super) struct Metrics {
    stop: CancellationToken,
    listening: JoinHandle<()>,
}

impl MetricsArgs {
    pub(super) async fn start(&self, output: Output) -> Outcome<Option<Metrics>> {
        let Some(address) = self.metrics else { return Ok(None) };
        let listener = simple::bind(address).await;
        let listener = listener.map_err(Failure::because(Exit::Io, format!("cannot listen on {address}")))?;
        let address = listener.local_addr().unwrap_or(address);
        let handle = listener::recorder();
        describe();
        let router = Router::new().route("/metrics", get(async move || handle.render()));
        let stop = CancellationToken::new();
        let listening = tokio::spawn(simple::serve(listener, None, router, stop.clone()));
        output.event("metrics", &serde_json::json!({ "address": address }));
        output.line(format!("metrics are at http://{address}/metrics"));
        Ok(Some(Metrics { stop, listening }))
    }
}

impl Metrics {
    pub(super) async fn end(self) {
        self.stop.cancel();
        // Ignores the result: the task is stateless.
        let _ = self.listening.await;
    }
}

/// Describes the metrics. Called once, after the recorder is installed.
fn describe() {
    metrics::describe_counter!("tributary_participant_updates_total", "Updates that the coordinator has acknowledged");
    metrics::describe_counter!("tributary_participant_abandoned_total", "Rounds that were given up, by reason");
    metrics::describe_counter!("tributary_participant_retries_total", "Requests that failed and were tried again");
    metrics::describe_counter!("tributary_program_starts_total", "Starts of the program that trains");
    metrics::describe_counter!("tributary_program_failures_total", "Times that it failed and was started again");
    metrics::describe_gauge!("tributary_program_step", "Steps that it has taken in its job");
    metrics::describe_gauge!("tributary_program_processes", "How many processes train");
    metrics::describe_gauge!("tributary_program_samples_per_second", "Examples trained on in a second, by all of them");
    metrics::describe_gauge!("tributary_program_step_seconds", "Time of a step");
    metrics::describe_gauge!("tributary_program_communication_seconds", "Time of it spent waiting for each other");
    metrics::describe_gauge!("tributary_program_utilisation", "Part of the time that its devices were busy, 0 to 1");
    metrics::describe_gauge!(
        "tributary_program_scaling_efficiency",
        "(One process's step / step) / processes, once both were told"
    );
}

/// Counts rounds by outcome.
pub(super) fn count(event: &Event) {
    match event {
        Event::Uploaded { .. } => metrics::counter!("tributary_participant_updates_total").increment(1),
        Event::Abandoned { reason, .. } => {
            metrics::counter!("tributary_participant_abandoned_total", "reason" => reason.as_str()).increment(1);
        }
        Event::Retry { .. } => metrics::counter!("tributary_participant_retries_total").increment(1),
        _ => {}
    }
}

/// The last report of a program.
#[derive(Default)]
pub(super) struct ProgramMeters {
    /// Seconds of a step when one process trained.
    alone: Option<f64>,
}

impl ProgramMeters {
    pub(super) fn note(&mut self, event: &ProgramEvent) {
        match event {
            ProgramEvent::Started { .. } => metrics::counter!("tributary_program_starts_total").increment(1),
            ProgramEvent::Failed { .. } => metrics::counter!("tributary_program_failures_total").increment(1),
            ProgramEvent::Progress(progress) => self.progress(progress),
            // Later versions of the SDK may tell more.
            _ => {}
        }
    }

    fn progress(&mut self, progress: &Progress) {
        #[expect(clippy::cast_precision_loss, reason = "fewer steps than 2^53")]
        metrics::gauge!("tributary_program_step").set(progress.step as f64);
        if let Some(processes) = progress.processes {
            metrics::gauge!("tributary_program_processes").set(processes);
        }
        if let Some(samples) = progress.samples_per_s {
            metrics::gauge!("tributary_program_samples_per_second").set(samples);
        }
        if let Some(seconds) = progress.step_s {
            metrics::gauge!("tributary_program_step_seconds").set(seconds);
        }
        if let Some(seconds) = progress.communication_s {
            metrics::gauge!("tributary_program_communication_seconds").set(seconds);
        }
        if let Some(part) = progress.utilisation {
            metrics::gauge!("tributary_program_utilisation").set(part);
        }
        if let (Some(step), Some(processes @ 1..)) = (progress.step_s, progress.processes) {
            if processes == 1 {
                self.alone = Some(step);
            }
            if let Some(alone) = self.alone {
                metrics::gauge!("tributary_program_scaling_efficiency").set(report::efficiency(alone, step, processes));
            }
        }
    }
}
