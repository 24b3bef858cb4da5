//! Checks the quotes of a CSV file while it is read, so that an unclosed quote cannot swallow rows.
//!
//! The `csv` crate accepts every sequence of bytes: a quote that is still open at the end of the file closes there, and text
//! after a closing quote belongs to the cell.

use std::collections::VecDeque;
use std::io::{self, Read};

/// A quote that makes the rest of the file ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum QuoteError {
    #[error("a quote opens a cell and is never closed")]
    Unclosed { line: u64 },
    #[error("text follows a closing quote")]
    Followed { line: u64, closed: u64, by: char },
}

/// Where the next byte is.
#[derive(Clone, Copy)]
enum Place {
    RecordStart,
    CellStart,
    Unquoted,
    Quoted,
    /// After a quote in a quoted cell: the end of the cell, or the first of two quotes.
    Quote,
    /// After blanks that follow a closing quote.
    Closed,
}

/// Where a record begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordStart {
    pub(super) line: u64,
    /// Whether its first cell is quoted.
    pub(super) is_quoted: bool,
}

/// Passes bytes on, checks their quotes, and notes where each record begins.
pub(super) struct CheckedQuotes<R> {
    inner: R,
    place: Place,
    line: u64,
    /// Line of the quote that opened the latest quoted cell.
    opened: u64,
    /// Line of the quote that may have closed it.
    closed: u64,
    records: VecDeque<RecordStart>,
    /// The error that follows the bytes that were passed on.
    failed: Option<QuoteError>,
}

impl<R> CheckedQuotes<R> {
    pub(super) fn new(inner: R) -> Self {
        let (line, opened, closed) = (1, 1, 1);
        Self { inner, place: Place::RecordStart, line, opened, closed, records: VecDeque::new(), failed: None }
    }

    /// Where the next record begins; one call for each record that was read.
    pub(super) fn next_record(&mut self) -> RecordStart {
        self.records.pop_front().unwrap_or(RecordStart { line: self.line, is_quoted: false })
    }

    fn check(&mut self, byte: u8) -> Result<(), QuoteError> {
        if matches!(self.place, Place::RecordStart) && !matches!(byte, b'\r' | b'\n') {
            self.records.push_back(RecordStart { line: self.line, is_quoted: byte == b'"' });
        }
        self.place = match (self.place, byte) {
            (Place::RecordStart | Place::CellStart, b'"') => {
                self.opened = self.line;
                Place::Quoted
            }
            (Place::Quoted, b'"') => {
                self.closed = self.line;
                Place::Quote
            }
            (Place::Quoted, _) | (Place::Quote, b'"') => Place::Quoted,
            (_, b',') => Place::CellStart,
            (_, b'\r' | b'\n') => Place::RecordStart,
            (Place::Quote | Place::Closed, b' ' | b'\t') => Place::Closed,
            (Place::Quote | Place::Closed, by) => {
                let (line, closed) = (self.opened, self.closed);
                return Err(QuoteError::Followed { line, closed, by: char::from(by) });
            }
            (Place::RecordStart | Place::CellStart | Place::Unquoted, _) => Place::Unquoted,
        };
        if byte == b'\n' {
            self.line += 1;
        }
        Ok(())
    }
}

impl<R: Read> Read for CheckedQuotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.failed {
            return Err(io::Error::other(error));
        }
        let count = self.inner.read(buffer)?;
        if count == 0 && !buffer.is_empty() && matches!(self.place, Place::Quoted) {
            return Err(io::Error::other(QuoteError::Unclosed { line: self.opened }));
        }
        for (at, &byte) in buffer.iter().take(count).enumerate() {
            if let Err(error) = self.check(byte) {
                // The rows before it are read first.
                self.failed = Some(error);
                return if at == 0 { Err(io::Error::other(error)) } else { Ok(at) };
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> (Vec<u64>, Option<QuoteError>) {
        let mut reader = CheckedQuotes::new(text.as_bytes());
        let error = io::copy(&mut reader, &mut io::sink()).err();
        let error = error.map(|error| *error.get_ref().and_then(|error| error.downcast_ref()).unwrap());
        (reader.records.iter().map(|record| record.line).collect(), error)
    }

    #[test]
    fn quotes_that_close_pass_and_records_have_their_lines() {
        for text in
            ["a,b\n1,\"x\"\n\n3,y\n", "a,b\r\n1,\"x\" \r\n\r\n3,\"\"\r\n", "a,b\n1,5\" pipe\n\n3,\"say \"\"hi\"\"\""]
        {
            assert_eq!(checked(text), (vec![1, 2, 4], None), "{text}");
        }
        assert_eq!(checked("a,b\n1,\"x\ny\"\n3,y").0, [1, 2, 4], "a line break in a cell");
    }

    #[test]
    fn open_quote_is_reported_with_its_line() {
        for text in ["a,b\n1,\"x\n2,y\n", "a,b\n1,\"", "a,b\n1,\"x\"\"\n", "a\n\"x"] {
            assert_eq!(checked(text).1, Some(QuoteError::Unclosed { line: 2 }), "{text}");
        }
    }

    #[test]
    fn text_after_a_closing_quote_is_reported() {
        for (text, closed, by) in [
            ("a,b\n1,\"x\n2,\"y\n", 3, 'y'),
            ("a,b\n1,\"x\"y\n", 2, 'y'),
            ("a,b\n1,\"x\" y\n", 2, 'y'),
            ("a,b\n1,\"x\\\"y\"\n", 2, 'y'),
            ("a,b\n\"x\";1\n", 2, ';'),
        ] {
            assert_eq!(checked(text).1, Some(QuoteError::Followed { line: 2, closed, by }), "{text}");
        }
    }
}
