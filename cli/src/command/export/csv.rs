//! A table as text (RFC 4180): empty for missing values, times in RFC 3339, numbers that read back as the same number.

use std::io::{self, Write};

use super::records::{Cell, Records};

/// Writes the table with a heading.
pub(super) fn write(records: &Records, out: impl Write) -> io::Result<()> {
    let mut csv = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(out);
    csv.write_record(records.columns.iter().map(|(name, _)| name))?;
    for row in &records.rows {
        csv.write_record(row.iter().map(text))?;
    }
    csv.flush()
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Text(text) => inert(text),
        Cell::Integer(number) => number.to_string(),
        Cell::Float(number) => number.to_string(),
        Cell::Time(at) => at.to_string(),
    }
}

/// Names come from people: a spreadsheet must not take one for a formula.
fn inert(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() }
}
