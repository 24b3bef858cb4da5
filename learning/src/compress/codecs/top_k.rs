//! The `k` coordinates of largest magnitude, in 8 bits each, with their positions.
//!
//! The positions differ between participants and reveal much about their data, so this codec cannot be used with masked
//! sums. It needs error feedback to work well (Stich, Cordonnier, Jaggi 2018): the residual includes the rounding error
//! of the coordinates that were sent.

use super::super::sparse_index::SparseIndex;
use super::super::{CodecError, UploadError};
use super::random_k::checked_k;

/// Largest magnitude of a value on the wire.
const LEVELS: f64 = 127.0;
const SCALE_BYTES: usize = 4;

/// `k` of a model.
#[derive(Clone, Debug)]
pub(in crate::compress) struct TopK {
    k: usize,
    index: SparseIndex,
    error_feedback: bool,
}

impl TopK {
    pub(super) fn new(parameters: usize, k: u64, error_feedback: bool) -> Result<Self, CodecError> {
        let k = checked_k(k, parameters)?;
        Ok(Self { k, index: SparseIndex::new(parameters, k), error_feedback })
    }

    pub(super) fn keeps_residual(&self) -> bool {
        self.error_feedback
    }

    pub(super) fn bytes(&self) -> usize {
        SCALE_BYTES + self.k + self.index.bytes()
    }

    /// Appends scale, values and positions; returns the values as decoded.
    pub(super) fn encode(&self, values: &[f64], range: f64, out: &mut Vec<u8>) -> Vec<f64> {
        let positions = self.largest(values);
        let scale = scale_of(positions.iter().map(|&index| values[index]), range);
        out.extend_from_slice(&scale.to_le_bytes());
        let mut sent = vec![0.0; values.len()];
        for &index in &positions {
            let level = nearest_level(values[index], f64::from(scale));
            out.extend_from_slice(&level.to_le_bytes());
            sent[index] = f64::from(level) * f64::from(scale);
        }
        self.index.encode(&positions, out);
        sent
    }

    /// Ascending positions of the `k` largest magnitudes; ties go to the first.
    fn largest(&self, values: &[f64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        if self.k < order.len() {
            let by_size = |a: &usize, b: &usize| values[*b].abs().total_cmp(&values[*a].abs()).then(a.cmp(b));
            order.select_nth_unstable_by(self.k, by_size);
            order.truncate(self.k);
            order.sort_unstable();
        }
        order
    }

    pub(super) fn expand(&self, body: &[u8], mut put: impl FnMut(usize, f64)) -> Result<(), UploadError> {
        let length = UploadError::Length { expected: self.bytes(), got: body.len() };
        let (scale, rest) = body.split_first_chunk::<SCALE_BYTES>().ok_or(length)?;
        let (levels, positions) = rest.split_at_checked(self.k).ok_or(length)?;
        let scale = read_scale(*scale, 0)?;
        let positions = self.index.decode(positions).ok_or(UploadError::Positions(self.k))?;
        for (index, (&position, &level)) in positions.iter().zip(levels).enumerate() {
            put(position, read_level(level, index)? * scale);
        }
        Ok(())
    }
}

/// The value of one level, such that the largest value has level 127.
#[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
pub(super) fn scale_of(values: impl Iterator<Item = f64>, range: f64) -> f32 {
    let largest = values.fold(0.0, |largest: f64, value| largest.max(value.abs()));
    (largest.min(range) / LEVELS) as f32
}

/// Clamps values beyond the range, and all values to 0 if the scale is 0.
#[expect(clippy::cast_possible_truncation, reason = "clamped to 127 before")]
fn nearest_level(value: f64, scale: f64) -> i8 {
    if scale > 0.0 { (value / scale).round().clamp(-LEVELS, LEVELS) as i8 } else { 0 }
}

/// Reads and checks a scale.
pub(super) fn read_scale(bytes: [u8; 4], index: usize) -> Result<f64, UploadError> {
    let scale = f32::from_le_bytes(bytes);
    if scale.is_finite() && scale >= 0.0 { Ok(f64::from(scale)) } else { Err(UploadError::Scale { index }) }
}

/// Reads and checks a level.
pub(super) fn read_level(byte: u8, index: usize) -> Result<f64, UploadError> {
    match i8::from_le_bytes([byte]) {
        i8::MIN => Err(UploadError::Value { index }),
        level => Ok(f64::from(level)),
    }
}
