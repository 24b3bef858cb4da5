//! Line ends of HTTP/1.1 without ambiguity, for connections that a balancer passes on.
//!
//! hyper accepts lines that end in LF alone, as RFC 9112 §2.2 allows. A balancer may not, and then sees one header, or one request, where
//! hyper sees two. So each LF without a CR before it, in heads, chunk sizes and trailers, is replaced by NUL, to which hyper answers 400
//! and closes. The same happens to a head with an ambiguous body length.

use std::io::Result;
use std::task::{Context, Poll};

use crate::inspected::Inspector;

/// Bytes kept of a line. Lines that matter are shorter.
const LINE_MAX: usize = 256;

/// Spoils each line of a stream of requests that ends in LF alone. Follows the framing of requests (RFC 9112 §6 and §7).
#[derive(Default)]
pub(crate) struct StrictLines {
    part: Part,
    /// The current line without its end, as far as it is kept.
    line: Vec<u8>,
    is_cut: bool,
    /// Whether the last byte of the line was CR.
    ends_in_cr: bool,
}

/// A part of a request.
#[derive(Clone, Copy)]
enum Part {
    Head {
        /// Whether the request line was read.
        is_begun: bool,
        body: Option<Framing>,
    },
    /// So many bytes of the body, at least 1.
    Body(u64),
    ChunkSize,
    /// So many bytes of a chunk, at least 1.
    Chunk(u64),
    /// The empty line after a chunk.
    ChunkEnd,
    Trailers,
}

/// How a head delimits its body.
#[derive(Clone, Copy)]
enum Framing {
    Length(u64),
    Chunked,
}

impl Default for Part {
    fn default() -> Self {
        Self::Head { is_begun: false, body: None }
    }
}

impl Inspector for StrictLines {
    fn inspect(&mut self, _: &mut Context<'_>, arrived: &mut [u8], polled: Poll<Result<()>>) -> Poll<Result<()>> {
        self.scan(arrived);
        polled
    }
}

impl StrictLines {
    fn scan(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let taken = match self.part {
                Part::Body(left) => {
                    let (taken, left) = pass(left, bytes.len());
                    self.part = left.map_or_else(Part::default, Part::Body);
                    taken
                }
                Part::Chunk(left) => {
                    let (taken, left) = pass(left, bytes.len());
                    self.part = left.map_or(Part::ChunkEnd, Part::Chunk);
                    taken
                }
                Part::Head { .. } | Part::ChunkSize | Part::ChunkEnd | Part::Trailers => self.read_line(bytes),
            };
            bytes = &mut bytes[taken..];
        }
    }

    /// Reads up to the end of the line, if it is there; returns the number of bytes.
    fn read_line(&mut self, bytes: &mut [u8]) -> usize {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.keep(bytes);
            return bytes.len();
        };
        self.keep(&bytes[..end]);
        let next = if self.ends_in_cr { self.after_line() } else { None };
        match next {
            Some(part) => self.part = part,
            None => bytes[end] = 0,
        }
        self.line.clear();
        (self.is_cut, self.ends_in_cr) = (false, false);
        end + 1
    }

    fn keep(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(LINE_MAX - self.line.len());
        self.line.extend_from_slice(&bytes[..kept]);
        self.is_cut |= kept < bytes.len();
        self.ends_in_cr = bytes.last().map_or(self.ends_in_cr, |last| *last == b'\r');
    }

    /// The part that follows the line; `None` if the line is not acceptable.
    fn after_line(&self) -> Option<Part> {
        let line = if self.is_cut { &self.line[..] } else { self.line.strip_suffix(b"\r")? };
        let text = String::from_utf8_lossy(line);
        match self.part {
            // Empty lines before a request are skipped.
            Part::Head { is_begun: false, .. } => Some(Part::Head { is_begun: !line.is_empty(), body: None }),
            Part::Head { is_begun: true, body } if line.is_empty() => Some(match body {
                None | Some(Framing::Length(0)) => Part::default(),
                Some(Framing::Length(length)) => Part::Body(length),
                Some(Framing::Chunked) => Part::ChunkSize,
            }),
            Part::Head { is_begun, body } => {
                let framing = self.framing_of(&text)?;
                // Both headers, or one of them twice, can be read in two ways.
                (body.is_none() || framing.is_none()).then_some(Part::Head { is_begun, body: body.or(framing) })
            }
            Part::ChunkSize => {
                let size = text.split_once(';').map_or(&*text, |(size, _)| size);
                let is_whole = !self.is_cut || text.contains(';');
                let size = size.trim_end_matches([' ', '\t']);
                let is_hex = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
                let size = u64::from_str_radix(size, 16).ok().filter(|_| is_hex && is_whole)?;
                Some(if size == 0 { Part::Trailers } else { Part::Chunk(size) })
            }
            Part::ChunkEnd => line.is_empty().then_some(Part::ChunkSize),
            Part::Trailers => Some(if line.is_empty() { Part::default() } else { Part::Trailers }),
            // They have no lines.
            Part::Body(_) | Part::Chunk(_) => None,
        }
    }

    /// The body length that a header states; `None` if it is ambiguous, `Some(None)` if the header states no length.
    #[expect(clippy::option_option, reason = "a header that is unclear, or says nothing of the body")]
    fn framing_of(&self, header: &str) -> Option<Option<Framing>> {
        let (name, value) = header.split_once(':').unwrap_or((header, ""));
        let (name, value) = (name.trim(), value.trim_matches([' ', '\t']));
        if name.eq_ignore_ascii_case("content-length") {
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| is_number && !self.is_cut)?;
            return Some(Some(Framing::Length(length)));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return (value.eq_ignore_ascii_case("chunked") && !self.is_cut).then_some(Some(Framing::Chunked));
        }
        Some(None)
    }
}

/// How many of `there` bytes belong to the `left` ones, and what is left then, if anything.
fn pass(left: u64, there: usize) -> (usize, Option<u64>) {
    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(there);
    (taken, Some(left - taken as u64).filter(|left| *left > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of `text` in pieces of this size.
    fn scanned(text: &str, piece: usize) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let mut scanner = StrictLines::default();
        bytes.chunks_mut(piece).for_each(|piece| scanner.scan(piece));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_with_whole_line_ends_pass_unchanged() {
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(3 * LINE_MAX));
        let two = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n\n\n\nGET / HTTP/1.1\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\na\nb\r\nA \r\n0123456789\r\n0\r\nx: y\r\n\r\n\
                       GET / HTTP/1.1\r\n\r\n";
        let empty = "PUT / HTTP/1.1\r\ncontent-length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        for text in [long.as_str(), two, chunked, empty] {
            for piece in [1, 2, 3, 7, text.len()] {
                assert_eq!(scanned(text, piece), text);
            }
        }
    }

    #[test]
    fn a_bare_line_feed_outside_bodies_is_spoilt() {
        for (text, at) in [
            ("GET / HTTP/1.1\nhost: a\r\n\r\n", 14),
            ("\nGET / HTTP/1.1\r\n\r\n", 0),
            ("GET / HTTP/1.1\r\nhost: a\nhost: b\r\n\r\n", 23),
            ("GET / HTTP/1.1\r\nhost: a\r\n\nGET", 25),
            ("PUT / HTTP/1.1\r\ncontent-length: 1\r\n\r\n\nGET / HTTP/1.1\nx: y\r\n\r\n", 52),
            ("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", 47),
            ("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n", 50),
            ("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: y\n\r\n", 53),
        ] {
            for piece in [1, 2, 3, 7, text.len()] {
                let spoilt = scanned(text, piece);
                assert_eq!(spoilt.find('\0'), Some(at), "{text:?} {piece}");
            }
        }
    }

    #[test]
    fn a_head_that_does_not_delimit_its_body_is_spoilt() {
        let padded = format!("content-length: {}1", "0".repeat(LINE_MAX));
        for headers in [
            "content-length: 1\r\ncontent-length: 1",
            "content-length: 1\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 1",
            "content-length: +1",
            "content-length: 1, 1",
            "content-length:",
            "Content-Length : 1x",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            padded.as_str(),
        ] {
            let text = format!("PUT / HTTP/1.1\r\n{headers}\r\n\r\na");
            assert!(scanned(&text, text.len()).contains('\0'), "{headers}");
        }
        let sizes = ["", "x", "+1", "0x1", "1 1", "ffffffffffffffffff"];
        for size in sizes {
            let text = format!("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{size}\r\n");
            assert!(scanned(&text, text.len()).contains('\0'), "{size}");
        }
    }
}
