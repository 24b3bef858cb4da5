//! Statistics with noise.

use super::quantiles::{GRID, QUANTILE};
use super::{MOMENTS, StatisticSpec, Statistics, StatisticsState};
use crate::analytics::private::{Part, floor};
use crate::analytics::table::power;

/// Accuracy of the numbers of clipped values under noise, relative to other counts.
const CLIPPED_SHARE: f64 = 0.25;

impl Statistics {
    /// The parts of a contribution to this state.
    pub(super) fn parts_with_noise(&self, state: &StatisticsState) -> Vec<Part> {
        let (rows, is_first) = (f64::from(self.spec.max_rows), state.round == 0);
        let counts = |len: usize, is_used: bool| match is_used && len > 0 {
            true => Part::new(len, rows, 1.0),
            false => Part::unused(len),
        };
        let mut parts = vec![counts(1, true)];
        for column in &self.spec.columns {
            let (first, missing) = (column.first_values(), usize::from(column.counts_missing()));
            match column {
                StatisticSpec::Category { .. } => parts.push(counts(first, is_first || missing > 0)),
                StatisticSpec::Real { .. } if is_first => {
                    let sums = Part::new(1, rows * power(GRID), 1.0);
                    // The lower half of a square is far below the noise.
                    parts.extend([sums, sums, Part::unused(1), Part::new(2, rows, CLIPPED_SHARE)]);
                    parts.push(counts(first - MOMENTS, true));
                }
                StatisticSpec::Real { .. } => {
                    parts.extend([Part::unused(first - missing), counts(missing, true)]);
                }
            }
            parts.extend(column.quantiles().iter().map(|_| counts(QUANTILE, true)));
        }
        parts
    }

    /// Moves estimates with noise to the nearest sums that rows can have.
    pub(super) fn repair_sums(&self, sum: &mut [i64]) {
        floor(&mut sum[..1]);
        let rows = sum[0];
        for (start, spec) in self.parts() {
            let end = start + spec.first_values() + spec.quantiles().len() * QUANTILE;
            let (counts, missing) = (&mut sum[start..end], spec.missing_offset());
            floor(counts);
            let missing = missing.map_or(0, |offset| {
                counts[offset] = counts[offset].min(rows);
                counts[offset]
            });
            if let StatisticSpec::Real { .. } = spec {
                let most = (rows - missing).saturating_mul(1 << GRID);
                counts[..3].iter_mut().for_each(|sum| *sum = (*sum).min(most));
            }
        }
    }
}
