//! Limits on the memory that a task may take: sizes stated by the coordinator are checked before anything is
//! allocated.

use task_spec::ModelSpec;

/// Default of the maximum bytes of a model, of its local state and of an encoded update, each.
pub(in crate::participant) const USUAL_MAX_MODEL_BYTES: u64 = 256_000_000;

/// A model and an update have 32 bits per value.
const BYTES_PER_VALUE: u64 = 4;

/// Something of the task exceeds this participant's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} takes {bytes} bytes, and this participant's limit is {limit} (Builder::max_model_bytes)")]
pub struct TooLarge {
    pub what: &'static str,
    /// Its stated size in bytes; [`u64::MAX`] if it is larger.
    pub bytes: u64,
    /// The app's limit, in bytes.
    pub limit: u64,
}

/// The app's limit, in bytes.
#[derive(Clone, Copy)]
pub(in crate::participant) struct MaxModelBytes(pub(in crate::participant) u64);

impl MaxModelBytes {
    /// Checks a number of bytes against the limit.
    pub(super) fn check_bytes(self, what: &'static str, bytes: u64) -> Result<(), TooLarge> {
        let Self(limit) = self;
        if bytes <= limit { Ok(()) } else { Err(TooLarge { what, bytes, limit }) }
    }

    /// Checks a number of 32-bit values or words against the limit.
    pub(in crate::participant) fn check_values(self, what: &'static str, values: u64) -> Result<(), TooLarge> {
        self.check_bytes(what, values.saturating_mul(BYTES_PER_VALUE))
    }

    /// Checks the sizes of a model and of its file, before anything else of them is examined.
    pub(in crate::participant) fn check_model(self, model: &ModelSpec, file: u64) -> Result<(), TooLarge> {
        let elements = |shape: &Vec<u64>| shape.iter().fold(1, |product: u64, size| product.saturating_mul(*size));
        let tensors = model.tensors.iter().map(|tensor| elements(&tensor.shape));
        self.check_values("the model", tensors.fold(0, u64::saturating_add))?;
        self.check_bytes("the file of the model", file)
    }
}
