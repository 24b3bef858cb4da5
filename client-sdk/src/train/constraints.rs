//! Constraints, checked against a model and as its learners take them.

use learning::Parameters;

use super::error::TrainError;
use crate::trainer::Constraints;

/// Constraints in the flat vector's order.
#[derive(Debug, Default)]
pub(super) struct Flat<'a> {
    /// Anchor of the proximal term, if not the initial model.
    pub(super) anchor: Option<&'a [f32]>,
    /// Factors on the gradients: 0 for frozen parameters; empty if all are trained.
    pub(super) free: Vec<f32>,
    /// Added to every gradient.
    pub(super) correction: Option<&'a [f32]>,
}

impl<'a> Constraints<'a> {
    /// Checks that the constraints are for the model of `start`.
    pub(super) fn check(&self, start: &Parameters) -> Result<(), TrainError> {
        if self.anchor.is_some_and(|anchor| anchor.layout() != start.layout()) {
            return Err(TrainError::Constraints("the anchor is another model's"));
        }
        if self.correction.is_some_and(|correction| correction.layout() != start.layout()) {
            return Err(TrainError::Constraints("the correction of gradients is another model's"));
        }
        let tensors = start.layout().tensors().len();
        if !self.frozen.is_empty() && self.frozen.len() != tensors {
            return Err(TrainError::Constraints(
                "tensors that stay as they are must be told for every tensor or for none",
            ));
        }
        if !self.frozen.is_empty() && !self.frozen.contains(&false) {
            return Err(TrainError::Constraints("every tensor is to stay as it is; at least one must be free"));
        }
        Ok(())
    }

    /// The constraints for a learner: flat, in layout order.
    pub(super) fn flat(&self, start: &Parameters) -> Flat<'a> {
        Flat {
            anchor: self.anchor.map(Parameters::values),
            free: self.free(start),
            correction: self.correction.map(Parameters::values),
        }
    }

    /// One factor per parameter, in the flat vector's order: 0 if its tensor is frozen, otherwise 1. Empty if all are
    /// trained.
    fn free(&self, start: &Parameters) -> Vec<f32> {
        let mut factors = Vec::new();
        for (index, &frozen) in self.frozen.iter().enumerate() {
            let length = start.layout().range(index).len();
            factors.resize(factors.len() + length, if frozen { 0.0 } else { 1.0 });
        }
        factors
    }
}
