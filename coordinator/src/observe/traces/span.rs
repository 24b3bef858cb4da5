//! A span in OTLP form.

use federation::id::Attempt;
use federation::time::Timestamp;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind as Kind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use wire::TraceContext;

/// Bits of `flags`: the trace is recorded.
const RECORDED: u32 = 1;

/// Start and end of an event.
#[derive(Clone, Copy)]
pub(crate) struct During {
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
}

/// Kind of a span; `Server` for responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal,
    Server,
}

/// A span that has ended, with its attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSpan(pub(super) Span);

impl TraceSpan {
    /// A child of `parent`.
    pub(super) fn new(
        parent: TraceContext,
        id: [u8; 8],
        name: impl Into<String>,
        kind: SpanKind,
        during: During,
    ) -> Self {
        let kind = match kind {
            SpanKind::Internal => Kind::Internal,
            SpanKind::Server => Kind::Server,
        };
        Self(Span {
            trace_id: parent.trace.to_vec(),
            span_id: id.to_vec(),
            parent_span_id: parent.span.to_vec(),
            flags: RECORDED,
            name: name.into(),
            kind: kind.into(),
            start_time_unix_nano: nanos(during.began),
            end_time_unix_nano: nanos(during.ended.max(during.began)),
            ..Span::default()
        })
    }

    /// The root span of the trace `context`.
    pub(super) fn root(context: TraceContext, name: &'static str, during: During) -> Self {
        let Self(span) = Self::new(context, context.span, name, SpanKind::Internal, during);
        Self(Span { parent_span_id: Vec::new(), ..span })
    }

    /// A participant's span, for in-process participants: `micros` long.
    #[must_use]
    pub fn of_participant(
        parent: TraceContext,
        id: [u8; 8],
        name: &'static str,
        began: Timestamp,
        micros: u64,
    ) -> Self {
        let Self(span) = Self::new(parent, id, name, SpanKind::Internal, During { began, ended: began });
        let end_time_unix_nano = span.start_time_unix_nano.saturating_add(micros.saturating_mul(1_000));
        Self(Span { end_time_unix_nano, ..span })
    }

    pub(super) fn with(mut self, key: &'static str, value: impl Attribute) -> Self {
        let value = Some(AnyValue { value: Some(value.value()) });
        self.0.attributes.push(KeyValue { key: key.to_owned(), value, ..KeyValue::default() });
        self
    }

    /// Adds the attempt at a round.
    pub(super) fn of(self, Attempt { task, round, attempt }: Attempt) -> Self {
        let span = self.with("tributary.task", task.to_string().as_str());
        span.with("tributary.round", i64::from(round)).with("tributary.attempt", i64::from(attempt))
    }

    pub(super) fn linked_to(mut self, other: TraceContext) -> Self {
        let (trace_id, span_id) = (other.trace.to_vec(), other.span.to_vec());
        self.0.links.push(Link { trace_id, span_id, flags: RECORDED, ..Link::default() });
        self
    }

    pub(super) fn failed_if(mut self, failed: bool) -> Self {
        if failed {
            self.0.status = Some(Status { code: StatusCode::Error.into(), message: String::new() });
        }
        self
    }

    #[cfg(test)]
    pub(super) fn is_root(&self) -> bool {
        self.0.parent_span_id.is_empty()
    }

    #[cfg(test)]
    pub(super) fn name(&self) -> &str {
        &self.0.name
    }
}

/// A value of an attribute.
pub(super) trait Attribute {
    fn value(self) -> Value;
}

impl Attribute for &str {
    fn value(self) -> Value {
        Value::StringValue(self.to_owned())
    }
}

impl Attribute for i64 {
    fn value(self) -> Value {
        Value::IntValue(self)
    }
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000)
}
