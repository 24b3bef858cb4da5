//! Which instructions do the work; chosen once, at run time.

use std::fmt;

use secure_agg::mask::{self, MaskPlan};
use secure_agg::modular::{self, Modulus};

use super::unpack;

/// A way to do the inner loops. All of them give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernel {
    /// Rust without processor-specific code, over the `chacha20` crate (which has its own, for AVX2 and NEON).
    Portable,
}

impl Kernel {
    const ALL: [Self; 1] = [Self::Portable];

    /// The kernels this processor can run, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kernel| kernel.is_available())
    }

    /// The fastest kernel this processor can run.
    #[must_use]
    pub fn fastest() -> Self {
        Self::available().next().unwrap_or(Self::Portable)
    }

    /// Whether this processor has the instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
        }
    }

    /// Applies all masks of `plan` to `words`, which lie at `offset` of its vector, and reduces them. The caller has
    /// checked that they do.
    pub(super) fn apply_masks(self, plan: &MaskPlan, offset: u64, words: &mut [u32]) {
        match self {
            Self::Portable => mask::apply(plan, offset, words).expect("the plan was compared with the shape"),
        }
    }

    /// Adds a packed vector that the caller has checked: exactly `sum.len()` words.
    pub(super) fn add_packed(self, sum: &mut [u32], packed: &[u8], modulus: Modulus) {
        match self {
            Self::Portable => unpack::add(sum, packed, modulus),
        }
    }

    /// Adds as many words.
    pub(super) fn add_words(self, sum: &mut [u32], words: &[u32]) {
        match self {
            Self::Portable => modular::add_assign(sum, words),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
        })
    }
}
