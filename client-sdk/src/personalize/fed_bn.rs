//! FedBN (Li et al. 2021): normalisation layers stay local, so that each participant keeps the statistics of its own
//! features. Trained as in FedPer, but only tensors of normalisation layers may stay local.

use task_spec::Personalization;

use super::{FedPer, Local, LocalError, Method, MethodError, Round};

/// A model whose normalisation layers stay local.
pub(super) struct FedBn(FedPer);

impl FedBn {
    /// # Errors
    /// [`MethodError::Tensor`] for a tensor of more than one dimension, which is not a normalisation layer's.
    pub(super) fn new(parts: FedPer) -> Result<Self, MethodError> {
        for tensor in parts.partition().personal().tensors() {
            Personalization::FedBn {}.check_tensor(&tensor.name, &tensor.shape).map_err(MethodError::Tensor)?;
        }
        Ok(Self(parts))
    }
}

impl Method for FedBn {
    fn run(&self, round: &mut Round<'_>) -> Result<Local, LocalError> {
        self.0.run(round)
    }
}
