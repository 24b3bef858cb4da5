//! Splits the bytes of a CSV file into records, and checks their quotes, so that an unclosed quote cannot swallow rows.
//!
//! One record at a time is in memory. Records are those of the `csv` crate: empty lines are skipped, and a quote within an unquoted cell
//! is a character. That crate accepts every sequence of bytes, though: text after a closing quote is an error here, and so is a quote
//! that is open at the end of the file.

use std::io::{self, Read};

/// Most bytes of a record.
pub(in crate::table_file) const MAX_RECORD: usize = 1 << 24;
/// Most cells of a record.
const MAX_CELLS: usize = 1 << 20;
/// Bytes to read at once.
const BUFFER: usize = 1 << 18;

/// Why there is no next record.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("a quote opens a cell and is never closed")]
    Unclosed { line: u64 },
    #[error("text follows a closing quote")]
    Followed { line: u64, closed: u64, by: char },
    #[error("the record is too long")]
    TooLong { line: u64 },
}

/// The cells of a line, or of several lines with a quoted cell.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    bytes: &'a [u8],
    cells: &'a [(u32, u32)],
    /// Line of its first byte, from 1.
    pub(super) line: u64,
    /// Whether its first cell is quoted.
    pub(super) is_quoted: bool,
    /// Whether a cell has a line break.
    pub(super) has_breaks: bool,
}

impl<'a> Record<'a> {
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// A cell; an empty one after the last.
    pub(super) fn get(&self, at: usize) -> &'a [u8] {
        self.cells.get(at).map_or(b"", |&(begin, end)| &self.bytes[begin as usize..end as usize])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let record = *self;
        (0..self.len()).map(move |at| record.get(at))
    }
}

/// Reads records.
pub(super) struct Records<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where the next record begins in the buffer, and where the bytes that were read end.
    begin: usize,
    end: usize,
    is_at_end: bool,
    /// Line of the next record.
    line: u64,
    /// Begin and end of each cell of the latest record.
    cells: Vec<(u32, u32)>,
    /// Its cells that have quotes in them, each written twice.
    doubled: Vec<usize>,
}

/// What the bytes in the buffer begin with.
enum Found {
    Record {
        is_quoted: bool,
        end: usize,
        breaks: u64,
    },
    /// Less than a record, which the input may continue.
    Part,
    Nothing,
}

/// The end of a cell.
enum CellEnd {
    Comma,
    Record,
}

impl<R: Read> Records<R> {
    /// Reads the first bytes, at least `least` unless the input is shorter.
    pub(super) fn new(input: R, least: usize) -> io::Result<Self> {
        let (cells, doubled) = (Vec::new(), Vec::new());
        let buffer = vec![0; BUFFER];
        let mut records = Self { input, buffer, begin: 0, end: 0, is_at_end: false, line: 1, cells, doubled };
        while records.end < least && !records.is_at_end {
            records.fill()?;
        }
        Ok(records)
    }

    /// The bytes that were read and do not belong to a record yet.
    pub(super) fn start(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    /// Skips bytes of [`Self::start`].
    pub(super) fn skip(&mut self, bytes: usize) {
        self.begin += bytes;
    }

    /// The next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, RecordError> {
        loop {
            match self.find()? {
                Found::Record { is_quoted, end, breaks } => {
                    self.undouble();
                    let line = self.line;
                    self.line += breaks + u64::from(self.buffer.get(end) == Some(&b'\n'));
                    self.begin = self.end.min(end + 1);
                    let (bytes, cells) = (&self.buffer[..], &self.cells[..]);
                    return Ok(Some(Record { bytes, cells, line, is_quoted, has_breaks: breaks > 0 }));
                }
                Found::Nothing => return Ok(None),
                Found::Part if self.end - self.begin >= MAX_RECORD => {
                    return Err(RecordError::TooLong { line: self.line });
                }
                Found::Part => self.fill()?,
            }
        }
    }

    /// Reads more bytes behind those of the next record.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    let count = read?;
                    self.end += count;
                    self.is_at_end = count == 0;
                    return Ok(());
                }
            }
        }
    }

    /// Finds the next record in the buffer, behind empty lines, and the ends of its cells.
    fn find(&mut self) -> Result<Found, RecordError> {
        let bytes = &self.buffer[..self.end];
        let part = if self.is_at_end { Found::Nothing } else { Found::Part };
        while let Some(b'\r' | b'\n') = bytes.get(self.begin) {
            self.line += u64::from(bytes[self.begin] == b'\n');
            self.begin += 1;
        }
        let Some(first) = bytes.get(self.begin) else { return Ok(part) };
        self.cells.clear();
        self.doubled.clear();
        let (mut at, mut breaks) = (self.begin, 0);
        loop {
            if self.cells.len() == MAX_CELLS {
                return Err(RecordError::TooLong { line: self.line });
            }
            let (cell, end) = if bytes.get(at) == Some(&b'"') {
                let Some(quoted) = quoted(bytes, at + 1, self.line + breaks, self.is_at_end)? else {
                    return Ok(Found::Part);
                };
                breaks += quoted.breaks;
                self.doubled.extend(quoted.has_doubled.then_some(self.cells.len()));
                ((at + 1, quoted.closed), quoted.end)
            } else {
                let is_end = |byte: &u8| *byte <= b',' && matches!(byte, b',' | b'\n' | b'\r');
                let end = bytes[at..].iter().position(is_end).map(|length| at + length);
                let end = end.or(self.is_at_end.then_some(bytes.len()));
                let Some(end) = end else { return Ok(Found::Part) };
                ((at, end), end)
            };
            self.cells.push((narrow(cell.0), narrow(cell.1)));
            match cell_end(bytes, end) {
                CellEnd::Comma => at = end + 1,
                CellEnd::Record => return Ok(Found::Record { is_quoted: *first == b'"', end, breaks }),
            }
        }
    }

    /// Replaces two quotes by one in cells.
    fn undouble(&mut self) {
        for &at in &self.doubled {
            let (begin, end) = (self.cells[at].0 as usize, self.cells[at].1 as usize);
            let (mut to, mut from) = (begin, begin);
            while from < end {
                self.buffer[to] = self.buffer[from];
                from += if self.buffer[from] == b'"' { 2 } else { 1 };
                to += 1;
            }
            self.cells[at].1 = narrow(to);
        }
    }
}

/// A quoted cell.
struct Quoted {
    /// Its closing quote.
    closed: usize,
    /// The comma or the line break behind it.
    end: usize,
    has_doubled: bool,
    /// Line breaks in it.
    breaks: u64,
}

/// Finds the end of the quoted cell whose text begins at `begin`, on this line; `None` if it may lie behind these bytes.
fn quoted(bytes: &[u8], begin: usize, line: u64, is_at_end: bool) -> Result<Option<Quoted>, RecordError> {
    let (mut at, mut has_doubled) = (begin, false);
    let closed = loop {
        match bytes[at..].iter().position(|byte| *byte == b'"').map(|length| at + length) {
            None if is_at_end => return Err(RecordError::Unclosed { line }),
            None => return Ok(None),
            Some(quote) if bytes.get(quote + 1) == Some(&b'"') => {
                has_doubled = true;
                at = quote + 2;
            }
            Some(quote) => break quote,
        }
    };
    let blanks = bytes[closed + 1..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let end = closed + 1 + blanks;
    let breaks = || bytes[begin..closed].iter().filter(|byte| **byte == b'\n').count() as u64;
    match bytes.get(end) {
        None if !is_at_end => Ok(None),
        None | Some(b',' | b'\r' | b'\n') => Ok(Some(Quoted { closed, end, has_doubled, breaks: breaks() })),
        Some(&by) => Err(RecordError::Followed { line, closed: line + breaks(), by: char::from(by) }),
    }
}

fn cell_end(bytes: &[u8], end: usize) -> CellEnd {
    if bytes.get(end) == Some(&b',') { CellEnd::Comma } else { CellEnd::Record }
}

/// A position in a buffer, which is shorter than 2^32.
fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns so many bytes at once.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(self.1).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    type Lines = Vec<(u64, Vec<Vec<u8>>)>;

    fn read(text: &[u8], at_once: usize) -> (Lines, Option<RecordError>) {
        let mut records = Records::new(Slow(text, at_once), 1).unwrap();
        let mut lines = Vec::new();
        loop {
            match records.next() {
                Ok(Some(record)) => lines.push((record.line, record.iter().map(<[u8]>::to_vec).collect())),
                Ok(None) => return (lines, None),
                Err(error) => return (lines, Some(error)),
            }
        }
    }

    fn checked(text: &str) -> (Vec<u64>, Option<RecordError>) {
        let (lines, error) = read(text.as_bytes(), 1000);
        (lines.iter().map(|(line, _)| *line).collect(), error)
    }

    #[test]
    fn quotes_that_close_pass_and_records_have_their_lines() {
        for text in
            ["a,b\n1,\"x\"\n\n3,y\n", "a,b\r\n1,\"x\" \r\n\r\n3,\"\"\r\n", "a,b\n1,5\" pipe\n\n3,\"say \"\"hi\"\"\""]
        {
            let (lines, error) = checked(text);
            assert!(error.is_none() && lines == [1, 2, 4], "{text}: {lines:?}, {error:?}");
        }
        assert_eq!(checked("a,b\n1,\"x\ny\"\n3,y").0, [1, 2, 4], "a line break in a cell");
    }

    #[test]
    fn open_quote_is_reported_with_its_line() {
        for text in ["a,b\n1,\"x\n2,y\n", "a,b\n1,\"", "a,b\n1,\"x\"\"\n", "a\n\"x"] {
            let (_, error) = checked(text);
            assert!(matches!(error, Some(RecordError::Unclosed { line: 2 })), "{text}: {error:?}");
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
            let Some(RecordError::Followed { line: 2, closed: found, by: what }) = checked(text).1 else {
                panic!("{text}")
            };
            assert_eq!((found, what), (closed, by), "{text}");
        }
    }

    #[test]
    fn records_are_those_of_the_csv_crate() {
        let mut state = 1_u32;
        let mut next = |most: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % most
        };
        let mut whole = 0;
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..next(24)).map(|_| b"\"\"\",,\n\r a1"[next(10) as usize]).collect();
            let (lines, error) = read(&text, 1 + next(8) as usize);
            let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&text[..]);
            let expected: Vec<Vec<Vec<u8>>> = reader
                .byte_records()
                .map(|record| record.unwrap().iter().map(|cell| cell.trim_ascii().to_vec()).collect())
                .collect();
            let found: Vec<Vec<Vec<u8>>> = lines
                .into_iter()
                .map(|(_, cells)| cells.into_iter().map(|cell| cell.trim_ascii().to_vec()).collect())
                .collect();
            let expected = if error.is_some() { &expected[..found.len()] } else { &expected[..] };
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(&text));
            whole += u32::from(error.is_none());
        }
        assert!(whole > 5_000, "{whole}");
    }

    #[test]
    fn endless_record_is_rejected_with_bounded_memory() {
        for byte in [b'a', b',', b'"'] {
            let endless = io::repeat(byte).take(100_000_000);
            let mut records = Records::new(b"a,b\n".chain(endless), 1).unwrap();
            assert_eq!(records.next().unwrap().map(|record| record.len()), Some(2));
            assert!(matches!(records.next(), Err(RecordError::TooLong { line: 2 })));
            assert!(records.buffer.len() <= 2 * MAX_RECORD && records.cells.len() <= MAX_CELLS);
        }
    }
}
