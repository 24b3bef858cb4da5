//! Figures of a model of numbers.

use serde::{Deserialize, Serialize};

use super::bins::{BinnedQuantile, SITE_BINS, bin, groups, quantiles};
use super::classes::CalibrationGroup;
use crate::analytics::error::{AnalyticsError, counts};
use crate::analytics::private::{Part, floor};
use crate::analytics::sum_codec::Field;
use crate::analytics::table::{Range, Table, power, round};
use crate::metrics::MetricValue;

/// Resolution, in bits, of the grid over the range of targets.
const GRID: u32 = 30;
/// Resolution, in bits, of the grid for sums by bin.
const COARSE: u32 = 16;
/// Quantiles of the absolute error.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 0.95];

/// Figures over all rows, in the unit of the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberFigures {
    /// Root of the mean squared error. Errors and targets are clipped to the range of the target.
    pub rmse: f64,
    /// Mean absolute error.
    pub mae: f64,
    /// Mean of prediction less target.
    pub bias: f64,
    /// 1 less the squared error's share of the targets' squared distance from their mean. `None` if all targets are equal.
    pub r2: Option<f64>,
    /// Rows whose error or target is outside the range, and which were clipped.
    pub clipped: u64,
    /// Quantiles of the absolute error.
    pub errors: Vec<BinnedQuantile>,
    /// Rows by their prediction; groups below `min_count` are left out.
    pub calibration: Vec<CalibrationGroup>,
}

/// The contribution of a model of numbers: errors, squared errors in two halves, signed errors, targets, squared targets in
/// two halves, clipped rows, rows by bin of error, rows by bin of prediction, and sums of predictions and targets by that.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    range: Range,
    bins: usize,
}

/// Number of values before those by bin.
const SUMS: usize = 8;
const SIGNED: usize = 3;
const CLIPPED: usize = 7;

impl Numbers {
    pub(super) fn new(low: f64, high: f64, bins: u32) -> Result<Self, AnalyticsError> {
        Ok(Self { range: Range::new("target", "target", low, high)?, bins: bins as usize })
    }

    pub(super) fn fields(&self, rows: u64) -> [Field; 3] {
        [
            Field { len: CLIPPED, bound: rows << GRID },
            Field { len: 1 + 2 * self.bins, bound: rows },
            Field { len: 2 * self.bins, bound: rows << COARSE },
        ]
    }

    pub(super) fn private_parts(&self, rows: f64) -> Vec<Part> {
        let (sums, unused) = (Part::new(1, rows * power(GRID), 1.0), Part::unused(1));
        // The lower half of a square is far below the noise.
        let mut parts = vec![sums, sums, unused, sums, sums, sums, unused, Part::new(1, rows, 0.25)];
        parts.extend([Part::new(self.bins, rows, 1.0), Part::new(self.bins, rows, 1.0)]);
        parts
            .extend([Part::new(self.bins, rows * power(COARSE), 1.0), Part::new(self.bins, rows * power(COARSE), 1.0)]);
        parts
    }

    /// Moves estimates with noise to sums that rows can have. `sum` begins with the number of rows.
    pub(super) fn repair(&self, sum: &mut [i64]) {
        floor(&mut sum[..=SIGNED]);
        floor(&mut sum[SIGNED + 2..]);
        let most = sum[0].saturating_mul(1 << GRID);
        sum[1..=CLIPPED].iter_mut().for_each(|value| *value = (*value).clamp(-most, most));
    }

    pub(super) fn check_table(&self, table: &Table) -> Result<(), AnalyticsError> {
        table.check(1, |_| false)?;
        table.required_targets().map(drop)
    }

    /// An edge of the bins of errors, in the unit of the target: bins are finer near 0.
    pub(super) fn error_at(&self, edge: f64) -> f64 {
        edge * edge * self.range.width()
    }

    /// Counts the chosen rows; returns the bin of the root of the site's mean squared error.
    pub(super) fn count(&self, table: &Table, chosen: &[usize], out: &mut [i64]) -> usize {
        let (sums, rest) = out.split_at_mut(SUMS);
        let (by_error, rest) = rest.split_at_mut(self.bins);
        let (by_prediction, rest) = rest.split_at_mut(self.bins);
        let (predictions, targets) = rest.split_at_mut(self.bins);
        let mut squares = 0.0;
        for &row in chosen {
            let (predicted, target) = (table.row(row)[0], table.targets()[row]);
            let error = (predicted - target) / self.range.width();
            let size = error.abs().min(1.0);
            let is_clipped = error.abs() > 1.0 || !(self.range.low..=self.range.high).contains(&target);
            add_moments(round(size * power(GRID)), &mut sums[..SIGNED]);
            sums[SIGNED] += round(error.clamp(-1.0, 1.0) * power(GRID));
            add_moments(self.range.grid(target, GRID), &mut sums[SIGNED + 1..CLIPPED]);
            sums[CLIPPED] += i64::from(is_clipped);
            by_error[bin(size.sqrt(), self.bins)] += 1;
            let at = bin(self.range.unit(predicted), self.bins);
            by_prediction[at] += 1;
            predictions[at] += self.range.grid(predicted, COARSE);
            targets[at] += self.range.grid(target, COARSE);
            squares += size * size;
        }
        bin((squares / chosen.len().max(1) as f64).sqrt().sqrt(), SITE_BINS)
    }

    /// The figures of at least one row. `sum` begins with the number of rows.
    pub(super) fn figures(&self, rows: u64, sum: &[i64], least: u64) -> Result<NumberFigures, AnalyticsError> {
        let (sums, binned) = sum[1..].split_at(SUMS);
        let bias = sums[SIGNED];
        let binned = counts(binned)?;
        let (by_error, rest) = binned.split_at(self.bins);
        let (by_prediction, rest) = rest.split_at(self.bins);
        let (predictions, targets) = rest.split_at(self.bins);
        let (all, unit) = (rows as f64, self.range.width() / power(GRID));
        let of_errors = counts(&sums[..SIGNED])?;
        let of_targets = counts(&sums[SIGNED + 1..CLIPPED])?;
        let squares = |of: &[u64]| (u128::from(of[1]) << GRID) + u128::from(of[2]);
        let (error_squares, target) = (squares(&of_errors), u128::from(of_targets[0]));
        let spread = (u128::from(rows) * squares(&of_targets)).saturating_sub(target * target);
        let spread = spread as f64 / all;
        Ok(NumberFigures {
            rmse: (error_squares as f64 / all).sqrt() * unit,
            mae: of_errors[0] as f64 / all * unit,
            bias: bias as f64 / all * unit,
            r2: (spread > 0.0).then(|| 1.0 - error_squares as f64 / spread),
            clipped: counts(&sums[CLIPPED..])?[0],
            errors: quantiles(by_error, &SHARES, |edge| self.error_at(edge)),
            calibration: self.calibration(by_prediction, predictions, targets, least),
        })
    }

    fn calibration(&self, rows: &[u64], predictions: &[u64], targets: &[u64], least: u64) -> Vec<CalibrationGroup> {
        let edge = |at: usize| self.range.low + self.range.width() * at as f64 / self.bins as f64;
        let mut found = Vec::new();
        for range in groups(self.bins) {
            let count: u64 = rows[range.clone()].iter().sum();
            if count < least.max(1) {
                continue;
            }
            let mean =
                |sums: &[u64]| self.range.at(sums[range.clone()].iter().sum::<u64>() as f64 / count as f64, COARSE);
            found.push(CalibrationGroup {
                low: edge(range.start),
                high: edge(range.end),
                rows: count,
                predicted: mean(predictions),
                observed: mean(targets),
            });
        }
        found
    }
}

/// Adds a grid point, and its square in two halves.
fn add_moments(grid: i64, out: &mut [i64]) {
    let square = grid * grid;
    out[0] += grid;
    out[1] += square >> GRID;
    out[2] += square & ((1 << GRID) - 1);
}

impl NumberFigures {
    pub(super) fn is_sound(&self) -> bool {
        let Self { rmse, mae, bias, r2, clipped: _, errors, calibration } = self;
        [rmse, mae, bias].iter().all(|value| value.is_finite())
            && r2.is_none_or(f64::is_finite)
            && errors.iter().all(BinnedQuantile::is_sound)
            && calibration.iter().all(CalibrationGroup::is_sound)
    }

    pub(super) fn metrics(&self, rows: u64) -> Vec<(String, MetricValue)> {
        let named = [("rmse", Some(self.rmse)), ("mae", Some(self.mae)), ("bias", Some(self.bias)), ("r2", self.r2)];
        let metric =
            |(name, value): (&str, Option<f64>)| Some((name.to_owned(), MetricValue { value: value?, count: rows }));
        named.into_iter().filter_map(metric).collect()
    }
}
