//! q-FFL: participants with a higher loss have more weight (Li, Sanjabi, Beirami, Smith 2020, "Fair resource allocation in federated
//! learning", algorithm 2, q-FedAvg).
//!
//! The paper's server computes `w - Σ Δₖ / Σ hₖ` with `Δₖ = Fₖ^q L (w - wₖ)` and `hₖ = q Fₖ^(q-1) ‖L (w - wₖ)‖² + L Fₖ^q`, where `Fₖ` is
//! the loss of the received model on the participant's own data. Divided by `L`, and with the update `δₖ = wₖ - w`:
//!
//! `w + Σ Fₖ^q δₖ / Σ hₖ'`, `hₖ' = Fₖ^q + q L Fₖ^(q-1) ‖δₖ‖²`.
//!
//! This is the mean, **weighted by `hₖ'`, of the updates `(Fₖ^q / hₖ') δₖ`**, each at most as long as `δₖ`. So the codec needs no change:
//! the weight's word carries `hₖ'`, in units fixed by the task, and the shortened update is the update. The loss is not sent; the
//! coordinator learns only `Σ hₖ'`. Any server optimizer takes the step; FedAvg with rate 1 gives the paper's. As in the paper's
//! experiments, participants are weighted by loss, not by number of examples.
//!
//! The weight is rounded up to a whole number of units, which shortens a mean by at most `cohort / weight`. The update is scaled to the
//! rounded weight, so the numerator stays exact.

use serde::{Deserialize, Serialize};

use crate::clip::{self, FixedClip};
use crate::parameters::first_not_finite;
use crate::quantize::QuantizationParams;
use crate::update::Update;

/// Relative to the cap; smaller losses are raised to it, because a negative power of 0 is not a number.
const LEAST_LOSS: f64 = 1e-3;
/// Relative to the cap; a loss of this size must weigh at least [`MIN_UNITS`].
const COMMON_LOSS: f64 = 0.1;
/// Fewest units of a typical weight, to limit rounding errors.
const MIN_UNITS: f64 = 16.0;

/// The q-FFL settings of a task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fairness {
    /// Fairness: 0 is the unweighted mean of all participants, a larger value favours those with a high loss. 0 to 10.
    pub q: f64,
    /// L: about 1 over the local learning rate. Finite and above 0.
    pub lipschitz: f64,
    /// Cap on losses; ideally slightly above the first round's loss. Finite and above 0.
    pub loss_cap: f64,
}

/// Reasons for an invalid weight of a task or an update.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FairnessError {
    /// A parameter is out of range.
    #[error("{name} must be {range}, not {value}")]
    Range { name: &'static str, range: &'static str, value: f64 },
    /// Updates are unbounded, and so are weights.
    #[error("q-FFL needs clip_norm: an update's weight grows with the square of its length")]
    NoClipNorm,
    /// Typical weights would be rounded to almost 0.
    #[error(
        "with max_weight = {max_weight} a tenth of loss_cap weighs {units:.2} units and at least 16 are needed: take \
         max_weight = {needed:.0}, or a smaller q, clip_norm or loss_cap"
    )]
    TooCoarse {
        max_weight: u32,
        /// Weight of a loss of a tenth of the cap.
        units: f64,
        /// Smallest sufficient `max_weight`.
        needed: f64,
    },
    /// The loss is NaN.
    #[error("the loss of the received model must be a number, not {0}")]
    Loss(f64),
    #[error("value {index} of the update is NaN or infinite; a smaller learning rate may help")]
    NotFinite {
        /// The first such position in the shared layout.
        index: usize,
    },
}

/// The participant's half of the rule; the coordinator's half is the usual mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QFfl {
    fairness: Fairness,
    clip: FixedClip,
    max_weight: u32,
    /// Units per 1.0 of `h'`: the largest possible weight maps to `max_weight`.
    unit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// `F^q`: factor of the update in the numerator.
    pub factor: f64,
    /// `h'`: the participant's term in the denominator; at least `factor`.
    pub weight: f64,
}

impl Fairness {
    /// The terms of a participant with this loss and an update of this L2 norm.
    #[must_use]
    pub fn terms(&self, loss: f64, norm: f64) -> Terms {
        let loss = loss.clamp(LEAST_LOSS * self.loss_cap, self.loss_cap);
        let factor = libm::pow(loss, self.q);
        Terms { factor, weight: factor + self.q * self.lipschitz * (factor / loss) * (norm * norm) }
    }

    fn check(&self) -> Result<(), FairnessError> {
        let Self { q, lipschitz, loss_cap } = *self;
        let positive = |value: f64| (1e-9..=1e9).contains(&value);
        for (name, range, value, holds) in [
            ("q", "between 0 and 10", q, (0.0..=10.0).contains(&q)),
            ("lipschitz", "between 1e-9 and 1e9", lipschitz, positive(lipschitz)),
            ("loss_cap", "between 1e-9 and 1e9", loss_cap, positive(loss_cap)),
        ] {
            if !holds {
                return Err(FairnessError::Range { name, range, value });
            }
        }
        Ok(())
    }
}

impl QFfl {
    /// Fixes the unit of weights for a task, the same on every device.
    ///
    /// # Errors
    /// Any [`FairnessError`] except those about an update.
    pub fn new(fairness: Fairness, params: &QuantizationParams) -> Result<Self, FairnessError> {
        fairness.check()?;
        let clip = params.clip_norm.and_then(|bound| FixedClip::new(bound).ok()).ok_or(FairnessError::NoClipNorm)?;
        let bound = f64::from(clip.bound());
        let Fairness { loss_cap, .. } = fairness;
        // As a function of the loss, h' is convex: its maximum is at one of the ends.
        let largest = fairness.terms(0.0, bound).weight.max(fairness.terms(loss_cap, bound).weight);
        let max_weight = params.max_weight;
        let unit = f64::from(max_weight) / largest;
        let units = unit * fairness.terms(COMMON_LOSS * loss_cap, 0.0).weight;
        if units < MIN_UNITS {
            let needed = (f64::from(max_weight) * (MIN_UNITS / units)).ceil();
            return Err(FairnessError::TooCoarse { max_weight, units, needed });
        }
        Ok(Self { fairness, clip, max_weight, unit })
    }

    /// The update to encode instead of `update`: the shortened delta, with the fair weight as number of examples.
    /// `loss` is that of the received model, on the training data.
    ///
    /// # Errors
    /// [`FairnessError::Loss`] or [`FairnessError::NotFinite`]: nothing may be sent.
    pub fn contribution(&self, loss: f64, mut update: Update) -> Result<Update, FairnessError> {
        if !loss.is_finite() {
            return Err(FairnessError::Loss(loss));
        }
        let norm = clip::norm(&update.delta);
        if !norm.is_finite() {
            return Err(FairnessError::NotFinite { index: first_not_finite(&update.delta).unwrap_or_default() });
        }
        let clipped = self.clip.factor(norm);
        let terms = self.fairness.terms(loss, norm * clipped);
        let weight = (terms.weight * self.unit).ceil().clamp(1.0, f64::from(self.max_weight));
        // Exceeds max_weight by `f64` rounding at most.
        let scale = clipped * (terms.factor * self.unit / weight).min(1.0);
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        update.delta.iter_mut().for_each(|value| *value = (f64::from(*value) * scale) as f32);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, 1 to max_weight")]
        let weight = weight as u64;
        update.examples = weight;
        Ok(update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAIR: Fairness = Fairness { q: 1.0, lipschitz: 10.0, loss_cap: 2.5 };

    fn params(clip_norm: Option<f32>, max_weight: u32) -> QuantizationParams {
        QuantizationParams {
            parameters: 2,
            modulus_bits: 32,
            clip_range: 1.0,
            clip_norm,
            max_weight,
            max_cohort: 10,
            metrics: 0,
        }
    }

    fn update(delta: &[f32]) -> Update {
        Update { delta: delta.to_vec(), examples: 77, metrics: vec![] }
    }

    #[test]
    fn without_fairness_everybody_counts_alike() {
        let rule = QFfl::new(Fairness { q: 0.0, ..FAIR }, &params(Some(1.0), 1000)).unwrap();
        for loss in [0.0, 0.3, 100.0] {
            let sent = rule.contribution(loss, update(&[0.3, -0.4])).unwrap();
            assert_eq!((sent.delta, sent.examples), (vec![0.3, -0.4], 1000));
        }
    }

    #[test]
    fn the_worse_served_pull_harder_and_nobody_further_than_he_trained() {
        let rule = QFfl::new(FAIR, &params(Some(1.0), 100_000)).unwrap();
        let mut last = 0.0;
        for loss in [0.0, 0.01, 0.3, 1.0, 2.5] {
            let sent = rule.contribution(loss, update(&[0.3, -0.4])).unwrap();
            let pull = sent.examples as f64 * f64::from(sent.delta[0]);
            assert!(pull > last && sent.delta[0] <= 0.3 && sent.examples <= 100_000, "{loss}: {sent:?}");
            last = pull;
        }
        // Beyond the norm an update is clipped first, and it weighs the most there is at the cap.
        let sent = rule.contribution(1e6, update(&[30.0, -40.0])).unwrap();
        assert_eq!(sent.examples, 100_000);
        assert!((f64::from(sent.delta[0]) - 0.6 * 2.5 / 12.5).abs() < 1e-6, "{:?}", sent.delta);
    }

    #[test]
    fn refuses_what_has_no_fair_weight() {
        assert_eq!(QFfl::new(FAIR, &params(None, 1000)), Err(FairnessError::NoClipNorm));
        for bad in [
            Fairness { q: -0.1, ..FAIR },
            Fairness { q: f64::NAN, ..FAIR },
            Fairness { lipschitz: 0.0, ..FAIR },
            Fairness { loss_cap: f64::INFINITY, ..FAIR },
        ] {
            assert!(matches!(QFfl::new(bad, &params(Some(1.0), 1000)), Err(FairnessError::Range { .. })), "{bad:?}");
        }
        let error = QFfl::new(Fairness { q: 5.0, ..FAIR }, &params(Some(1.0), 1000)).unwrap_err();
        let FairnessError::TooCoarse { needed, .. } = error else { panic!("{error}") };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
        let needed = needed as u32;
        assert!(QFfl::new(Fairness { q: 5.0, ..FAIR }, &params(Some(1.0), needed)).is_ok());
        let rule = QFfl::new(FAIR, &params(Some(1.0), 1000)).unwrap();
        assert!(matches!(rule.contribution(f64::NAN, update(&[0.0, 0.0])), Err(FairnessError::Loss(_))));
        let diverged = rule.contribution(1.0, update(&[0.0, f32::NAN]));
        assert_eq!(diverged, Err(FairnessError::NotFinite { index: 1 }));
    }
}
