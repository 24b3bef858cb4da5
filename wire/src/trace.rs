//! Trace contexts of requests and spans in the form of W3C Trace Context: `00-TRACE-SPAN-01` in hexadecimal digits.
//!
//! If the coordinator traces an update, it sends the trace context with the assignment. The participant's requests of that round carry it
//! in the header `traceparent`. Trace ids are unrelated to the participant's identity.

use std::fmt;
use std::str::FromStr;

use crate::audit::Hex;

/// A position in a recorded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    pub trace: [u8; 16],
    /// The parent span.
    pub span: [u8; 8],
}

/// The text is not the context of a recorded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a W3C trace context of a recorded trace")]
pub struct NotATraceContext;

impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{}-{}-01", Hex(self.trace), Hex(self.span))
    }
}

impl FromStr for TraceContext {
    type Err = NotATraceContext;

    fn from_str(text: &str) -> Result<Self, NotATraceContext> {
        let mut parts = text.split('-');
        let (Some("00"), Some(trace), Some(span), Some(flags), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotATraceContext);
        };
        let is_lower = |text: &str| text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if !is_lower(trace) || !is_lower(span) || !is_lower(flags) {
            return Err(NotATraceContext);
        }
        let wrong = |_| NotATraceContext;
        let Hex(trace) = trace.parse().map_err(wrong)?;
        let Hex(span) = span.parse().map_err(wrong)?;
        let Hex([flags]) = flags.parse().map_err(wrong)?;
        let context = Self { trace, span };
        if context.trace == [0; 16] || context.span == [0; 8] || flags & 1 == 0 {
            return Err(NotATraceContext);
        }
        Ok(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context: TraceContext = text.parse().unwrap();
        assert_eq!((context.trace[0], context.span[7]), (0x4b, 0xb7));
        assert_eq!(context.to_string(), text);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e47-00f067aa0ba902b7-01",
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(NotATraceContext), "{text}");
        }
    }
}
