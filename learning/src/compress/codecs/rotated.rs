//! Few bits per coordinate after a randomised Hadamard rotation, of all rotated coordinates or of a random part of them.
//!
//! Rotated coordinates are alike and close to normal, so one range fits all and stochastic rounding to `2^bits` levels adds the least
//! possible error (Suresh et al. 2017, section 3). Coordinates are dealt to the blocks in turn, so that every block holds a share of each
//! layer and blocks have nearly equal norms. Dropped coordinates cost `1 / keep - 1` of the squared norm and save the most where cohorts
//! are large, as each coordinate of a sum needs `log2(n (2^bits - 1) + 1)` bits.

use super::super::CodecError;
use super::super::sample::Sample;
use crate::privacy::rotation::{Signs, hadamard};

/// Maximum block size, and maximum padding of a model.
const BLOCK: usize = 1024;
/// Minimum block size, unless the model is smaller.
const BLOCK_MIN: usize = 64;

/// The rotation of a model.
#[derive(Clone, Debug)]
pub(in crate::compress) struct Rotated {
    parameters: usize,
    block: usize,
    blocks: usize,
    kept: usize,
}

impl Rotated {
    pub(super) fn new(parameters: usize, keep: f64) -> Result<Self, CodecError> {
        if !(keep > 0.0 && keep <= 1.0) {
            return Err(CodecError::Keep(keep));
        }
        let whole = parameters.next_power_of_two();
        let block = (whole / 16).clamp(BLOCK_MIN, BLOCK).min(whole);
        let blocks = parameters.div_ceil(block);
        let rotated = block * blocks;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^28, positive")]
        let kept = ((rotated as f64 * keep).ceil() as usize).clamp(1, rotated);
        Ok(Self { parameters, block, blocks, kept })
    }

    pub(super) fn coordinates(&self) -> usize {
        self.kept
    }

    fn rotated(&self) -> usize {
        self.block * self.blocks
    }

    /// Range in standard deviations of a coordinate of the longest update, chosen such that clamping costs less than
    /// rounding; smaller if levels are few.
    pub(super) fn range(&self, clip_norm: f32, bits: u8) -> f64 {
        let deviations = match bits {
            1 => 2.0,
            2 => 2.5,
            3 => 3.0,
            4 => 3.5,
            _ => 4.5,
        };
        deviations * f64::from(clip_norm) / (self.rotated() as f64).sqrt()
    }

    pub(super) fn project(&self, values: &[f64], seed: &[u8; 32]) -> Vec<f64> {
        let mut rotated = vec![0.0; self.rotated()];
        for (index, &value) in values.iter().enumerate() {
            rotated[self.place(index)] = value;
        }
        let mut signs = Signs::new(seed);
        for block in rotated.chunks_exact_mut(self.block) {
            signs.apply(block);
            hadamard(block);
        }
        if self.kept == rotated.len() {
            return rotated;
        }
        Sample::new(seed, rotated.len(), self.kept).map(|index| rotated[index]).collect()
    }

    /// Scales the kept coordinates up for those dropped, so that the estimate is unbiased.
    pub(super) fn expand(&self, coordinates: &[f64], seed: &[u8; 32]) -> Vec<f64> {
        let mut rotated = vec![0.0; self.rotated()];
        let scale = rotated.len() as f64 / self.kept as f64;
        for (index, &value) in Sample::new(seed, rotated.len(), self.kept).zip(coordinates) {
            rotated[index] = value * scale;
        }
        let mut signs = Signs::new(seed);
        for block in rotated.chunks_exact_mut(self.block) {
            hadamard(block);
            signs.apply(block);
        }
        (0..self.parameters).map(|index| rotated[self.place(index)]).collect()
    }

    fn place(&self, index: usize) -> usize {
        index % self.blocks * self.block + index / self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_norms_and_comes_back() {
        for parameters in [1, 3, 1024, 1500, 7850] {
            let rotated = Rotated::new(parameters, 1.0).unwrap();
            let values: Vec<f64> = (0..parameters).map(|i| (i as f64 + 1.0).sin()).collect();
            let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
            let projected = rotated.project(&values, &[5; 32]);
            assert!((norm(&projected) - norm(&values)).abs() < 1e-9 * norm(&values), "{parameters}");
            let back = rotated.expand(&projected, &[5; 32]);
            assert!(back.iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-12), "{parameters}");
        }
        for bad in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            assert!(matches!(Rotated::new(10, bad), Err(CodecError::Keep(_))), "{bad}");
        }
    }

    #[test]
    fn blocks_share_what_one_layer_holds() {
        let rotated = Rotated::new(7850, 1.0).unwrap();
        // All of it in the first tenth.
        let values: Vec<f64> = (0..7850).map(|i| if i < 785 { 1.0 } else { 0.0 }).collect();
        let projected = rotated.project(&values, &[6; 32]);
        for block in projected.chunks_exact(512) {
            let square: f64 = block.iter().map(|v| v * v).sum();
            assert!((48.0..51.0).contains(&square), "{square}");
        }
    }
}
