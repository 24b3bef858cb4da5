//! What training must keep to beyond the numbers of its configuration: where it is pulled to, and what it must leave alone.

use learning::Parameters;

use super::error::TrainError;

/// Where [`SgdConfig::proximal_mu`](super::SgdConfig::proximal_mu) pulls to, which tensors stay as they are, and what corrects
/// every gradient. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constraints<'a> {
    /// In place of the model that training begins with; of the same layout.
    pub anchor: Option<&'a Parameters>,
    /// Whether each tensor, in the layout's order, stays as it is; empty if none does.
    pub frozen: &'a [bool],
    /// Added to the gradient of every step (the control variates of SCAFFOLD); of the same layout.
    pub correction: Option<&'a Parameters>,
}

/// Constraints in the flat vector's order.
#[derive(Debug, Default)]
pub(super) struct Flat<'a> {
    /// Where the proximal term pulls to, if not to the start.
    pub(super) anchor: Option<&'a [f32]>,
    /// Factors of the gradients: 0 where a parameter stays as it is; empty if none does.
    pub(super) free: Vec<f32>,
    /// Added to every gradient.
    pub(super) correction: Option<&'a [f32]>,
}

impl<'a> Constraints<'a> {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anchor.is_none() && self.correction.is_none() && !self.frozen.contains(&true)
    }

    /// Whether they are about the model of `start`.
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

    /// As a learner takes them: flat, in the layout's order.
    pub(super) fn flat(&self, start: &Parameters) -> Flat<'a> {
        Flat {
            anchor: self.anchor.map(Parameters::values),
            free: self.free(start),
            correction: self.correction.map(Parameters::values),
        }
    }

    /// One factor per parameter, in the flat vector's order: 0 where a tensor stays as it is, else 1; nothing if none does.
    fn free(&self, start: &Parameters) -> Vec<f32> {
        let mut factors = Vec::new();
        for (index, &frozen) in self.frozen.iter().enumerate() {
            let length = start.layout().range(index).len();
            factors.resize(factors.len() + length, if frozen { 0.0 } else { 1.0 });
        }
        factors
    }
}
