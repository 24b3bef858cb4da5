//! `k` coordinates, drawn anew in each round from a seed shared by the whole cohort. All participants send the same coordinates, so they
//! add up and need no positions (Konečný et al. 2016, "random mask").
//!
//! Without error feedback the sent coordinates are scaled by `d / k`. This makes the mean unbiased and adds an error of `d / k - 1` times
//! its squared norm. With error feedback they are not scaled, and the others remain in the residual.

use super::super::CodecError;
use super::super::sample::Sample;

/// A draw of coordinates.
#[derive(Clone, Debug)]
pub(in crate::compress) struct RandomK {
    parameters: usize,
    k: usize,
    scale: f64,
}

/// Checks that `k` is 1 to the number of parameters.
pub(super) fn checked_k(k: u64, parameters: usize) -> Result<usize, CodecError> {
    match usize::try_from(k) {
        Ok(few) if (1..=parameters).contains(&few) => Ok(few),
        _ => Err(CodecError::K { k, parameters }),
    }
}

impl RandomK {
    pub(super) fn new(parameters: usize, k: u64, error_feedback: bool) -> Result<Self, CodecError> {
        let k = checked_k(k, parameters)?;
        let scale = if error_feedback { 1.0 } else { parameters as f64 / k as f64 };
        Ok(Self { parameters, k, scale })
    }

    pub(super) fn coordinates(&self) -> usize {
        self.k
    }

    pub(super) fn project(&self, values: &[f64], seed: &[u8; 32]) -> Vec<f64> {
        Sample::new(seed, self.parameters, self.k).map(|index| values[index]).collect()
    }

    pub(super) fn expand(&self, coordinates: &[f64], seed: &[u8; 32]) -> Vec<f64> {
        let mut values = vec![0.0; self.parameters];
        for (index, &value) in Sample::new(seed, self.parameters, self.k).zip(coordinates) {
            values[index] = value * self.scale;
        }
        values
    }
}
