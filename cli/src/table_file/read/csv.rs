//! Tables of lines: the first names the columns, commas separate cells, quotes surround cells that have commas.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use csv::{ByteRecord, ErrorKind, ReaderBuilder};
use flate2::bufread::MultiGzDecoder;

use super::format::Format;
use super::quotes::{CheckedQuotes, QuoteError, RecordStart};
use super::record;
use super::signature::{GZIP, recognized};
use crate::table_file::error::{MAX_PROBLEMS, TableError};
use crate::table_file::table::{Column, MAX_BYTES, Places, TableFile, Words, check_cells, open};

/// Separators that a file of one column may have meant.
const OTHER_SEPARATORS: [char; 3] = [';', '\t', '|'];

/// Reads a CSV file, also one that gzip has compressed. Lines that are not rows become faults of the table; after a wrong quote
/// nothing more is read.
pub(in crate::table_file) fn read(path: &Path) -> Result<TableFile, TableError> {
    let unreadable = TableError::read(path);
    let mut file = BufReader::new(open(path)?);
    if file.fill_buf().map_err(unreadable)?.starts_with(GZIP) {
        return read_text(path, BufReader::new(MultiGzDecoder::new(file)));
    }
    read_text(path, file)
}

fn read_text(path: &Path, mut file: impl BufRead) -> Result<TableFile, TableError> {
    let unreadable = TableError::read(path);
    let start = file.fill_buf().map_err(unreadable)?;
    if let Some((is, right)) = recognized(start, Format::Csv) {
        return Err(TableError::Other { path: path.into(), is, right });
    }
    if start.starts_with(b"\xef\xbb\xbf") {
        file.consume(3);
    }
    // Bounds the bytes read, since neither a pipe nor a compressed file shows its size.
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
    loop {
        match lines.read_byte_record(&mut row) {
            Ok(true) => {
                let start = lines.get_mut().next_record();
                rows.push(&row, start)?;
            }
            Ok(false) => return rows.table(),
            Err(error) => match explained(path, error) {
                quote @ (TableError::Unclosed { .. } | TableError::AfterQuote { .. }) => {
                    rows.faults.push(quote);
                    return rows.table();
                }
                other => return Err(other),
            },
        }
    }
}

/// Fails after so many bytes, so that a longer file is not taken for a whole one.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
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
    faults: Vec<TableError>,
    more_faults: usize,
}

impl<'a> Rows<'a> {
    fn new(path: &'a Path, names: Vec<String>) -> Self {
        let named = names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        Self {
            path,
            names,
            named,
            columns: Vec::new(),
            lines: Vec::new(),
            are_quoted: true,
            faults: Vec::new(),
            more_faults: 0,
        }
    }

    /// Whether each row has one more cell than the header.
    fn has_more(&self) -> bool {
        self.columns.len() > self.names.len()
    }

    /// Keeps the first faults, and counts the others. One that no task allows is kept behind many that some task does.
    fn fault(&mut self, fault: TableError) {
        let most = if fault.is_of_row() { MAX_PROBLEMS } else { 2 * MAX_PROBLEMS };
        if self.faults.len() < most {
            self.faults.push(fault);
        } else {
            self.more_faults += 1;
        }
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
            self.fault(self.ragged(line, row.len()));
            return Ok(());
        }
        if let Some(swallowed) = record::swallowed(row, width) {
            self.fault(TableError::Swallowed {
                path: self.path.into(),
                line: line + swallowed.above,
                end: line + swallowed.above + swallowed.lines,
            });
            return Ok(());
        }
        let cells = row.iter().chain(std::iter::repeat(&b""[..]));
        self.columns.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell.trim_ascii()));
        self.lines.push(line);
        check_cells(self.path, self.lines.len(), width)
    }

    /// The table. Of rows with one cell more than the header, the last cells are all empty (each line ends with a comma), or the first
    /// ones are the names of the rows, which R writes without a heading: 1, 2, 3 and so on, or quoted words.
    fn table(mut self) -> Result<TableFile, TableError> {
        if self.columns.is_empty() {
            self.columns = self.names.iter().map(|_| Words::default()).collect();
        }
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
            places: Places::Lines(self.lines),
            faults: self.faults,
            more_faults: self.more_faults,
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
        None => TableError::read(&path)(source),
    }
}
