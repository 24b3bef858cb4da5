//! Robust statistics on one or several equal devices: groups of columns are dealt to them in turn, as rows with two
//! words in each `u32`.
//!
//! Two groups of columns are in progress on each device, so that the upload of one overlaps with the other's kernels.

use std::ops::Range;

use super::aggregator::GpuAggregator;
use super::rows::{Products, Rows, TILE, small};
use super::{Gpu, GpuError};
use crate::AggregationError;
use crate::robust::{Inputs, RobustStatistics, mirror};

/// Groups of columns in progress on a device.
const UNDER_WAY: usize = 2;
/// Smallest group to try if device memory is short.
const FEWEST_COLUMNS: usize = 16;
/// Maximum number of columns in a group: with one thread per two columns, within the launch limit of every device.
const MOST_COLUMNS: usize = 1 << 22;
/// Maximum number of parts: the limit of a launch's second dimension on every device.
const MOST_PARTS: u32 = 65_535;
/// Approximate cost of searching a byte of a row bit by bit, in bytes of keystream.
const SEARCH_COST: u64 = 4;
/// Approximate number of products of words per byte of keystream at equal cost.
const PRODUCTS_OF_A_BYTE: u64 = 2;

impl<G: Gpu> RobustStatistics for GpuAggregator<G> {
    /// Trims the smaller half and the larger half, which leaves the middle value or the two in the middle.
    fn median(&self, inputs: Inputs<'_>) -> Result<Vec<i32>, AggregationError> {
        let vectors = inputs.vectors().len();
        let mut medians = self.trimmed_mean(inputs, (vectors - 1) / 2)?;
        if !vectors.is_multiple_of(2) {
            medians.iter_mut().for_each(|median| *median *= 2);
        }
        Ok(medians)
    }

    fn trimmed_mean(&self, inputs: Inputs<'_>, trim: usize) -> Result<Vec<i32>, AggregationError> {
        inputs.check_trim(trim)?;
        let mut out = Vec::new();
        let bytes = 4 * inputs.words();
        out.try_reserve_exact(inputs.words()).map_err(|_| AggregationError::OutOfMemory { bytes })?;
        self.by_columns(inputs, |groups| {
            let sums = self.trimmed_sums(inputs, groups, small(trim))?;
            out.extend(sums.into_iter().map(u32::cast_signed));
            Ok(())
        })?;
        Ok(out)
    }

    fn gram(&self, inputs: Inputs<'_>) -> Result<Vec<i64>, AggregationError> {
        let vectors = inputs.vectors().len();
        let mut products = vec![0; vectors * vectors];
        // The number of vectors with products that fit one piece of memory.
        let piece = self.gpus.iter().map(|gpu| gpu.limits().piece_words).min().unwrap_or(0);
        let tile = TILE as usize;
        let band = (piece / (2 * vectors) / tile * tile).max(tile);
        let sums = |gpu: &G| {
            let bands = (0..vectors).step_by(band);
            bands.map(|first| gpu.zeros(2 * vectors * band.min(vectors - first))).collect::<Result<Vec<_>, _>>()
        };
        let sums: Result<Vec<_>, _> = self.gpus.iter().map(sums).collect();
        let mut sums = sums.map_err(|error| error.of(&self.name, 8 * vectors * vectors))?;
        self.by_columns(inputs, |groups| self.add_products(inputs, groups, &mut sums, band))?;
        for (gpu, sums) in self.gpus.iter().zip(&mut sums) {
            for (sums, products) in sums.iter_mut().zip(products.chunks_mut(band * vectors)) {
                let mut halves = vec![0; 2 * products.len()];
                gpu.read(sums, &mut halves).map_err(|error| error.of(&self.name, 4 * halves.len()))?;
                for (product, [low, high]) in products.iter_mut().zip(halves.as_chunks().0) {
                    *product += (u64::from(*high) << 32 | u64::from(*low)).cast_signed();
                }
            }
        }
        mirror(&mut products, vectors);
        Ok(products)
    }
}

impl<G: Gpu> GpuAggregator<G> {
    /// Number of columns in a group: they fit one piece of memory, and a search through them fits one launch.
    fn columns(&self, inputs: Inputs<'_>) -> usize {
        let vectors = inputs.vectors().len();
        let fitting = |gpu: &G| {
            let limits = gpu.limits();
            let timely = usize::try_from(limits.launch_bytes / SEARCH_COST).unwrap_or(usize::MAX);
            (2 * limits.piece_words / vectors.max(2)).min(timely / (2 * vectors))
        };
        let most = self.gpus.iter().map(fitting).min().unwrap_or(0).min(MOST_COLUMNS);
        let share = inputs.words().div_ceil(UNDER_WAY * self.gpus.len()).next_multiple_of(FEWEST_COLUMNS);
        (most / FEWEST_COLUMNS * FEWEST_COLUMNS).clamp(FEWEST_COLUMNS, share)
    }

    /// Runs `work` on groups of columns, as many in progress as allowed. If memory runs out, retries with fewer
    /// columns; a failed attempt must leave no effect.
    fn by_columns(
        &self,
        inputs: Inputs<'_>,
        mut work: impl FnMut(&[Range<usize>]) -> Result<(), GpuError>,
    ) -> Result<(), AggregationError> {
        let (mut columns, mut done) = (self.columns(inputs), 0);
        while done < inputs.words() {
            let end = inputs.words().min(done + columns * UNDER_WAY * self.gpus.len());
            let groups: Vec<_> = (done..end).step_by(columns).map(|start| start..end.min(start + columns)).collect();
            match work(&groups) {
                Ok(()) => done = end,
                Err(GpuError::OutOfMemory) if columns > FEWEST_COLUMNS => {
                    columns = (columns / 2).next_multiple_of(FEWEST_COLUMNS);
                    tracing::warn!(device = &*self.name, columns, "out of device memory: going on with less");
                }
                Err(error) => return Err(error.of(&self.name, 2 * columns * inputs.vectors().len())),
            }
        }
        Ok(())
    }

    /// The columns of a group, in their own memory.
    fn loaded(gpu: &G, inputs: Inputs<'_>, columns: &Range<usize>) -> Result<(Rows, G::Memory), GpuError> {
        let rows = Rows::new(inputs, columns);
        let mut memory = gpu.zeros(rows.words())?;
        gpu.write(&mut memory, rows.words(), |at, place| fill_rows(inputs, columns, at, place))?;
        Ok((rows, memory))
    }

    fn trimmed_sums(&self, inputs: Inputs<'_>, groups: &[Range<usize>], trim: u32) -> Result<Vec<u32>, GpuError> {
        let mut held = Vec::with_capacity(groups.len());
        for (columns, gpu) in groups.iter().zip(self.gpus.iter().cycle()) {
            let (rows, memory) = Self::loaded(gpu, inputs, columns)?;
            let mut out = gpu.zeros(2 * rows.width as usize)?;
            gpu.trimmed_sum(&memory, rows, trim, &mut out)?;
            held.push((gpu, columns.len(), out, memory));
        }
        let mut sums = vec![0; groups.iter().map(ExactSizeIterator::len).sum()];
        let mut rest = &mut sums[..];
        for (gpu, columns, mut out, _) in held {
            let (here, others) = rest.split_at_mut(columns);
            gpu.read(&mut out, here)?;
            rest = others;
        }
        Ok(sums)
    }

    /// Adds only after allocating memory for all groups.
    fn add_products(
        &self,
        inputs: Inputs<'_>,
        groups: &[Range<usize>],
        sums: &mut [Vec<G::Memory>],
        band: usize,
    ) -> Result<(), GpuError> {
        let mut held = Vec::with_capacity(groups.len());
        for (columns, gpu) in groups.iter().zip(self.gpus.iter().cycle()) {
            held.push(Self::loaded(gpu, inputs, columns)?);
        }
        for (index, (rows, memory)) in held.iter().enumerate() {
            let device = index % self.gpus.len();
            let gpu = &self.gpus[device];
            for (number, sums) in sums[device].iter_mut().enumerate() {
                for products in products(*rows, number * band, band, gpu.limits().launch_bytes) {
                    // After any failure, a retry would add some products twice.
                    gpu.gram(memory, &products, sums).map_err(|error| GpuError::Failed(error.to_string()))?;
                }
            }
        }
        Ok(())
    }
}

/// The launches multiplying `band` vectors from `first` on, a multiple of [`TILE`], with all vectors from their tile on.
fn products(rows: Rows, first: usize, band: usize, launch_bytes: u64) -> Vec<Products> {
    let first_row = small(first);
    let end = rows.vectors.min(small(first + band)).div_ceil(TILE);
    let of_a_tile = 2 * u64::from(rows.width) * u64::from(rows.vectors) * u64::from(TILE);
    let timely = launch_bytes.saturating_mul(PRODUCTS_OF_A_BYTE) / of_a_tile.max(1);
    let at_once = u32::try_from(timely).unwrap_or(u32::MAX).clamp(1, MOST_PARTS / rows.tiles());
    (first_row / TILE..end)
        .step_by(at_once as usize)
        .map(|start| Products { rows, tiles: start..end.min(start + at_once), first_row })
        .collect()
}

/// Writes the rows' words from index `at` on into `place`.
fn fill_rows(inputs: Inputs<'_>, columns: &Range<usize>, mut at: usize, mut place: &mut [u32]) {
    let width = columns.len().div_ceil(2);
    while !place.is_empty() {
        let (row, first) = (at / width, at % width);
        let (here, others) = place.split_at_mut(place.len().min(width - first));
        let words = &inputs.vectors()[row][columns.clone()][2 * first..];
        let (pairs, rest) = words.as_chunks::<2>();
        for (place, [low, high]) in here.iter_mut().zip(pairs) {
            *place = u32::from(low.cast_unsigned()) | u32::from(high.cast_unsigned()) << 16;
        }
        if let (Some(place), [word]) = (here.get_mut(pairs.len()), rest) {
            *place = word.cast_unsigned().into();
        }
        at += here.len();
        place = others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_is_launched_once_and_no_launch_has_too_many_parts_or_products() {
        for vectors in [1, 4, 5, 100, 1000, 4096] {
            for width in [1, 500, 8192] {
                let rows = Rows { vectors, width };
                let band = 400;
                for launch_bytes in [1 << 20, 1 << 26, u64::MAX] {
                    let launches: Vec<_> = (0..vectors as usize)
                        .step_by(band)
                        .flat_map(|first| products(rows, first, band, launch_bytes))
                        .collect();
                    let tiles: Vec<u32> = launches.iter().flat_map(|launch| launch.tiles.clone()).collect();
                    assert_eq!(tiles, (0..rows.tiles()).collect::<Vec<_>>(), "{vectors} vectors");
                    for launch in launches {
                        assert!(launch.parts() <= MOST_PARTS && launch.words() <= 2 * band * vectors as usize);
                        let of_a_launch = 32 * u64::from(width) * u64::from(launch.parts());
                        assert!(launch.tiles.len() == 1 || of_a_launch / 2 <= launch_bytes.saturating_mul(2));
                    }
                }
            }
        }
    }

    #[test]
    fn rows_are_filled_in_pieces_of_any_length() {
        let vectors: [&[i16]; 2] = [&[9, 1, -1, 3, 4, 5], &[9, 11, 12, 13, 14, -15]];
        let inputs = Inputs::new(&vectors).unwrap();
        let expected = [0xffff_0001, 0x0004_0003, 5, 0x000c_000b, 0x000e_000d, 0xfff1];
        for piece in 1..=6 {
            let mut words = vec![7; 6];
            for (index, place) in words.chunks_mut(piece).enumerate() {
                fill_rows(inputs, &(1..6), index * piece, place);
            }
            assert_eq!(words, expected, "pieces of {piece}");
        }
    }
}
