//! Tables of lines: the first names the columns, commas separate cells, quotes surround cells that have commas.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;

use csv::{ByteRecord, ErrorKind, ReaderBuilder};

use super::error::TableError;
use super::format::Format;
use super::quotes::{CheckedQuotes, QuoteError, RecordStart};
use super::record;
use super::signature::recognized;
use super::table::{Column, MAX_BYTES, TableFile, Words, check_cells, open};

/// Separators that a file of one column may have meant.
const OTHER_SEPARATORS: [char; 3] = [';', '\t', '|'];

pub(super) fn read(path: &Path) -> Result<TableFile, TableError> {
    let unreadable = |source| TableError::Read { path: path.into(), source };
    let mut file = BufReader::new(open(path)?);
    let start = file.fill_buf().map_err(unreadable)?;
    if let Some((is, right)) = recognized(start, Format::Csv) {
        return Err(TableError::Other { path: path.into(), is, right });
    }
    if start.starts_with(b"\xef\xbb\xbf") {
        file.consume(3);
    }
    // Bounds the bytes read, since a pipe does not have a size.
    let bounded = CheckedQuotes::new(Bounded { inner: file, left: MAX_BYTES });
    let mut lines = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bounded);
    let mut row = ByteRecord::new();
    if !lines.read_byte_record(&mut row).map_err(|error| explained(path, error))? {
        return Err(TableError::Empty { path: path.into() });
    }
    lines.get_mut().next_record();
    let names: Vec<String> = row.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    check_header(path, &names)?;
    let mut rows = Rows::new(path, names);
    while lines.read_byte_record(&mut row).map_err(|error| explained(path, error))? {
        let start = lines.get_mut().next_record();
        rows.push(&row, start)?;
    }
    rows.table()
}

/// Fails after so many bytes, so that a longer file is not taken for a whole one.
struct Bounded {
    inner: BufReader<File>,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(count)
    }
}

/// The rows below a header.
struct Rows<'a> {
    path: &'a Path,
    names: Vec<String>,
    /// Columns up to the last one that has a name: the fewest cells of a row.
    named: usize,
    /// Columns of the table: those of the header, or one more.
    columns: Vec<Words>,
    lines: Vec<u64>,
    /// Whether the first cell of each is quoted.
    are_quoted: bool,
}

impl<'a> Rows<'a> {
    fn new(path: &'a Path, names: Vec<String>) -> Self {
        let named = names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        Self { path, names, named, columns: Vec::new(), lines: Vec::new(), are_quoted: true }
    }

    /// Whether each row has one more cell than the header.
    fn has_more(&self) -> bool {
        self.columns.len() > self.names.len()
    }

    fn ragged(&self, line: u64, found: usize) -> TableError {
        TableError::Ragged { path: self.path.into(), line, found, expected: self.names.len() }
    }

    fn push(&mut self, row: &ByteRecord, start: RecordStart) -> Result<(), TableError> {
        let line = start.line;
        self.are_quoted &= start.is_quoted;
        if self.lines.is_empty() {
            // The first row decides whether each has one cell more than the header.
            let more = usize::from(row.len() == self.names.len() + 1);
            self.columns = (0..self.names.len() + more).map(|_| Words::default()).collect();
        }
        let width = self.columns.len();
        if self.has_more() && row.len() != width {
            return Err(self.ragged(self.lines.first().copied().unwrap_or(line), width));
        }
        if !(self.named..=width).contains(&row.len()) {
            return Err(self.ragged(line, row.len()));
        }
        if let Some(swallowed) = record::swallowed(row, width) {
            return Err(TableError::Swallowed {
                path: self.path.into(),
                line: line + swallowed.above,
                end: line + swallowed.above + swallowed.lines,
            });
        }
        let cells = row.iter().chain(std::iter::repeat(&b""[..]));
        self.columns.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell.trim_ascii()));
        self.lines.push(line);
        check_cells(self.path, self.lines.len(), width)
    }

    /// The table. Of rows with one cell more than the header, the last cells are all empty (each line ends with a comma), or the first
    /// ones are the names of the rows, which R writes without a heading: 1, 2, 3 and so on, or quoted words.
    fn table(mut self) -> Result<TableFile, TableError> {
        if self.has_more() {
            let last = self.columns.pop();
            if !last.as_ref().is_some_and(Words::are_empty) {
                let are_names = |first: &Words| first.count_rows() || (self.are_quoted && first.are_distinct_words());
                if !self.columns.first().is_some_and(are_names) {
                    return Err(self.ragged(self.lines.first().copied().unwrap_or_default(), self.names.len() + 1));
                }
                self.columns.remove(0);
                self.columns.extend(last);
            }
        }
        let columns = self.columns.into_iter().map(|words| Ok(Column::Words(words)));
        Ok(TableFile {
            path: self.path.into(),
            columns: self.names.into_iter().zip(columns).collect(),
            rows: self.lines.len(),
            lines: Some(self.lines),
        })
    }
}

fn check_header(path: &Path, names: &[String]) -> Result<(), TableError> {
    match names {
        [] => Err(TableError::Empty { path: path.into() }),
        [one] if one.is_empty() => Err(TableError::Empty { path: path.into() }),
        [one] => match OTHER_SEPARATORS.into_iter().find(|other| one.contains(*other)) {
            Some(separator) => Err(TableError::Separator { path: path.into(), header: one.clone(), separator }),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn explained(path: &Path, error: csv::Error) -> TableError {
    let path = path.to_owned();
    let source = match error.into_kind() {
        ErrorKind::Io(source) => source,
        kind => io::Error::other(format!("{kind:?}")),
    };
    if source.kind() == io::ErrorKind::FileTooLarge {
        return TableError::TooLarge { path };
    }
    match source.get_ref().and_then(|error| error.downcast_ref()) {
        Some(&QuoteError::Unclosed { line }) => TableError::Unclosed { path, line },
        Some(&QuoteError::Followed { line, closed, by }) => {
            let other = OTHER_SEPARATORS.contains(&by);
            let hint = if other { format!("; cells seem to be separated by {by:?}") } else { String::new() };
            TableError::AfterQuote { path, line, closed, by, hint }
        }
        None => TableError::Read { path, source },
    }
}
