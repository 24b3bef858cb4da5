//! Tables of text, and numbers as people read them.

use std::fmt::Write as _;
use std::time::Duration;

use wire::Timestamp;

/// Alignment of a cell in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// Rows under headings, each column as wide as its widest cell.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the last column are left out.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Renders the table; `nothing` if there are no rows.
    pub(crate) fn render(&self, nothing: &str) -> String {
        if self.rows.is_empty() {
            return nothing.to_owned();
        }
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                std::iter::once(&headings)
                    .chain(&self.rows)
                    .map(|row| row.get(column).map_or(0, |cell| cell.chars().count()))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(&self.columns) {
                let _ = match align {
                    Align::Left => write!(line, "{cell:<width$}  "),
                    Align::Right => write!(line, "{cell:>width$}  "),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// `1.2 MB`: powers of a thousand, three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 || unit == "TB" {
            let digits = if unit == "B" || value >= 99.95 { 0 } else { 1 };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    unreachable!("the last unit takes everything")
}

/// `1,663,370`.
pub(crate) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Four digits, no more zeros than that.
pub(crate) fn figure(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        "unbounded".to_owned()
    } else if magnitude == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e6).contains(&magnitude) {
        format!("{value:.2e}")
    } else {
        let digits = (1_u32..=7).find(|&digits| magnitude * 10_f64.powi(digits.cast_signed()) >= 1000.0).unwrap_or(8);
        let digits = if magnitude >= 1000.0 { 0 } else { digits as usize };
        let text = format!("{value:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    }
}

/// `0.42 s`, `12.3 s`, `4 min 05 s`, `3 h 20 min`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let whole = duration.as_secs();
    if seconds < 9.995 {
        format!("{seconds:.2} s")
    } else if seconds < 99.95 {
        format!("{seconds:.1} s")
    } else if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} min", whole / 3600, whole / 60 % 60)
    }
}

/// `2026-11-20 12:00:03Z`.
pub(crate) fn when(at: Timestamp) -> String {
    let Ok(moment) = time::OffsetDateTime::from_unix_timestamp(at.0.div_euclid(1000)) else {
        return at.to_string();
    };
    let (date, time) = (moment.date(), moment.time());
    format!("{date} {:02}:{:02}:{:02}Z", time.hour(), time.minute(), time.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("NAME", Align::Left), ("ROUND", Align::Right)]);
        assert_eq!(table.render("No tasks."), "No tasks.");
        table.row(vec!["a".into(), "7".into()]);
        table.row(vec!["longer".into(), "1234567".into()]);
        assert_eq!(table.render(""), "NAME      ROUND\na             7\nlonger  1234567\n");
    }

    #[test]
    fn figures_have_four_digits() {
        let cases = [
            (8.0, "8"),
            (7.999_6, "8"),
            (7.991_2, "7.991"),
            (0.012_345, "0.01235"),
            (123.456, "123.5"),
            (98_765.4, "98765"),
            (0.0, "0"),
            (0.25, "0.25"),
            (1e-7, "1.00e-7"),
            (1000.0, "1000"),
            (f64::INFINITY, "unbounded"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1000, 99_949, 999_499, 6_653_480].map(bytes),
            ["0 B", "999 B", "1.0 kB", "99.9 kB", "999 kB", "6.7 MB"]
        );
        assert_eq!([0, 999, 1000, 1_663_370].map(number), ["0", "999", "1,000", "1,663,370"]);
        assert_eq!(
            [420, 12_345, 245_000, 12_000_000].map(|ms| duration(Duration::from_millis(ms))),
            ["0.42 s", "12.3 s", "4 min 05 s", "3 h 20 min"]
        );
        assert_eq!(when(Timestamp(1_700_000_000_000)), "2023-11-14 22:13:20Z");
    }
}
