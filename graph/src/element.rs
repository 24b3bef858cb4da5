//! The types of elements.

use serde::{Deserialize, Serialize};

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    /// 32-bit floating point; gradients flow through these alone.
    F32,
    /// Integers: identifiers, positions, classes.
    I64,
    /// Truth values, for masks.
    Bool,
}

impl Element {
    /// Its elements, for messages.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::F32 => "floats",
            Self::I64 => "integers",
            Self::Bool => "truth values",
        }
    }
}
