//! A participant's rows, and the declared ranges that map their values to integers.
//!
//! Ranges belong to the task, not to the data: a range derived from data would reveal its largest value.

use serde::{Deserialize, Serialize};

use super::error::{AnalyticsError, require};

/// Maximum number of columns in a table.
pub const MAX_COLUMNS: usize = 4096;
/// Maximum number of rows a participant can contribute.
pub const MAX_ROWS: u32 = 1 << 24;
/// The ends of a range lie within ±this, so that squares of values stay finite.
const MAX_END: f64 = 1e100;
/// Maximum length of a column name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Rows of finite numbers, with a target for each row if the analysis predicts one. Stays on the device.
#[derive(Clone, PartialEq)]
pub struct Table {
    width: usize,
    /// Row by row; NaN for an empty cell.
    values: Vec<f64>,
    targets: Vec<f64>,
}

/// Shows sizes only: rows in a log would be a leak.
impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("rows", &self.rows()).field("columns", &self.width).finish_non_exhaustive()
    }
}

impl Table {
    /// A table of `values`, row by row, with `width` values in each row.
    ///
    /// # Errors
    /// [`AnalyticsError::Shape`] or [`AnalyticsError::NotFinite`].
    pub fn new(width: usize, values: Vec<f64>) -> Result<Self, AnalyticsError> {
        Self::with_holes(width, values).and_then(|table| table.check_holes(|_| false).map(|()| table))
    }

    /// The same with NaN for each empty cell. Statistics count these cells, in columns with `missing = true`; other analyses reject them.
    ///
    /// # Errors
    /// As [`Self::new`], for infinite values.
    pub fn with_holes(width: usize, values: Vec<f64>) -> Result<Self, AnalyticsError> {
        if width == 0 || width > MAX_COLUMNS {
            return Err(AnalyticsError::Shape {
                what: "columns of a table",
                expected: width.clamp(1, MAX_COLUMNS),
                got: width,
            });
        }
        let over = values.len() % width;
        if over != 0 {
            return Err(AnalyticsError::Shape { what: "values in the last row", expected: width, got: over });
        }
        if let Some(index) = values.iter().position(|value| value.is_infinite()) {
            return Err(AnalyticsError::NotFinite { row: index / width, column: index % width });
        }
        Ok(Self { width, values, targets: Vec::new() })
    }

    /// Rejects empty cells, except in columns that may have them.
    pub(super) fn check_holes(&self, may: impl Fn(usize) -> bool) -> Result<(), AnalyticsError> {
        let width = self.width;
        let is_hole = |(index, value): &(usize, &f64)| value.is_nan() && !may(index % width);
        self.values
            .iter()
            .enumerate()
            .find(is_hole)
            .map_or(Ok(()), |(index, _)| Err(AnalyticsError::NotFinite { row: index / width, column: index % width }))
    }

    /// Adds the targets to predict: numbers, or classes as 0, 1, 2…
    ///
    /// # Errors
    /// [`AnalyticsError::Shape`] or [`AnalyticsError::NotFinite`].
    pub fn with_targets(mut self, targets: Vec<f64>) -> Result<Self, AnalyticsError> {
        if targets.len() != self.rows() {
            return Err(AnalyticsError::Shape { what: "targets", expected: self.rows(), got: targets.len() });
        }
        if let Some(row) = targets.iter().position(|value| !value.is_finite()) {
            return Err(AnalyticsError::NotFinite { row, column: self.width });
        }
        self.targets = targets;
        Ok(self)
    }

    /// The table with every value and target mapped.
    ///
    /// # Errors
    /// [`AnalyticsError::NotFinite`].
    pub fn mapped(&self, map: impl Fn(f64) -> f64) -> Result<Self, AnalyticsError> {
        let of = |values: &[f64]| values.iter().map(|&value| map(value)).collect();
        Self::with_holes(self.width, of(&self.values))?.with_targets(of(&self.targets))
    }

    #[must_use]
    pub fn rows(&self) -> usize {
        self.values.len() / self.width
    }

    /// Number of columns, without the target.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The values of a row.
    ///
    /// # Panics
    /// If `row` is out of range.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.width..(row + 1) * self.width]
    }

    /// One target per row, or empty.
    #[must_use]
    pub fn targets(&self) -> &[f64] {
        &self.targets
    }

    /// The targets, one per row.
    ///
    /// # Errors
    /// [`AnalyticsError::Shape`] if there are none.
    pub(super) fn required_targets(&self) -> Result<&[f64], AnalyticsError> {
        if self.targets.len() == self.rows() {
            Ok(&self.targets)
        } else {
            Err(AnalyticsError::Shape { what: "targets", expected: self.rows(), got: self.targets.len() })
        }
    }

    /// The rows used under a cap of `most`: all of them, or `most` evenly spaced ones. The same in every round.
    pub(super) fn counted(&self, most: u32) -> impl Iterator<Item = usize> + use<> {
        let (rows, most) = (self.rows() as u128, u128::from(most));
        let count = rows.min(most);
        // At most `rows`, which is a usize.
        (0..count).map(move |i| usize::try_from(i * rows / count).unwrap_or_default())
    }

    /// Rejects a table that does not fit an analysis of `width` columns, or has empty cells in columns that may not.
    pub(super) fn check(&self, width: usize, may: impl Fn(usize) -> bool) -> Result<(), AnalyticsError> {
        if self.width != width {
            return Err(AnalyticsError::Shape { what: "columns", expected: width, got: self.width });
        }
        if self.rows() == 0 { Err(AnalyticsError::NoRows) } else { self.check_holes(may) }
    }
}

/// A column, or several equal ones, and the range its values are clipped to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSpec {
    /// Label for people to read.
    pub name: String,
    /// Lower end of the range; smaller values are clipped to it.
    pub low: f64,
    /// Upper end of the range, above `low`; larger values are clipped to it.
    pub high: f64,
    /// Number of consecutive columns with this description.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

/// Number of described columns.
pub(super) fn width(columns: &[ColumnSpec]) -> usize {
    columns.iter().fold(0_usize, |sum, column| sum.saturating_add(column.repeat as usize))
}

/// The validated ranges of all columns.
pub(super) fn ranges(field: &str, columns: &[ColumnSpec]) -> Result<Vec<Range>, AnalyticsError> {
    let total = width(columns);
    require((1..=MAX_COLUMNS).contains(&total), field, || {
        format!("{total} columns are described; 1 to {MAX_COLUMNS} are possible")
    })?;
    let mut ranges = Vec::with_capacity(total);
    for column in columns {
        check_name(field, &column.name)?;
        require(column.repeat > 0, field, || format!("column {:?} is repeated 0 times; leave it out", column.name))?;
        let range = Range::new(field, &column.name, column.low, column.high)?;
        ranges.resize(ranges.len() + column.repeat as usize, range);
    }
    Ok(ranges)
}

pub(super) fn check_name(field: &str, name: &str) -> Result<(), AnalyticsError> {
    let good = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control);
    require(good, field, || format!("a name is 1 to {MAX_NAME_BYTES} bytes without control characters, not {name:?}"))
}

/// Checks the row cap: 1 to [`MAX_ROWS`].
pub(super) fn check_rows(max_rows: u32) -> Result<(), AnalyticsError> {
    require((1..=MAX_ROWS).contains(&max_rows), "max_rows", || format!("is {max_rows}; it must be 1 to {MAX_ROWS}"))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Range {
    pub(super) fn new(field: &str, name: &str, low: f64, high: f64) -> Result<Self, AnalyticsError> {
        let good = low.abs() <= MAX_END && high.abs() <= MAX_END && low < high && high - low >= 1.0 / MAX_END;
        require(good, field, || {
            format!(
                "the range of {name:?} is {low} to {high}; both must be numbers within ±{MAX_END:e}, the first below the second"
            )
        })?;
        Ok(Self { low, high })
    }

    pub(super) fn width(self) -> f64 {
        self.high - self.low
    }

    /// 0 at the low end, 1 at the high end; clipped.
    pub(super) fn unit(self, value: f64) -> f64 {
        ((value - self.low) / self.width()).clamp(0.0, 1.0)
    }

    /// The nearest of the 2^bits + 1 grid points over the range; clipped.
    pub(super) fn grid(self, value: f64, bits: u32) -> i64 {
        round(self.unit(value) * power(bits))
    }

    /// The value at `points` of the range's 2^bits grid steps.
    pub(super) fn at(self, points: f64, bits: u32) -> f64 {
        self.low + points / power(bits) * self.width()
    }
}

/// 2^bits, exact.
pub(super) fn power(bits: u32) -> f64 {
    (1_u64 << bits) as f64
}

/// To the nearest integer; saturates.
pub(super) fn round(value: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "rounded, and saturating where too large")]
    let rounded = value.round() as i64;
    rounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_no_table() {
        let shape = |what, expected, got| AnalyticsError::Shape { what, expected, got };
        assert_eq!(Table::new(0, vec![]).unwrap_err(), shape("columns of a table", 1, 0));
        assert_eq!(Table::new(2, vec![1.0; 3]).unwrap_err(), shape("values in the last row", 2, 1));
        let error = Table::new(2, vec![1.0, 2.0, 3.0, f64::NAN]).unwrap_err();
        assert_eq!(error, AnalyticsError::NotFinite { row: 1, column: 1 });
        let table = Table::new(2, vec![1.0; 4]).unwrap();
        assert_eq!(table.clone().with_targets(vec![0.0]).unwrap_err(), shape("targets", 2, 1));
        let error = table.clone().with_targets(vec![0.0, f64::INFINITY]).unwrap_err();
        assert_eq!(error, AnalyticsError::NotFinite { row: 1, column: 2 });
        assert_eq!(table.check(3, |_| false), Err(shape("columns", 3, 2)));
        assert_eq!(Table::new(2, vec![]).unwrap().check(2, |_| false), Err(AnalyticsError::NoRows));
        assert!(Table::with_holes(1, vec![f64::INFINITY]).is_err());
        let holes = Table::with_holes(2, vec![1.0, f64::NAN]).unwrap();
        assert_eq!(holes.check(2, |_| false), Err(AnalyticsError::NotFinite { row: 0, column: 1 }));
        assert_eq!(holes.check(2, |column| column == 1), Ok(()));
    }

    #[test]
    fn debug_shows_no_values() {
        let table = Table::new(1, vec![0.123]).unwrap();
        assert_eq!(format!("{table:?}"), "Table { rows: 1, columns: 1, .. }");
    }

    #[test]
    fn no_more_rows_count_than_may_and_they_spread() {
        let table = Table::new(1, vec![0.0; 10]).unwrap();
        assert_eq!(table.counted(20).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert_eq!(table.counted(4).collect::<Vec<_>>(), [0, 2, 5, 7]);
        assert_eq!(Table::new(1, vec![]).unwrap().counted(4).count(), 0);
    }

    #[test]
    fn ranges_clip_and_reverse_ranges_are_refused() {
        let column = |low, high, repeat| ColumnSpec { name: "x".into(), low, high, repeat };
        let found = ranges("columns", &[column(-1.0, 3.0, 2), column(0.0, 1.0, 1)]).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].grid(1.0, 4), found[0].grid(-9.0, 4), found[0].grid(9.0, 4)), (8, 0, 16));
        assert_eq!(found[0].at(8.0, 4), 1.0);
        for (low, high) in [(1.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (-1e308, 1e308)] {
            let error = ranges("columns", &[column(low, high, 1)]).unwrap_err().to_string();
            assert!(error.contains("the first below the second"), "{error}");
        }
        assert!(ranges("columns", &[]).is_err());
        assert!(ranges("columns", &[column(0.0, 1.0, 0)]).is_err());
        assert!(ranges("columns", &[column(0.0, 1.0, 4097)]).is_err());
        assert!(ranges("columns", &[column(0.0, 1.0, u32::MAX), column(0.0, 1.0, u32::MAX)]).is_err());
    }
}
