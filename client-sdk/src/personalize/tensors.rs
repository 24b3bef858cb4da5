//! Tensors that stay local.

use std::sync::Arc;

use learning::checkpoint::{self, CheckpointError};
use learning::{Layout, Parameters};
use zeroize::{Zeroize as _, Zeroizing};

/// Tensors that never leave this device. They cannot be printed, copied or serialized; they are erased when dropped.
pub struct PersonalTensors(pub(super) Parameters);

impl PersonalTensors {
    pub(crate) fn new(parameters: Parameters) -> Self {
        Self(parameters)
    }

    pub(crate) fn parameters(&self) -> &Parameters {
        &self.0
    }

    /// Serializes for the journal, as a safetensors file.
    pub(crate) fn to_record(&self) -> Result<Zeroizing<Vec<u8>>, CheckpointError> {
        checkpoint::write(&self.0).map(Zeroizing::new)
    }

    /// Reads the journal's record.
    ///
    /// # Errors
    /// [`CheckpointError`] if it is damaged or belongs to another model.
    pub(crate) fn from_record(record: &[u8], layout: &Arc<Layout>) -> Result<Self, CheckpointError> {
        checkpoint::read(record, layout).map(Self)
    }
}

impl Drop for PersonalTensors {
    fn drop(&mut self) {
        self.0.values_mut().zeroize();
    }
}
