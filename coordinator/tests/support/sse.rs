//! Server-sent events, as a browser reads them.

use std::io::Write as _;

use flate2::write::GzDecoder;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) id: u64,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

/// The received part of a stream.
#[derive(Debug, Default)]
pub(crate) struct Received {
    text: String,
    /// The decoder of a compressed stream.
    gzip: Option<GzDecoder<Vec<u8>>>,
    /// Comments so far.
    pub(crate) comments: usize,
    /// The stream's retry time, in milliseconds.
    pub(crate) retry: Option<u64>,
    /// The stream's announced start position.
    pub(crate) begins_after: Option<u64>,
}

impl Received {
    /// A compressed stream without data so far.
    pub(crate) fn gzip() -> Self {
        Self { gzip: Some(GzDecoder::new(Vec::new())), ..Self::default() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let unpacked = self.gzip.as_mut().map(|gzip| {
            gzip.write_all(bytes).unwrap();
            gzip.flush().unwrap();
            std::mem::take(gzip.get_mut())
        });
        self.text += std::str::from_utf8(unpacked.as_deref().unwrap_or(bytes)).expect("pieces end with events");
    }

    /// Checks at the end of a stream that no data is left over, and the trailer of a compressed one.
    pub(crate) fn end(mut self) {
        if let Some(gzip) = &mut self.gzip {
            gzip.try_finish().expect("a trailer that fits");
        }
        assert_eq!(self.text, "");
    }

    /// The next complete event.
    pub(crate) fn pop(&mut self) -> Option<Told> {
        while let Some((block, rest)) = self.text.split_once("\n\n") {
            let (block, rest) = (block.to_owned(), rest.to_owned());
            self.text = rest;
            let field = |name: &str| {
                block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
            };
            if let Some(retry) = field("retry") {
                self.retry = Some(retry.parse().unwrap());
                self.begins_after = field("id").map(|id| id.parse().unwrap());
            } else if block.starts_with(':') {
                self.comments += 1;
            } else {
                let [id, kind, data] = ["id", "event", "data"].map(|name| field(name).unwrap());
                return Some(Told { id: id.parse().unwrap(), kind, data: serde_json::from_str(&data).unwrap() });
            }
        }
        None
    }
}
