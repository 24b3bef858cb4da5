//! What goes into a codec and what comes out of a sum.

use super::residual::Residual;
use crate::clip;
use crate::metrics::MetricValue;
use crate::parameters::{WrongLength, first_not_finite};
use crate::quantize::{EncodeError, MeanUpdate, QuantizationParams};
use crate::update::Update;

/// What the codec did to the updates of a round, as its participants measured it; means in which each counts alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distortion {
    /// L2 norm of what was to be sent: the clipped update and what earlier rounds left.
    pub norm: f64,
    /// L2 norm of the difference between that and what a decoder of this one update gets, over `norm`. Of an unbiased
    /// codec the mean of n updates has less of it.
    pub added_error: f64,
}

/// A round's mean and what its codec added.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// What the server optimizer steps by.
    pub mean: MeanUpdate,
    /// None without compression.
    pub distortion: Option<Distortion>,
}

/// A checked update as codecs take it.
pub(super) struct Input<'a> {
    /// The clipped delta and the residual.
    pub(super) values: Vec<f64>,
    /// Within the cap.
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

    /// What a decoder that gets `sent` is off by.
    pub(super) fn distortion(&self, sent: &[f64]) -> Distortion {
        let norm = self.values.iter().fold(0.0, |sum, value| sum + value * value).sqrt();
        let error = self.values.iter().zip(sent).fold(0.0, |sum, (value, sent)| sum + (value - sent).powi(2)).sqrt();
        Distortion { norm, added_error: if norm > 0.0 { error / norm } else { 0.0 } }
    }
}
