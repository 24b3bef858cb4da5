//! 8 bits per coordinate and one scale per tensor: a quarter of the bytes, with little error.
//!
//! Scales depend on the update, so updates must be expanded before they can be added, and masks would hide the scales.
//! Rounding is stochastic, so the mean is unbiased.

use rand::Rng;

use super::super::UploadError;
use super::top_k::{read_level, read_scale, scale_of};
use crate::parameters::Layout;

const SCALE_BYTES: usize = 4;

/// Where each tensor of a model ends.
#[derive(Clone, Debug)]
pub(in crate::compress) struct Int8 {
    ends: Vec<usize>,
}

impl Int8 {
    pub(super) fn new(layout: &Layout) -> Self {
        Self { ends: (0..layout.tensors().len()).map(|index| layout.range(index).end).collect() }
    }

    fn parameters(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> usize {
        SCALE_BYTES * self.ends.len() + self.parameters()
    }

    fn tensors(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends.iter().copied()).map(|(start, end)| start..end)
    }

    /// Appends scales and values; returns the values as decoded.
    pub(super) fn encode(&self, values: &[f64], range: f64, out: &mut Vec<u8>, rng: &mut impl Rng) -> Vec<f64> {
        let scales: Vec<f32> = self.tensors().map(|tensor| scale_of(values[tensor].iter().copied(), range)).collect();
        scales.iter().for_each(|scale| out.extend_from_slice(&scale.to_le_bytes()));
        let mut sent = Vec::with_capacity(values.len());
        for (tensor, scale) in self.tensors().zip(scales) {
            for &value in &values[tensor] {
                let level = stochastic_level(value, f64::from(scale), rng.next_u32());
                out.extend_from_slice(&level.to_le_bytes());
                sent.push(f64::from(level) * f64::from(scale));
            }
        }
        sent
    }

    pub(super) fn expand(&self, body: &[u8], mut put: impl FnMut(usize, f64)) -> Result<(), UploadError> {
        let length = UploadError::Length { expected: self.bytes(), got: body.len() };
        let (scales, levels) = body.split_at_checked(SCALE_BYTES * self.ends.len()).ok_or(length)?;
        if levels.len() != self.parameters() {
            return Err(length);
        }
        for (tensor, (range, scale)) in self.tensors().zip(scales.as_chunks::<SCALE_BYTES>().0).enumerate() {
            let scale = read_scale(*scale, tensor)?;
            for index in range {
                put(index, read_level(levels[index], index)? * scale);
            }
        }
        Ok(())
    }
}

/// Rounds up with the probability of the fraction, to 2^-32.
#[expect(clippy::cast_possible_truncation, reason = "clamped to 127 before")]
fn stochastic_level(value: f64, scale: f64, noise: u32) -> i8 {
    if scale > 0.0 {
        let exact = (value / scale).clamp(-127.0, 127.0);
        (exact + f64::from(noise) / 4_294_967_296.0).floor().clamp(-127.0, 127.0) as i8
    } else {
        0
    }
}
