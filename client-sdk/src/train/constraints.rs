//! Constraints of training beyond its configuration: anchor, frozen tensors and gradient correction.

use learning::Parameters;

use super::error::TrainError;

/// The anchor of [`proximal_mu`](task_spec::TrainingPlan::proximal_mu), the frozen tensors, and the correction of
/// every gradient. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constraints<'a> {
    /// Replaces the initial model as anchor; of the same layout.
    pub anchor: Option<&'a Parameters>,
    /// Whether each tensor, in layout order, is frozen; empty if none is.
    pub frozen: &'a [bool],
    /// Added to the gradient of every step (SCAFFOLD's control variates); of the same layout.
    pub correction: Option<&'a Parameters>,
}

/// Constraints in the flat vector's order.
#[derive(Debug, Default)]
pub(super) struct Flat<'a> {
    /// Anchor of the proximal term, if not the initial model.
    pub(super) anchor: Option<&'a [f32]>,
    /// Factors on the gradients: 0 for frozen parameters; empty if none is.
    pub(super) free: Vec<f32>,
    /// Added to every gradient.
    pub(super) correction: Option<&'a [f32]>,
}

impl<'a> Constraints<'a> {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anchor.is_none() && self.correction.is_none() && !self.frozen.contains(&true)
    }

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

    /// One factor per parameter, in the flat vector's order: 0 if its tensor is frozen, otherwise 1; empty if none is.
    fn free(&self, start: &Parameters) -> Vec<f32> {
        let mut factors = Vec::new();
        for (index, &frozen) in self.frozen.iter().enumerate() {
            let length = start.layout().range(index).len();
            factors.resize(factors.len() + length, if frozen { 0.0 } else { 1.0 });
        }
        factors
    }
}
