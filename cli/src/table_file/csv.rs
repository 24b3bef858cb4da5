//! Tables of lines: the first names the columns, commas separate cells, quotes surround cells that have commas.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use csv::{ErrorKind, Position, ReaderBuilder, StringRecord, Trim};

use super::error::TableError;
use super::table::{Column, MAX_BYTES, TableFile, Words, check_cells, check_names};

/// Separators that a file of one column may have meant.
const OTHER_SEPARATORS: [char; 3] = [';', '\t', '|'];

pub(super) fn read(path: &Path) -> Result<TableFile, TableError> {
    let unreadable = |source| TableError::Read { path: path.into(), source };
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.len() > MAX_BYTES {
        return Err(TableError::TooLarge { path: path.into() });
    }
    // A pipe tells no size.
    let mut lines = ReaderBuilder::new().trim(Trim::All).from_reader(BufReader::new(file.take(MAX_BYTES)));
    let header = lines.headers().map_err(|error| explained(path, error))?.clone();
    check_header(path, &header)?;
    let mut columns: Vec<_> = header.iter().map(|_| Words::default()).collect();
    let mut places = Vec::new();
    let mut row = StringRecord::new();
    while lines.read_record(&mut row).map_err(|error| explained(path, error))? {
        columns.iter_mut().zip(row.iter()).for_each(|(column, word)| column.push(word));
        places.push(row.position().map_or(0, Position::line));
        check_cells(path, places.len(), columns.len())?;
    }
    let names = header.iter().map(str::to_owned);
    Ok(TableFile {
        path: path.into(),
        columns: names.zip(columns.into_iter().map(Column::Words)).collect(),
        rows: places.len(),
        lines: Some(places),
    })
}

fn check_header(path: &Path, header: &StringRecord) -> Result<(), TableError> {
    match header.iter().collect::<Vec<_>>()[..] {
        [] | [""] => return Err(TableError::Empty { path: path.into() }),
        [one] => {
            if let Some(separator) = OTHER_SEPARATORS.into_iter().find(|other| one.contains(*other)) {
                return Err(TableError::Separator { path: path.into(), header: one.to_owned(), separator });
            }
        }
        _ => {}
    }
    check_names(path, header.iter())
}

fn explained(path: &Path, error: csv::Error) -> TableError {
    let line = |position: &Option<Position>| position.as_ref().map_or(0, Position::line);
    match error.kind() {
        ErrorKind::UnequalLengths { pos, expected_len, len } => {
            TableError::Ragged { path: path.into(), line: line(pos), found: *len, expected: *expected_len }
        }
        ErrorKind::Utf8 { pos, .. } => TableError::NotUtf8 { path: path.into(), line: line(pos) },
        _ => match error.into_kind() {
            ErrorKind::Io(source) => TableError::Read { path: path.into(), source },
            kind => {
                let source = csv::Error::from(std::io::Error::other(format!("{kind:?}")));
                TableError::Csv { path: path.into(), source }
            }
        },
    }
}
