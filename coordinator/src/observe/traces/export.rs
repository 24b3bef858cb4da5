//! Sends spans to a collector: OTLP, protobuf over HTTP.
//!
//! Runs in the background. A bounded queue holds spans; excess spans, and batches rejected by the collector, are dropped and counted.

use std::path::Path;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::span::TraceSpan;

/// Maximum number of queued spans.
pub(super) const QUEUE_SPANS: usize = 4096;
/// Spans in one request.
const BATCH_SPANS: usize = 512;
/// How long to collect spans for an incomplete request.
const GATHER: Duration = Duration::from_secs(1);
/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for the remaining spans when the process stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Reasons why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error("traces.headers: {0:?} is not a list of NAME=VALUE, separated by commas")]
    Headers(&'static str),
    #[error("traces.ca_certificate_file: {0}")]
    Authority(String),
    #[error("the client of the collector: {0}")]
    Client(String),
}

/// The queue of spans to send.
#[derive(Clone)]
pub struct SpanQueue(mpsc::Sender<TraceSpan>);

impl SpanQueue {
    pub(super) fn new() -> (Self, mpsc::Receiver<TraceSpan>) {
        let (sender, receiver) = mpsc::channel(QUEUE_SPANS);
        (Self(sender), receiver)
    }

    /// Queues a span, unless the queue is full.
    pub fn push(&self, span: TraceSpan) {
        if self.0.try_send(span).is_err() {
            count_dropped("queue_full", 1);
        }
    }
}

/// A collector of traces.
pub struct Collector {
    client: reqwest::Client,
    endpoint: String,
    resource: Resource,
    /// Whether the last request failed and was logged.
    is_away: bool,
}

impl Collector {
    /// A client for `endpoint`, with `headers` (`NAME=VALUE,…`). It trusts the authority in a file, or the machine's. Its spans belong to
    /// the process `instance` of `service`.
    ///
    /// # Errors
    /// [`CollectorError`], without header values.
    pub fn new(
        endpoint: &str,
        headers: &str,
        authority: Option<&Path>,
        service: &str,
        instance: &str,
    ) -> Result<Self, CollectorError> {
        describe();
        // reqwest's default provider, unless one is installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .default_headers(parse(headers)?)
            .user_agent(concat!("tributary/", env!("CARGO_PKG_VERSION")));
        if let Some(file) = authority {
            let wrong =
                |error: &dyn std::fmt::Display| CollectorError::Authority(format!("{}: {error}", file.display()));
            let pem = std::fs::read(file).map_err(|error| wrong(&error))?;
            builder = builder.tls_certs_only([reqwest::Certificate::from_pem(&pem).map_err(|error| wrong(&error))?]);
        }
        let client = builder.build().map_err(|error| CollectorError::Client(error.to_string()))?;
        let attribute = |key: &str, value: &str| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) }),
            ..KeyValue::default()
        };
        let version = attribute("service.version", listener::version());
        let attributes = vec![attribute("service.name", service), attribute("service.instance.id", instance), version];
        let resource = Resource { attributes, ..Resource::default() };
        Ok(Self { client, endpoint: endpoint.to_owned(), resource, is_away: false })
    }

    /// The queue, and a task that sends its spans until `stop`, and then the rest for some seconds at most.
    pub fn start(mut self, stop: CancellationToken) -> (SpanQueue, impl Future<Output = ()> + Send) {
        let (queue, mut spans) = SpanQueue::new();
        let sending = async move {
            let mut batch = Vec::with_capacity(BATCH_SPANS);
            while !stop.is_cancelled() {
                tokio::select! {
                    is_open = gather(&mut spans, &mut batch) => if !is_open { return },
                    () = stop.cancelled() => break,
                }
                tokio::select! {
                    () = self.send(&batch) => batch.clear(),
                    // The batch is sent once more, within the shutdown limit.
                    () = stop.cancelled() => {}
                }
            }
            let farewell = async {
                loop {
                    take_waiting(&mut spans, &mut batch);
                    if batch.is_empty() {
                        return;
                    }
                    self.send(&batch).await;
                    batch.clear();
                }
            };
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, farewell).await;
        };
        (queue, sending)
    }

    async fn send(&mut self, batch: &[TraceSpan]) {
        if batch.is_empty() {
            return;
        }
        let spans = batch.iter().map(|TraceSpan(span)| span.clone()).collect();
        let scope = InstrumentationScope { name: "tributary".to_owned(), ..InstrumentationScope::default() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let request = self.client.post(&self.endpoint).header(CONTENT_TYPE, "application/x-protobuf").body(body);
        let failure = match request.send().await {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answered {}", answer.status())),
            Err(error) => Some(error.without_url().to_string()),
        };
        match failure {
            None => {
                metrics::counter!("tributary_spans_sent_total").increment(batch.len() as u64);
                if self.is_away {
                    tracing::info!("the collector of traces is back");
                }
                self.is_away = false;
            }
            Some(failure) => {
                count_dropped("collector", batch.len() as u64);
                if !self.is_away {
                    tracing::warn!("the collector of traces takes no spans, which are dropped: {failure}");
                }
                self.is_away = true;
            }
        }
    }
}

/// Waits for spans; returns when the batch is full, or some time after the first. `false`: the queue is closed.
async fn gather(spans: &mut mpsc::Receiver<TraceSpan>, batch: &mut Vec<TraceSpan>) -> bool {
    if spans.recv_many(batch, BATCH_SPANS).await == 0 {
        return false;
    }
    let fill = async {
        while batch.len() < BATCH_SPANS {
            let room = BATCH_SPANS - batch.len();
            if spans.recv_many(batch, room).await == 0 {
                return;
            }
        }
    };
    // Spans received before the timeout stay in the batch.
    let _ = tokio::time::timeout(GATHER, fill).await;
    true
}

/// Fills the batch with queued spans.
fn take_waiting(spans: &mut mpsc::Receiver<TraceSpan>, batch: &mut Vec<TraceSpan>) {
    while batch.len() < BATCH_SPANS
        && let Ok(span) = spans.try_recv()
    {
        batch.push(span);
    }
}

fn count_dropped(reason: &'static str, spans: u64) {
    metrics::counter!("tributary_spans_dropped_total", "reason" => reason).increment(spans);
}

fn describe() {
    metrics::describe_counter!("tributary_spans_sent_total", "Spans that the collector of traces took");
    metrics::describe_counter!("tributary_spans_dropped_total", "Spans that were dropped, by reason");
}

/// Parses headers in the form of `OTEL_EXPORTER_OTLP_HEADERS`.
fn parse(text: &str) -> Result<HeaderMap, CollectorError> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(CollectorError::Headers("one without ="))?;
        let name: HeaderName = name.trim().parse().map_err(|_| CollectorError::Headers("a name"))?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| CollectorError::Headers("a value"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::trace::v1::Span;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_batch_that_is_not_full_waits_for_more() {
        let (queue, mut spans) = SpanQueue::new();
        for _ in 0..=3 * BATCH_SPANS {
            queue.push(TraceSpan(Span::default()));
        }
        let (began, mut batch) = (Instant::now(), Vec::new());
        for _ in 0..3 {
            assert!(gather(&mut spans, &mut batch).await);
            assert_eq!((batch.len(), began.elapsed()), (BATCH_SPANS, Duration::ZERO));
            batch.clear();
        }
        assert!(gather(&mut spans, &mut batch).await);
        assert_eq!(batch.len(), 1);
        assert!(began.elapsed() >= GATHER, "more may come");
        batch.clear();
        drop(queue);
        assert!(!gather(&mut spans, &mut batch).await);
    }

    #[test]
    fn headers_are_read_and_a_wrong_one_is_not_repeated() {
        let headers = parse("authorization=Bearer geheim, x-scope = a=b").unwrap();
        assert_eq!(
            (headers["authorization"].as_bytes(), headers["x-scope"].as_bytes()),
            (&b"Bearer geheim"[..], &b"a=b"[..])
        );
        assert!(!format!("{headers:?}").contains("geheim"));
        assert_eq!(parse("").unwrap().len(), 0);
        for wrong in ["geheim", "a b=geheim", "a=ge\nheim"] {
            assert!(parse(wrong).is_err_and(|error| !error.to_string().contains("geheim")), "{wrong}");
        }
    }
}
