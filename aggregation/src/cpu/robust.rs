//! Robust statistics on the processor's threads.

use std::ops::Range;

use rayon::prelude::*;

use super::panel::Panel;
use super::{CpuAggregator, gram, select};
use crate::AggregationError;
use crate::robust::{Inputs, RobustStatistics, mirror};

/// Number of columns per thread and step, so that they and their working memory fit a second-level cache.
const COLUMNS: usize = 1 << 10;

impl RobustStatistics for CpuAggregator {
    fn median(&self, inputs: Inputs<'_>) -> Result<Vec<i32>, AggregationError> {
        let kernel = self.kernel;
        self.by_columns(inputs, |tiles, vectors, out| kernel.median(tiles, vectors, out))
    }

    fn trimmed_mean(&self, inputs: Inputs<'_>, trim: usize) -> Result<Vec<i32>, AggregationError> {
        inputs.check_trim(trim)?;
        let kernel = self.kernel;
        self.by_columns(inputs, |tiles, vectors, out| kernel.trimmed_sum(tiles, vectors, trim, out))
    }

    fn gram(&self, inputs: Inputs<'_>) -> Result<Vec<i64>, AggregationError> {
        let kernel = self.kernel;
        let pairs = inputs.vectors().len().pow(2);
        let panels: Vec<Range<usize>> = (0..inputs.words())
            .step_by(gram::PANEL)
            .map(|start| start..inputs.words().min(start + gram::PANEL))
            .collect();
        let add = |(mut panel, mut sums): (Panel, Vec<i64>), columns: &Range<usize>| {
            panel.load(inputs, columns.clone());
            panel.add_products(kernel, &mut sums);
            (panel, sums)
        };
        let start = || (Panel::new(inputs.vectors().len()), vec![0; pairs]);
        let mut sums = match &self.pool {
            None => panels.iter().fold(start(), add).1,
            Some(pool) => pool.install(|| {
                let partial = panels.par_iter().with_min_len(8).fold(start, add).map(|(_, sums)| sums);
                partial.reduce(
                    || vec![0; pairs],
                    |mut left, right| {
                        left.iter_mut().zip(&right).for_each(|(left, right)| *left += right);
                        left
                    },
                )
            }),
        };
        mirror(&mut sums, inputs.vectors().len());
        Ok(sums)
    }
}

impl CpuAggregator {
    /// Runs `work` on groups of tiles of columns, on all threads.
    fn by_columns(
        &self,
        inputs: Inputs<'_>,
        work: impl Fn(&[select::Row], usize, &mut [i32]) + Send + Sync,
    ) -> Result<Vec<i32>, AggregationError> {
        let (words, vectors) = (inputs.words(), inputs.vectors().len());
        let mut out = Vec::new();
        out.try_reserve_exact(words).map_err(|_| AggregationError::OutOfMemory { bytes: 4 * words })?;
        out.resize(words, 0);
        let one = |tiles: &mut Vec<select::Row>, index: usize, out: &mut [i32]| {
            let start = index * COLUMNS;
            select::load(inputs, start..start + out.len(), tiles);
            work(tiles, vectors, out);
        };
        match &self.pool {
            None => {
                let mut tiles = Vec::new();
                out.chunks_mut(COLUMNS).enumerate().for_each(|(index, out)| one(&mut tiles, index, out));
            }
            Some(pool) => pool.install(|| {
                let pieces = out.par_chunks_mut(COLUMNS).enumerate();
                pieces.for_each_init(Vec::new, |tiles, (index, out)| one(tiles, index, out));
            }),
        }
        Ok(out)
    }
}
