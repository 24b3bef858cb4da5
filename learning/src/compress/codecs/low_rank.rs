//! Each matrix as its product with a random orthonormal basis shared by the whole cohort (Konečný et al. 2016, "low rank": an update `A B`
//! with random `A`; only `B` is sent).
//!
//! A `p × q` matrix, `p` its longer side, is sent as the `rank × q` product with `rank` random directions of its longer side; this is
//! linear in the update, so products add up. Tensors that are not matrices, or too small to gain, are sent whole. A tensor of more than two
//! dimensions is a matrix of its first dimension by all the others. Without error feedback the product is scaled by `p / rank`, which makes
//! the mean unbiased. With error feedback it is not scaled, and the residual waits for another basis.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;

use super::super::error::{CodecError, MAX_RANK};
use crate::parameters::Layout;

/// Stream of a round's seed for drawing bases.
const STREAM: u64 = 2;
/// Attempts to find another independent direction before the basis is left smaller.
const TRIES: u32 = 1000;

#[derive(Clone, Copy, Debug)]
enum Part {
    /// This many values, sent unchanged.
    Whole(usize),
    /// Rows and columns of a matrix.
    Matrix(usize, usize),
}

/// The form in which each tensor is sent.
#[derive(Clone, Debug)]
pub(in crate::compress) struct LowRank {
    parts: Vec<Part>,
    parameters: usize,
    coordinates: usize,
    rank: usize,
    error_feedback: bool,
}

impl LowRank {
    pub(super) fn new(layout: &Layout, rank: u32, error_feedback: bool) -> Result<Self, CodecError> {
        if rank == 0 || rank > MAX_RANK {
            return Err(CodecError::Rank(rank));
        }
        let few = rank as usize;
        let (mut parts, mut coordinates, mut largest) = (Vec::new(), 0, 0);
        for (index, tensor) in layout.tensors().iter().enumerate() {
            let size = layout.range(index).len();
            // At most the tensor's size, which is below 2^28.
            let rows = tensor.shape.first().map_or(1, |&rows| usize::try_from(rows).unwrap_or(size));
            let columns = size / rows;
            let (long, short) = (rows.max(columns), rows.min(columns));
            if short > 1 {
                largest = largest.max(long);
            }
            if short > 1 && few < long {
                parts.push(Part::Matrix(rows, columns));
                coordinates += few * short;
            } else {
                parts.push(Part::Whole(size));
                coordinates += size;
            }
        }
        if coordinates == layout.len() {
            return Err(CodecError::RankTooLarge { rank, largest: largest as u64 });
        }
        Ok(Self { parts, parameters: layout.len(), coordinates, rank: few, error_feedback })
    }

    pub(super) fn coordinates(&self) -> usize {
        self.coordinates
    }

    pub(super) fn project(&self, mut values: &[f64], seed: &[u8; 32]) -> Vec<f64> {
        let mut rng = stream(seed);
        let mut out = vec![0.0; self.coordinates];
        let mut rest = out.as_mut_slice();
        for &part in &self.parts {
            let (tensor, after) = values.split_at(part.size());
            values = after;
            let (product, after) = rest.split_at_mut(part.coordinates(self.rank));
            rest = after;
            match part {
                Part::Whole(_) => product.copy_from_slice(tensor),
                Part::Matrix(rows, columns) => {
                    let basis = basis(rows.max(columns), self.rank, &mut rng);
                    for (vector, product) in basis.iter().zip(product.chunks_exact_mut(rows.min(columns))) {
                        if rows >= columns {
                            // product[j] = sum over i of vector[i] tensor[i][j]
                            for (row, factor) in tensor.chunks_exact(columns).zip(vector) {
                                product.iter_mut().zip(row).for_each(|(sum, value)| *sum += factor * value);
                            }
                        } else {
                            for (row, sum) in tensor.chunks_exact(columns).zip(product) {
                                *sum = row.iter().zip(vector).fold(0.0, |sum, (value, factor)| sum + value * factor);
                            }
                        }
                    }
                }
            }
        }
        out
    }

    pub(super) fn expand(&self, mut coordinates: &[f64], seed: &[u8; 32]) -> Vec<f64> {
        let mut rng = stream(seed);
        let mut out = vec![0.0; self.parameters];
        let mut rest = out.as_mut_slice();
        for &part in &self.parts {
            let (product, after) = coordinates.split_at(part.coordinates(self.rank));
            coordinates = after;
            let (tensor, after) = rest.split_at_mut(part.size());
            rest = after;
            match part {
                Part::Whole(_) => tensor.copy_from_slice(product),
                Part::Matrix(rows, columns) => {
                    let long = rows.max(columns);
                    let scale = if self.error_feedback { 1.0 } else { long as f64 / self.rank as f64 };
                    let basis = basis(long, self.rank, &mut rng);
                    for (vector, product) in basis.iter().zip(product.chunks_exact(rows.min(columns))) {
                        if rows >= columns {
                            for (row, factor) in tensor.chunks_exact_mut(columns).zip(vector) {
                                row.iter_mut().zip(product).for_each(|(sum, value)| *sum += factor * value * scale);
                            }
                        } else {
                            for (row, value) in tensor.chunks_exact_mut(columns).zip(product) {
                                row.iter_mut().zip(vector).for_each(|(sum, factor)| *sum += factor * value * scale);
                            }
                        }
                    }
                }
            }
        }
        out
    }
}

impl Part {
    fn size(self) -> usize {
        match self {
            Self::Whole(size) => size,
            Self::Matrix(rows, columns) => rows * columns,
        }
    }

    fn coordinates(self, rank: usize) -> usize {
        match self {
            Self::Whole(size) => size,
            Self::Matrix(rows, columns) => rank * rows.min(columns),
        }
    }
}

fn stream(seed: &[u8; 32]) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::from_seed(*seed);
    rng.set_stream(STREAM);
    rng
}

/// Orthonormal vectors in random directions: random signs, orthogonalized one after the other. Signs and coordinates
/// are exchangeable, so the projection onto them is `rank / length` times the identity on average.
fn basis(length: usize, rank: usize, rng: &mut ChaCha20Rng) -> Vec<Vec<f64>> {
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(rank);
    let mut tries = 0;
    while basis.len() < rank && tries < TRIES {
        tries += 1;
        let mut vector = Vec::with_capacity(length + 31);
        while vector.len() < length {
            let word = rng.next_u32();
            vector.extend((0..32).map(|bit| if (word >> bit) & 1 == 1 { -1.0 } else { 1.0 }));
        }
        vector.truncate(length);
        // Twice: the second pass removes the first one's rounding errors.
        for _ in 0..2 {
            for earlier in &basis {
                let along = vector.iter().zip(earlier).fold(0.0, |sum, (a, b)| sum + a * b);
                vector.iter_mut().zip(earlier).for_each(|(value, earlier)| *value -= along * earlier);
            }
        }
        let norm = vector.iter().fold(0.0, |sum, value| sum + value * value).sqrt();
        // For a dependent vector only rounding errors remain.
        if norm > 1e-3 {
            vector.iter_mut().for_each(|value| *value /= norm);
            basis.push(vector);
        }
    }
    basis
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::TensorSpec;

    fn layout(shapes: &[&[u64]]) -> Layout {
        let spec = |(i, shape): (usize, &&[u64])| TensorSpec { name: format!("t{i}"), shape: shape.to_vec() };
        Layout::new(shapes.iter().enumerate().map(spec).collect()).unwrap()
    }

    #[test]
    fn bases_are_orthonormal() {
        for (length, rank) in [(2, 1), (3, 2), (5, 4), (784, 16)] {
            let basis = basis(length, rank, &mut stream(&[1; 32]));
            assert_eq!(basis.len(), rank);
            for (i, a) in basis.iter().enumerate() {
                for (j, b) in basis.iter().enumerate() {
                    let product: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                    assert!((product - f64::from(u8::from(i == j))).abs() < 1e-12);
                }
            }
        }
    }

    #[test]
    fn sends_small_tensors_whole_and_refuses_ranks_that_save_nothing() {
        let mlp = layout(&[&[200, 784], &[200], &[10, 200], &[10]]);
        let low_rank = LowRank::new(&mlp, 16, true).unwrap();
        assert_eq!(low_rank.coordinates(), 16 * 200 + 200 + 16 * 10 + 10);
        let error = |layout: &Layout, rank| LowRank::new(layout, rank, true).unwrap_err();
        assert_eq!(error(&mlp, 0), CodecError::Rank(0));
        assert_eq!(error(&mlp, 129), CodecError::Rank(129));
        let small = layout(&[&[10, 20], &[10]]);
        assert_eq!(error(&small, 20), CodecError::RankTooLarge { rank: 20, largest: 20 });
        assert_eq!(error(&layout(&[&[10]]), 1), CodecError::RankTooLarge { rank: 1, largest: 0 });
    }

    #[test]
    fn a_product_spans_what_the_basis_does() {
        for shapes in [&[&[30_u64, 8][..], &[5]], &[&[8, 30], &[5]], &[&[8, 5, 6], &[5]]] {
            let layout = layout(shapes);
            let low_rank = LowRank::new(&layout, 3, true).unwrap();
            let values: Vec<f64> = (0..layout.len()).map(|i| (i as f64).cos()).collect();
            let once = low_rank.expand(&low_rank.project(&values, &[9; 32]), &[9; 32]);
            let twice = low_rank.expand(&low_rank.project(&once, &[9; 32]), &[9; 32]);
            assert!(once.iter().zip(&twice).all(|(a, b)| (a - b).abs() < 1e-12));
            let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
            assert!(norm(&once) < norm(&values));
        }
    }
}
