//! The private form of an analysis: a contribution as a vector of length at most 1, to which a mechanism of
//! [`crate::privacy`] adds noise.
//!
//! The values of a contribution have different units, such as rows and sums of squares. Each part of them is divided by the
//! largest length that one participant can give it, and gets a share of the whole length. So one noise suits all parts. The
//! codec clips the vector to length 1: the guarantee does not depend on the lengths stated here, only the accuracy does.

use super::error::AnalyticsError;

/// Consecutive values of a contribution that are measured in one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    /// Number of values.
    pub(super) len: usize,
    /// Largest L2 norm of the values of one participant.
    pub(super) norm: f64,
    /// Accuracy of this part, relative to the others; 0 if this round does not use it.
    pub(super) share: f64,
}

impl Part {
    pub(super) fn new(len: usize, norm: f64, share: f64) -> Self {
        Self { len, norm, share }
    }

    /// Values that this round does not use.
    pub(super) fn unused(len: usize) -> Self {
        Self::new(len, 1.0, 0.0)
    }
}

/// The factors between the values of a contribution and its private form, for one round.
#[derive(Clone, Debug, PartialEq)]
pub struct PrivateForm {
    /// Number of values, and factor: 0 for unused ones.
    parts: Vec<(usize, f64)>,
}

/// The sum of the private forms of a cohort, with noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoisedForms<'a> {
    /// The sum over the cohort, divided by `cohort`.
    pub mean: &'a [f32],
    /// The expected number of participants.
    pub cohort: f64,
    /// Standard deviation of the noise in each coordinate of the sum.
    pub noise: f64,
}

impl PrivateForm {
    pub(super) fn new(parts: &[Part]) -> Self {
        let length = parts.iter().map(|part| part.share * part.share).sum::<f64>().sqrt();
        let factor = |part: &Part| if part.share > 0.0 { part.share / (length * part.norm) } else { 0.0 };
        Self { parts: parts.iter().map(|part| (part.len, factor(part))).collect() }
    }

    /// The vector for these values, as long as there are values; of length 1 at most, up to rounding.
    ///
    /// # Errors
    /// [`AnalyticsError::Shape`] for another number of values.
    pub fn encode(&self, values: &[i64]) -> Result<Vec<f32>, AnalyticsError> {
        let mut scaled = Vec::with_capacity(values.len());
        self.parts_of(values, |own, factor| {
            #[expect(clippy::cast_possible_truncation, reason = "its error is far below that of the noise")]
            scaled.extend(own.iter().map(|&value| (value as f64 * factor) as f32));
        })?;
        Ok(scaled)
    }

    /// Estimates of the sums of the values, and the standard deviation of the noise in the values of each part.
    pub(super) fn decode(&self, sum: &NoisedForms<'_>) -> Result<(Vec<i64>, Vec<f64>), AnalyticsError> {
        /// Estimates are far smaller, unless the noise is useless.
        const MOST: f64 = (1_i64 << 61) as f64;
        let (mut values, mut noise) = (Vec::with_capacity(sum.mean.len()), Vec::with_capacity(self.parts.len()));
        self.parts_of(sum.mean, |own, factor| {
            let scale = if factor > 0.0 { 1.0 / factor } else { 0.0 };
            #[expect(clippy::cast_possible_truncation, reason = "clamped")]
            let estimate = |&mean: &f32| (f64::from(mean) * sum.cohort * scale).round().clamp(-MOST, MOST) as i64;
            values.extend(own.iter().map(estimate));
            noise.push(sum.noise * scale);
        })?;
        Ok((values, noise))
    }

    fn parts_of<T>(&self, values: &[T], mut each: impl FnMut(&[T], f64)) -> Result<(), AnalyticsError> {
        let expected = self.parts.iter().map(|part| part.0).sum();
        if values.len() != expected {
            return Err(AnalyticsError::Shape { what: "values", expected, got: values.len() });
        }
        let mut rest = values;
        for &(len, factor) in &self.parts {
            let (own, after) = rest.split_at(len);
            rest = after;
            each(own, factor);
        }
        Ok(())
    }
}

/// Replaces negative estimates of counts by 0.
pub(super) fn floor(counts: &mut [i64]) {
    counts.iter_mut().for_each(|count| *count = (*count).max(0));
}
