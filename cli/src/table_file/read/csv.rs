//! Tables of lines: the first names the columns, commas separate cells, quotes surround cells that have commas.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::format::Format;
use super::records::{Record, RecordError, Records};
use super::row_names::RowNames;
use super::signature::{GZIP, LENGTH, recognized};
use super::{renames, swallowed};
use crate::table_file::cells::{Cell, ColumnName, RowSink};
use crate::table_file::command::CommandFailed;
use crate::table_file::error::{Place, TableError};
use crate::table_file::origin::Origin;

/// Separators that a file of one column may have meant.
const OTHER_SEPARATORS: [char; 3] = [';', '\t', '|'];

/// How the cells of a row belong to the header's columns.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// As many cells as the header has. The last ones may be missing if their columns have no names.
    Plain,
    /// Each line ends with a comma.
    EndsWithComma,
    /// The first cell is the row's name, which R writes without a heading.
    BeginsWithName,
}

/// Reads a CSV file, also one that gzip has compressed. Lines that are not rows are faults; after a wrong quote nothing more is read.
pub(in crate::table_file) fn read(
    origin: &Origin,
    own_names: &[(String, String)],
    rows: &mut impl RowSink,
) -> Result<(), TableError> {
    let path = origin.path();
    let mut lines = Lines::open(origin)?;
    let mut columns: Vec<ColumnName> = lines.names.iter().map(|name| (name.clone(), Ok(()))).collect();
    renames::apply(path, &mut columns, own_names)?;
    let selected = rows.select(&columns);
    let (names, named) = (lines.names.len(), lines.named);
    let (mut layout, mut first, mut has_faults) = (Layout::Plain, None, false);
    while let Some(next) = lines.next() {
        let record = match next {
            Ok(record) => record,
            Err(error) if error.is_of_file() => return Err(error),
            Err(error) => {
                has_faults = true;
                rows.fault(error);
                break;
            }
        };
        if first.is_none() {
            // The first row decides whether each has one cell more than the header.
            layout = if record.len() == names + 1 { longer_layout(origin)? } else { Layout::Plain };
        }
        let (shift, width) = match layout {
            Layout::Plain => (0, names),
            Layout::EndsWithComma => (0, names + 1),
            Layout::BeginsWithName => (1, names + 1),
        };
        let line = record.line;
        if layout != Layout::Plain && record.len() != width {
            return Err(ragged(path, first.unwrap_or(line), width, names));
        }
        let fault = if (named..=width).contains(&record.len()) {
            swallowed_rows(path, &record, width)
        } else {
            Some(ragged(path, line, record.len(), names))
        };
        if let Some(fault) = fault {
            has_faults = true;
            rows.fault(fault);
            continue;
        }
        first.get_or_insert(line);
        rows.row(path, Place::Line(line), |at| Cell::of_text(record.get(selected[at] + shift)))?;
    }
    if first.is_none() && !has_faults { Err(TableError::NoRows { path: path.into() }) } else { Ok(()) }
}

/// The layout of rows with one cell more than the header: the last cells are all empty, or the first ones are names of rows. Reads the whole
/// table.
///
/// # Errors
/// Neither is the case.
fn longer_layout(origin: &Origin) -> Result<Layout, TableError> {
    let path = origin.path();
    let mut lines = Lines::open(origin)?;
    let names = lines.names.len();
    let (mut first, mut are_last_empty, mut row_names) = (None, true, RowNames::new());
    while let Some(next) = lines.next() {
        let record = match next {
            Ok(record) => record,
            Err(error) if error.is_of_file() => return Err(error),
            Err(_) => break,
        };
        if !record.is_quoted {
            row_names.see_unquoted();
        }
        if record.len() != names + 1 {
            match first {
                None => continue,
                Some(line) => return Err(ragged(path, line, names + 1, names)),
            }
        }
        if swallowed_rows(path, &record, names + 1).is_none() {
            first.get_or_insert(record.line);
            are_last_empty &= record.get(names).trim_ascii().is_empty();
            row_names.see(record.get(0).trim_ascii());
        }
    }
    match (are_last_empty, row_names.are_names()) {
        (true, _) => Ok(Layout::EndsWithComma),
        (false, true) => Ok(Layout::BeginsWithName),
        (false, false) => Err(ragged(path, first.unwrap_or_default(), names + 1, names)),
    }
}

/// The lines of a file below its header.
struct Lines<'a> {
    path: &'a Path,
    records: Records<Box<dyn Read>>,
    names: Vec<String>,
    /// Columns up to the last one that has a name: the fewest cells of a row.
    named: usize,
}

impl<'a> Lines<'a> {
    /// Reads the header.
    fn open(origin: &'a Origin) -> Result<Self, TableError> {
        let path = origin.path();
        let unreadable = |error| explained(path, RecordError::Read(error));
        let mut file = BufReader::new(origin.reader()?);
        let input: Box<dyn Read> = if file.fill_buf().map_err(unreadable)?.starts_with(GZIP) {
            Box::new(MultiGzDecoder::new(file))
        } else {
            Box::new(file)
        };
        let mut records = Records::new(input, LENGTH).map_err(unreadable)?;
        if let Some((is, right)) = recognized(records.start(), Format::Csv) {
            return Err(TableError::Other { path: path.into(), is, right });
        }
        if records.start().starts_with(b"\xef\xbb\xbf") {
            records.skip(3);
        }
        let header = records.next().map_err(|error| explained(path, error))?;
        let header = header.ok_or_else(|| TableError::Empty { path: path.into() })?;
        let names: Vec<String> = header.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        check_header(path, &names)?;
        let named = names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        Ok(Self { path, records, names, named })
    }

    fn next(&mut self) -> Option<Result<Record<'_>, TableError>> {
        let path = self.path;
        self.records.next().map_err(|error| explained(path, error)).transpose()
    }
}

fn ragged(path: &Path, line: u64, found: usize, expected: usize) -> TableError {
    TableError::Ragged { path: path.into(), line, found, expected }
}

fn swallowed_rows(path: &Path, record: &Record<'_>, width: usize) -> Option<TableError> {
    let found = swallowed::swallowed(record, width)?;
    let line = record.line + found.above;
    Some(TableError::Swallowed { path: path.into(), line, end: line + found.lines })
}

fn check_header(path: &Path, names: &[String]) -> Result<(), TableError> {
    let [one] = names else { return Ok(()) };
    if one.is_empty() {
        return Err(TableError::Empty { path: path.into() });
    }
    match OTHER_SEPARATORS.into_iter().find(|other| one.contains(*other)) {
        Some(separator) => Err(TableError::Separator { path: path.into(), header: one.clone(), separator }),
        None => Ok(()),
    }
}

fn explained(path: &Path, error: RecordError) -> TableError {
    let path = path.to_owned();
    match error {
        RecordError::Unclosed { line } => TableError::Unclosed { path, line },
        RecordError::Followed { line, closed, by } => {
            let other = OTHER_SEPARATORS.contains(&by);
            let hint = if other { format!("; cells seem to be separated by {by:?}") } else { String::new() };
            TableError::AfterQuote { path, line, closed, by, hint }
        }
        RecordError::TooLong { line } => TableError::LongLine { path, line },
        RecordError::Read(error) => match error.get_ref().and_then(|error| error.downcast_ref::<CommandFailed>()) {
            Some(failed) => TableError::Command { path, failed: failed.clone() },
            None => TableError::read(&path)(error),
        },
    }
}
