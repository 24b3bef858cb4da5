//! Traces of a participant's rounds for a collector, where the coordinator traces the round.

use client_sdk::Event;
use client_sdk::participant::Span;
use coordinator::observe::{Collector, SpanQueue, TraceSpan};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure, Outcome};

/// Destination of a participant's traces.
#[derive(clap::Args)]
pub(super) struct TracesArgs {
    /// OTLP endpoint (protobuf over HTTP) for traces of rounds that the coordinator traces
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", value_name = "URL")]
    traces_endpoint: Option<String>,
    /// OTLP headers: NAME=VALUE, separated by commas
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_HEADERS",
        value_name = "HEADERS",
        hide_env_values = true,
        requires = "traces_endpoint"
    )]
    traces_headers: Option<String>,
}

/// Background task that exports the participant's spans.
pub(super) struct Traces {
    queue: SpanQueue,
    stop: CancellationToken,
    sending: JoinHandle<()>,
}

impl TracesArgs {
    pub(super) fn start(&self) -> Outcome<Option<Traces>> {
        let Some(endpoint) = &self.traces_endpoint else { return Ok(None) };
        let headers = self.traces_headers.as_deref().unwrap_or_default();
        let process = std::process::id().to_string();
        let collector = Collector::new(endpoint, headers, None, "tributary-participant", &process)
            .map_err(|error| Failure::new(Exit::Usage, error))?;
        let stop = CancellationToken::new();
        let (queue, sending) = collector.start(stop.clone());
        Ok(Some(Traces { queue, stop, sending: tokio::spawn(sending) }))
    }
}

impl Traces {
    /// Takes the spans of a participant.
    pub(super) fn queue(&self) -> SpanQueue {
        self.queue.clone()
    }

    /// Sends the remaining spans.
    pub(super) async fn end(self) {
        self.stop.cancel();
        // Unsent spans are only logged: traces are not worth an error.
        let _ = self.sending.await;
    }
}

/// Passes an event on, if it is a span.
pub(super) fn trace(queue: &SpanQueue, event: &Event) {
    if let Event::Span(Span { parent, id, name, began, took }) = event {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        queue.push(TraceSpan::of_participant(*parent, *id, name, *began, micros));
    }
}
