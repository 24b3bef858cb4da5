//! How much of the device's memory one thing of a task may take: what the coordinator says of sizes is checked before anything is
//! allocated for it.

use wire::participant::Assignment;

/// Bytes that the model, what stays at home of it and an encoded update may take each, unless the app says otherwise.
pub(super) const USUAL_MAX_MODEL_BYTES: u64 = 256_000_000;

/// A model and an update have 32 bits per value.
const BYTES_PER_VALUE: u64 = 4;

/// Something of the task is larger than this participant takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} takes {bytes} bytes, and this participant's limit is {limit} (Builder::max_model_bytes)")]
pub struct TooLarge {
    /// What it is.
    pub what: &'static str,
    /// How large it is said to be; [`u64::MAX`] if it is more.
    pub bytes: u64,
    /// What the app allows.
    pub limit: u64,
}

/// The app's limit, in bytes.
#[derive(Clone, Copy)]
pub(super) struct MaxModelBytes(pub(super) u64);

impl MaxModelBytes {
    /// Whether there is room for so many bytes.
    pub(super) fn check_bytes(self, what: &'static str, bytes: u64) -> Result<(), TooLarge> {
        let Self(limit) = self;
        if bytes <= limit { Ok(()) } else { Err(TooLarge { what, bytes, limit }) }
    }

    /// Whether there is room for so many values, or words.
    pub(super) fn check_values(self, what: &'static str, values: u64) -> Result<(), TooLarge> {
        self.check_bytes(what, values.saturating_mul(BYTES_PER_VALUE))
    }

    /// Whether there is room for the model that an assignment names and for the file it starts from, before either is looked at
    /// any closer.
    pub(super) fn check_model(self, assignment: &Assignment) -> Result<(), TooLarge> {
        let elements = |shape: &Vec<u64>| shape.iter().fold(1, |product: u64, size| product.saturating_mul(*size));
        let tensors = assignment.model.tensors.iter().map(|tensor| elements(&tensor.shape));
        self.check_values("the model", tensors.fold(0, u64::saturating_add))?;
        self.check_bytes("the file of the model", assignment.base.bytes)
    }
}
