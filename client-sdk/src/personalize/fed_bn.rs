//! FedBN (Li et al. 2021): normalisation stays at home, so that each participant keeps the statistics of its own features.
//! Trained and joined as in FedPer; what sets it apart is which tensors may stay: those of normalisation alone.

use task_spec::Personalization;

use super::{FedPer, Local, LocalError, Method, MethodError, Round};

/// A model whose normalisation stays.
pub(super) struct FedBn(FedPer);

impl FedBn {
    /// # Errors
    /// [`MethodError::Tensor`] for a tensor of more than one dimension, which normalises nothing.
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
