//! Inputs of encoders and results of decoders.

use super::residual::Residual;
use crate::clip;
use crate::metrics::MetricValue;
use crate::parameters::{WrongLength, first_not_finite};
use crate::quantize::{EncodeError, MeanUpdate, QuantizationParams};
use crate::update::Update;

/// The distortion by the codec in one round, as its participants measured it; unweighted means over participants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distortion {
    /// L2 norm of the encoder's input: the clipped update plus the residual.
    pub norm: f64,
    /// L2 norm of the difference between the input and the decoding of this update alone, divided by `norm`. If the codec is unbiased, the
    /// mean of n updates has a smaller error.
    pub added_error: f64,
}

/// The mean of a round and the distortion by its codec.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Input of the server optimizer.
    pub mean: MeanUpdate,
    /// Error that compression adds; `None` without compression.
    pub distortion: Option<Distortion>,
}

/// A validated update, ready to encode.
pub(super) struct Input<'a> {
    /// The clipped delta plus the residual.
    pub(super) values: Vec<f64>,
    pub(super) weight: u32,
    pub(super) metrics: &'a [MetricValue],
}

impl<'a> Input<'a> {
    pub(super) fn new(
        update: &'a Update,
        residual: Option<&Residual>,
        params: &QuantizationParams,
    ) -> Result<Self, EncodeError> {
        let expected = params.parameters;
        if update.delta.len() != expected {
            return Err(WrongLength { expected, got: update.delta.len() }.into());
        }
        if update.metrics.len() != params.metrics {
            return Err(EncodeError::MetricCount { expected: params.metrics, got: update.metrics.len() });
        }
        let unmeasured = |metric: &MetricValue| metric.count > 0 && !metric.value.is_finite();
        if let Some(index) = update.metrics.iter().position(unmeasured) {
            return Err(EncodeError::MetricNotFinite { index });
        }
        let norm = clip::norm(&update.delta);
        if !norm.is_finite() {
            return Err(EncodeError::NotFinite { index: first_not_finite(&update.delta).unwrap_or_default() });
        }
        let weight = match u32::try_from(update.examples).unwrap_or(u32::MAX).min(params.max_weight) {
            0 => return Err(EncodeError::NoExamples),
            weight => weight,
        };
        let bound = params.clip_norm.map_or(f64::INFINITY, f64::from);
        let factor = if norm > bound { bound / norm } else { 1.0 };
        let mut values: Vec<f64> = update.delta.iter().map(|&value| f64::from(value) * factor).collect();
        if let Some(residual) = residual {
            residual.add_to(&mut values).map_err(EncodeError::WrongResidual)?;
        }
        Ok(Self { values, weight, metrics: &update.metrics })
    }

    /// The distortion if the decoder gets `sent`.
    pub(super) fn distortion(&self, sent: &[f64]) -> Distortion {
        let norm = self.values.iter().fold(0.0, |sum, value| sum + value * value).sqrt();
        let error = self.values.iter().zip(sent).fold(0.0, |sum, (value, sent)| sum + (value - sent).powi(2)).sqrt();
        Distortion { norm, added_error: if norm > 0.0 { error / norm } else { 0.0 } }
    }
}
