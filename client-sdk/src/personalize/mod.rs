//! Which tensors stay at home, and how they come back for the next round.
//!
//! [`PersonalTensors`] can be joined to a model for training and written to the journal, and nothing else: there is no
//! way from them to an update, whose layout has no room for them either.

pub mod fed_per;

use std::sync::Arc;

use learning::checkpoint::{self, CheckpointError};
use learning::{Layout, Parameters};
use zeroize::{Zeroize, Zeroizing};

pub use fed_per::FedPer;

/// Tensors that never leave this device. Not printable, not copyable, not serializable; erased when dropped.
pub struct PersonalTensors(Parameters);

impl PersonalTensors {
    fn new(parameters: Parameters) -> Self {
        Self(parameters)
    }

    /// As the journal keeps them: a safetensors file.
    pub(crate) fn to_record(&self) -> Result<Zeroizing<Vec<u8>>, CheckpointError> {
        checkpoint::write(&self.0).map(Zeroizing::new)
    }

    /// As the journal kept them.
    ///
    /// # Errors
    /// [`CheckpointError`] if they are damaged or another model's.
    pub(crate) fn from_record(record: &[u8], layout: &Arc<Layout>) -> Result<Self, CheckpointError> {
        checkpoint::read(record, layout).map(Self)
    }
}

impl Drop for PersonalTensors {
    fn drop(&mut self) {
        self.0.values_mut().zeroize();
    }
}
