//! Recognizes a record that holds several rows, because a quote that was left open closed by chance at a later one.

use super::records::Record;

/// A quoted cell that seems to hold rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Swallowed {
    /// Line breaks of the record before the quote that opens the cell.
    pub(super) above: u64,
    /// Line breaks within the cell.
    pub(super) lines: u64,
}

/// Finds a cell with line breaks, each of whose lines would be a row of `width` cells, with numbers where the first of
/// these rows has numbers. A text of several lines rarely matches: its first line would have to end the row before the
/// cells that follow it.
pub(super) fn swallowed(record: &Record<'_>, width: usize) -> Option<Swallowed> {
    let breaks = |cell: &[u8]| cell.iter().filter(|&&byte| byte == b'\n').count() as u64;
    if width < 2 || !record.has_breaks {
        return None;
    }
    let cells: Vec<&[u8]> = record.iter().collect();
    let found = (0..cells.len()).find(|&at| breaks(cells[at]) > 0 && holds_rows(&cells, at, width))?;
    Some(Swallowed { above: cells[..found].iter().map(|cell| breaks(cell)).sum(), lines: breaks(cells[found]) })
}

fn holds_rows(cells: &[&[u8]], at: usize, width: usize) -> bool {
    let text = cells[at].trim_ascii();
    let mut rows: Vec<Vec<&[u8]>> =
        text.split(|&byte| byte == b'\n').map(|line| line.split(|&byte| byte == b',').collect()).collect();
    if rows.len() < 2 {
        return false;
    }
    if let Some(first) = rows.first_mut() {
        first.splice(0..0, cells[..at].iter().copied());
    }
    if let Some(last) = rows.last_mut() {
        last.extend(&cells[at + 1..]);
    }
    let Some((first, others)) = rows.split_first() else { return false };
    let numbers: Vec<bool> = first.iter().map(|cell| is_number(cell)).collect();
    let is_alike = |row: &Vec<&[u8]>| {
        let fits = |(cell, &number): (&&[u8], &bool)| !number || cell.trim_ascii().is_empty() || is_number(cell);
        row.len() == width && row.iter().zip(&numbers).all(fits)
    };
    first.len() == width && numbers.contains(&true) && others.iter().all(is_alike)
}

fn is_number(cell: &[u8]) -> bool {
    std::str::from_utf8(cell.trim_ascii()).is_ok_and(|text| text.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table_file::read::records::Records;

    fn found(text: &str) -> Option<Swallowed> {
        let mut records = Records::new(text.as_bytes(), 1).unwrap();
        swallowed(&records.next().unwrap().unwrap(), 4)
    }

    #[test]
    fn rows_between_two_quotes_are_found() {
        for (text, lines) in [
            ("34,2.5,no,\"fell\n50,3,no,ok\n60,3,no,fine\"\n", 2),
            ("34,2.5,no,\"fell\n50,,no,ok\"\n", 1),
            ("1,\"fell,71,yes\n2,ok\",34,no\n", 1),
            ("34,2.5,no,\"fell\r\n50,3,no,ok\r\n\"\r\n", 2),
            ("\"a,b\",2.5,no,\"fell\nc,3,no,ok\"\n", 1),
        ] {
            assert_eq!(found(text), Some(Swallowed { above: 0, lines }), "{text}");
        }
        assert_eq!(found("\"a\nb\",2.5,no,\"fell\nc,3,no,ok\"\n"), Some(Swallowed { above: 1, lines: 1 }));
    }

    #[test]
    fn text_of_several_lines_is_no_row() {
        for text in [
            "34,2.5,no,\"fell\non the stairs\"\n",
            "34,2.5,no,\"fell, twice, and again,\nalas\"\n",
            "1,\"fell\n on, her, leg\",34,no\n",
            "34,2.5,no,\"Dear John,\nhow, are, you, today\nJane\"\n",
            "34,2.5,no,\"fell\na, b, c, d\"\n",
            "34,2.5,no,plain\n",
            // Words alone: a row of words looks like a text.
            "pos,a,b,\"Great film.\nLoved it, really, all, of it.\"\n",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
