//! What training must keep to beyond the numbers of its configuration: where it is pulled to, and what it must leave alone.

use learning::Parameters;

use super::error::TrainError;

/// Where [`SgdConfig::proximal_mu`](super::SgdConfig::proximal_mu) pulls to, and which tensors stay as they are. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constraints<'a> {
    /// In place of the model that training begins with; of the same layout.
    pub anchor: Option<&'a Parameters>,
    /// Whether each tensor, in the layout's order, stays as it is; empty if none does.
    pub frozen: &'a [bool],
}

impl Constraints<'_> {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.anchor.is_none() && !self.frozen.contains(&true)
    }

    /// Whether they are about the model of `start`.
    pub(super) fn check(&self, start: &Parameters) -> Result<(), TrainError> {
        if self.anchor.is_some_and(|anchor| anchor.layout() != start.layout()) {
            return Err(TrainError::Constraints("the anchor is another model's"));
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

    /// One factor per parameter, in the flat vector's order: 0 where a tensor stays as it is, else 1; nothing if none does.
    pub(super) fn free(&self, start: &Parameters) -> Vec<f32> {
        let mut factors = Vec::new();
        for (index, &frozen) in self.frozen.iter().enumerate() {
            let length = start.layout().range(index).len();
            factors.resize(factors.len() + length, if frozen { 0.0 } else { 1.0 });
        }
        factors
    }
}
