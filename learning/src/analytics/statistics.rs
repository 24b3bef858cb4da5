//! Count, mean, variance, histogram and quantiles over all participants' rows, without revealing any single one.
//!
//! Every value is first mapped to a grid of 2^30 steps over its declared range; everything after that is integer
//! arithmetic, so a federation computes exactly what a single table with all rows would. Moments and histograms are
//! complete after the first round. Each round narrows a quantile's interval 64-fold by counting the rows in each of its
//! 64 parts.

mod noise;
mod quantiles;

use serde::{Deserialize, Serialize};

use super::error::{AnalyticsError, require, sound};
use super::private::Part;
use super::procedure::{Advanced, Procedure};
use super::sum_codec::Field;
use super::table::{MAX_COLUMNS, Range, Table, check_name, check_rows, power};
use crate::metrics::MetricValue;
use quantiles::{GRID, MAX_ROUNDS, QUANTILE, count_parts};

pub use quantiles::Quantile;

/// Maximum number of categories of a column, and of edges of a histogram.
pub const MAX_CELLS: usize = 4096;
/// Maximum number of quantiles per column.
pub const MAX_QUANTILES: usize = 64;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatisticsSpec {
    /// Cap on the rows a participant contributes; of more, evenly spaced ones are used.
    pub max_rows: u32,
    /// In the order of the table's columns.
    pub columns: Vec<StatisticSpec>,
    /// Rounds that narrow quantiles: the error is at most the range divided by 2 * 64^rounds. 1 to 5.
    #[serde(default = "three")]
    pub quantile_rounds: u32,
}

fn three() -> u32 {
    3
}

/// The statistics of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum StatisticSpec {
    /// Numbers: count, mean and variance, and optionally a histogram and quantiles.
    Real {
        /// Label for people to read.
        name: String,
        /// Lower end of the range; smaller values are clipped to it.
        low: f64,
        /// Upper end of the range; larger values are clipped to it.
        high: f64,
        /// Edges of a histogram, ascending: `n` edges give `n + 1` counts, the first for values below the first edge.
        #[serde(default)]
        edges: Vec<f64>,
        /// Quantiles, each above 0 and below 1.
        #[serde(default)]
        quantiles: Vec<f64>,
        /// Whether cells may be empty: they are counted, and the other figures are of the numbers that are there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        missing: bool,
    },
    /// Categories 0, 1, 2…: the number of rows in each.
    Category {
        /// Label for people to read.
        name: String,
        categories: u32,
        /// Whether cells may be empty: they are counted.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        missing: bool,
    },
}

/// The statistics known so far; after the last round, the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatisticsState {
    /// Number of completed rounds.
    pub round: u32,
    /// Number of rows in the first round.
    pub rows: u64,
    /// Number of participants in the first round.
    pub participants: u32,
    /// In the order of the specification.
    pub columns: Vec<ColumnStatistics>,
    /// In a private task: standard deviation of the noise in each count of the first round. The number of participants is then the
    /// expected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_noise: Option<f64>,
}

/// Statistics of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ColumnStatistics {
    Real {
        name: String,
        /// Mean of the clipped values.
        mean: Option<f64>,
        /// Mean squared distance of the clipped values from their mean (divided by the number of rows, not by one
        /// less).
        variance: Option<f64>,
        /// Rows below the range, clipped to its lower end.
        below: u64,
        /// Rows above the range, clipped to its upper end.
        above: u64,
        /// Counts, one more than the edges.
        histogram: Vec<u64>,
        /// In the order of the specification.
        quantiles: Vec<Quantile>,
        /// Rows whose cell is empty.
        #[serde(default, skip_serializing_if = "is_zero")]
        missing: u64,
    },
    Category {
        name: String,
        /// Number of rows in each category.
        counts: Vec<u64>,
        /// Number of rows outside all categories.
        other: u64,
        /// Rows whose cell is empty.
        #[serde(default, skip_serializing_if = "is_zero")]
        missing: u64,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The procedure of a validated specification.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    spec: StatisticsSpec,
    /// `None` for a column of categories.
    ranges: Vec<Option<Range>>,
}

impl Statistics {
    pub(super) fn new(spec: StatisticsSpec) -> Result<Self, AnalyticsError> {
        check_rows(spec.max_rows)?;
        let count = spec.columns.len();
        require((1..=MAX_COLUMNS).contains(&count), "columns", || {
            format!("{count} columns are described; 1 to {MAX_COLUMNS} are possible")
        })?;
        require((1..=MAX_ROUNDS).contains(&spec.quantile_rounds), "quantile_rounds", || {
            format!("is {}; it must be 1 to {MAX_ROUNDS}", spec.quantile_rounds)
        })?;
        let ranges = spec.columns.iter().map(StatisticSpec::check).collect::<Result<_, _>>()?;
        Ok(Self { spec, ranges })
    }

    /// Adds one row's counts for one column; `out` is that column's part of the contribution.
    fn moments(range: Range, edges: &[f64], value: f64, out: &mut [i64]) {
        let grid = range.grid(value, GRID);
        let square = grid * grid;
        out[0] += grid;
        out[1] += square >> GRID;
        out[2] += square & ((1 << GRID) - 1);
        out[3] += i64::from(value < range.low);
        out[4] += i64::from(value > range.high);
        if !edges.is_empty() {
            out[MOMENTS + edges.partition_point(|&edge| edge <= value)] += 1;
        }
    }

    /// The offset of each column's part of the contribution, and its specification.
    fn parts(&self) -> impl Iterator<Item = (usize, &StatisticSpec)> {
        self.spec.columns.iter().scan(1, |offset, column| {
            let start = *offset;
            *offset += column.first_values() + column.quantiles().len() * QUANTILE;
            Some((start, column))
        })
    }
}

/// Sum, squares in two halves, below, above.
const MOMENTS: usize = 5;
impl StatisticSpec {
    fn check(&self) -> Result<Option<Range>, AnalyticsError> {
        match self {
            Self::Category { name, categories, missing: _ } => {
                check_name("columns.name", name)?;
                require((1..=MAX_CELLS).contains(&(*categories as usize)), "columns.categories", || {
                    format!("{name:?} has {categories} categories; 1 to {MAX_CELLS} are possible")
                })?;
                Ok(None)
            }
            Self::Real { name, low, high, edges, quantiles, missing: _ } => {
                check_name("columns.name", name)?;
                let ascending = edges.iter().all(|edge| edge.is_finite()) && edges.is_sorted_by(|a, b| a < b);
                require(edges.len() < MAX_CELLS && ascending, "columns.edges", || {
                    format!("the edges of {name:?} must be finite, ascending and fewer than {MAX_CELLS}")
                })?;
                let within = quantiles.iter().all(|&quantile| quantile > 0.0 && quantile < 1.0);
                require(quantiles.len() <= MAX_QUANTILES && within, "columns.quantiles", || {
                    format!("the quantiles of {name:?} must be above 0, below 1 and at most {MAX_QUANTILES}")
                })?;
                Range::new("columns", name, *low, *high).map(Some)
            }
        }
    }

    fn quantiles(&self) -> &[f64] {
        match self {
            Self::Real { quantiles, .. } => quantiles,
            Self::Category { .. } => &[],
        }
    }

    /// Whether cells may be empty.
    #[must_use]
    pub fn counts_missing(&self) -> bool {
        match self {
            Self::Real { missing, .. } | Self::Category { missing, .. } => *missing,
        }
    }

    /// Offset of the number of empty cells in a contribution, if they are counted.
    fn missing_offset(&self) -> Option<usize> {
        self.counts_missing().then(|| self.first_values() - 1)
    }

    /// Offset of the first quantile value in a contribution.
    fn first_values(&self) -> usize {
        let figures = match self {
            Self::Real { edges, .. } if edges.is_empty() => MOMENTS,
            Self::Real { edges, .. } => MOMENTS + edges.len() + 1,
            Self::Category { categories, .. } => *categories as usize + 1,
        };
        figures + usize::from(self.counts_missing())
    }
}

impl Procedure for Statistics {
    type State = StatisticsState;

    fn fields(&self) -> Vec<Field> {
        let rows = u64::from(self.spec.max_rows);
        let counts = |len| Field { len, bound: rows };
        let mut fields = vec![counts(1)];
        for column in &self.spec.columns {
            let first = column.first_values();
            match column {
                StatisticSpec::Category { .. } => fields.push(counts(first)),
                StatisticSpec::Real { .. } => {
                    fields.push(Field { len: 3, bound: rows << GRID });
                    fields.push(counts(first - 3));
                }
            }
            fields.push(counts(column.quantiles().len() * QUANTILE));
        }
        fields
    }

    fn rounds(&self) -> u32 {
        let any = self.spec.columns.iter().any(|column| !column.quantiles().is_empty());
        if any { self.spec.quantile_rounds } else { 1 }
    }

    fn done(&self, state: &StatisticsState) -> u32 {
        state.round
    }

    fn initial(&self) -> StatisticsState {
        let column = |(spec, range): (&StatisticSpec, &Option<Range>)| match (spec, range) {
            (StatisticSpec::Real { name, edges, quantiles, .. }, Some(range)) => {
                let quantile = |&of: &f64| Quantile::new(of, *range);
                ColumnStatistics::Real {
                    name: name.clone(),
                    mean: None,
                    variance: None,
                    below: 0,
                    above: 0,
                    histogram: if edges.is_empty() { Vec::new() } else { vec![0; edges.len() + 1] },
                    quantiles: quantiles.iter().map(quantile).collect(),
                    missing: 0,
                }
            }
            (StatisticSpec::Real { name, .. }, None) => {
                ColumnStatistics::Category { name: name.clone(), counts: Vec::new(), other: 0, missing: 0 }
            }
            (StatisticSpec::Category { name, categories, .. }, _) => {
                let counts = vec![0; *categories as usize];
                ColumnStatistics::Category { name: name.clone(), counts, other: 0, missing: 0 }
            }
        };
        let columns = self.spec.columns.iter().zip(&self.ranges).map(column).collect();
        StatisticsState { round: 0, rows: 0, participants: 0, columns, count_noise: None }
    }

    fn check(&self, state: &StatisticsState) -> Result<(), AnalyticsError> {
        sound(state.round <= self.rounds(), "it is past the last round")?;
        sound(state.columns.len() == self.spec.columns.len(), "it has other columns")?;
        for (column, spec) in state.columns.iter().zip(&self.spec.columns) {
            let fits = match (column, spec) {
                (
                    ColumnStatistics::Real { name, mean, variance, histogram, quantiles, .. },
                    StatisticSpec::Real { name: own, edges, quantiles: wanted, .. },
                ) => {
                    let cells = if edges.is_empty() { 0 } else { edges.len() + 1 };
                    let finite = |value: &Option<f64>| value.is_none_or(f64::is_finite);
                    let quantile = |(quantile, &of): (&Quantile, &f64)| quantile.is_sound(of);
                    name == own
                        && histogram.len() == cells
                        && finite(mean)
                        && finite(variance)
                        && quantiles.len() == wanted.len()
                        && quantiles.iter().zip(wanted).all(quantile)
                }
                (
                    ColumnStatistics::Category { name, counts, .. },
                    StatisticSpec::Category { name: own, categories, .. },
                ) => name == own && counts.len() == *categories as usize,
                _ => false,
            };
            sound(fits, "a column is another than the task describes")?;
        }
        Ok(())
    }

    fn private_parts(&self, state: &StatisticsState) -> Option<Vec<Part>> {
        Some(self.parts_with_noise(state))
    }

    fn repair(&self, _state: &StatisticsState, sum: &mut [i64], _noise: &[f64]) {
        self.repair_sums(sum);
    }

    fn advance_noised(
        &self,
        state: &StatisticsState,
        sum: &[i64],
        participants: u32,
        noise: &[f64],
    ) -> Result<Advanced<StatisticsState>, AnalyticsError> {
        let mut next = self.advance(state, sum, participants)?;
        if state.round == 0 {
            next.state.count_noise = noise.first().copied();
        }
        Ok(next)
    }

    fn contribution(&self, state: &StatisticsState, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError> {
        table.check(self.spec.columns.len(), |column| self.spec.columns[column].counts_missing())?;
        let parts: Vec<_> = self.parts().collect();
        for row in table.counted(self.spec.max_rows) {
            out[0] += 1;
            for (column, &value) in table.row(row).iter().enumerate() {
                let (start, spec) = parts[column];
                let out = &mut out[start..];
                if value.is_nan() {
                    spec.missing_offset().into_iter().for_each(|offset| out[offset] += 1);
                    continue;
                }
                match (spec, self.ranges[column], &state.columns[column]) {
                    (StatisticSpec::Real { edges, .. }, Some(range), ColumnStatistics::Real { quantiles, .. }) => {
                        if state.round == 0 {
                            Self::moments(range, edges, value, out);
                        }
                        count_parts(range, value, quantiles, &mut out[spec.first_values()..]);
                    }
                    (StatisticSpec::Category { categories, .. }, ..) if state.round == 0 => {
                        out[category(value, *categories)] += 1;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn advance(
        &self,
        state: &StatisticsState,
        sum: &[i64],
        participants: u32,
    ) -> Result<Advanced<StatisticsState>, AnalyticsError> {
        let rows = count(sum[0])?;
        let mut next = state.clone();
        for (index, (start, spec)) in self.parts().enumerate() {
            let (first, narrowed) = sum[start..].split_at(spec.first_values());
            let (first, empty) = match spec.missing_offset() {
                Some(offset) => (&first[..offset], count(first[offset])?),
                None => (first, 0),
            };
            let present = rows.checked_sub(empty);
            let present = present.ok_or_else(|| AnalyticsError::Sum(format!("{empty} of {rows} cells are empty")))?;
            match (&mut next.columns[index], self.ranges[index]) {
                (
                    ColumnStatistics::Real { mean, variance, below, above, histogram, quantiles, missing, .. },
                    Some(range),
                ) => {
                    if state.round == 0 {
                        *missing = empty;
                    }
                    if state.round == 0 && present > 0 {
                        (*mean, *variance) = moments(range, &first[..3], present);
                        (*below, *above) = (count(first[3])?, count(first[4])?);
                        *histogram = first[MOMENTS..].iter().map(|&cell| count(cell)).collect::<Result<_, _>>()?;
                    }
                    for (quantile, cells) in quantiles.iter_mut().zip(narrowed.chunks_exact(QUANTILE)) {
                        quantile.narrow(range, cells, present);
                    }
                }
                (ColumnStatistics::Category { counts, other, missing, .. }, _) if state.round == 0 => {
                    let cells: Vec<u64> = first.iter().map(|&cell| count(cell)).collect::<Result<_, _>>()?;
                    *other = cells.last().copied().unwrap_or_default();
                    *counts = cells[..cells.len() - 1].to_vec();
                    *missing = empty;
                }
                _ => {}
            }
        }
        if state.round == 0 {
            (next.rows, next.participants) = (rows, participants);
        }
        next.round += 1;
        let metrics = vec![("rows_per_participant".to_owned(), per_participant(rows, participants))];
        Ok(Advanced { state: next, metrics })
    }
}

fn per_participant(rows: u64, participants: u32) -> MetricValue {
    MetricValue { value: rows as f64 / f64::from(participants.max(1)), count: u64::from(participants) }
}

/// Rejects a negative count of rows.
fn count(value: i64) -> Result<u64, AnalyticsError> {
    u64::try_from(value).map_err(|_| AnalyticsError::Sum(format!("a count is {value}")))
}

/// Index of a value's category; the last cell counts values without one.
fn category(value: f64, categories: u32) -> usize {
    if value >= 0.0 && value < f64::from(categories) && value.fract() == 0.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an integer below the categories")]
        let category = value as usize;
        return category;
    }
    categories as usize
}

/// Mean and variance of the values on the grid, rounded once at the end: `n Σu² - (Σu)²` is exact and at least 0.
fn moments(range: Range, sums: &[i64], rows: u64) -> (Option<f64>, Option<f64>) {
    let (n, sum) = (i128::from(rows), i128::from(sums[0]));
    let squares = (i128::from(sums[1]) << GRID) + i128::from(sums[2]);
    let spread = (n * squares - sum * sum).max(0);
    let unit = range.width() / power(GRID);
    let rows = rows as f64;
    let mean = range.low + (sum as f64 / rows) * unit;
    let variance = spread as f64 / rows / rows * unit * unit;
    (Some(mean), Some(variance))
}
