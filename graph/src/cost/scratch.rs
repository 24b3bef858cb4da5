//! Memory that the operations of an executor share.

use super::numbers::times;

/// Columns of a panel of a product, at least.
const NARROW: u64 = 16;
/// Columns of a panel of a product, at most.
const WIDE: u64 = 32;

/// Numbers of the buffers that nodes use one after the other; each is as large as its largest use.
#[derive(Clone, Copy, Default)]
pub(super) struct Scratch {
    /// The windows of a convolution.
    pub(super) windows: u64,
    /// A left operand with its columns side by side.
    pub(super) left: u64,
    /// A panel of a right operand.
    pub(super) panel: u64,
    /// A panel of a result.
    pub(super) result: u64,
    /// A sum over several products.
    pub(super) sum: u64,
    /// All panels of a right operand.
    pub(super) packed: u64,
}

impl Scratch {
    /// The scratch memory of a product of a matrix `m` by `k` and one `k` by `n`, and of the products of its gradients.
    pub(super) fn of_product(m: u64, k: u64, n: u64) -> Self {
        let longest = m.max(k).max(n);
        Self {
            left: times([m, k]).max(times([m, n])).max(times([k, n])),
            panel: times([longest, WIDE]),
            result: times([longest, WIDE]),
            ..Self::default()
        }
    }

    /// The larger of each buffer.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            windows: self.windows.max(other.windows),
            left: self.left.max(other.left),
            panel: self.panel.max(other.panel),
            result: self.result.max(other.result),
            sum: self.sum.max(other.sum),
            packed: self.packed.max(other.packed),
        }
    }

    /// Bytes of all buffers.
    pub(super) fn bytes(self) -> u64 {
        let Self { windows, left, panel, result, sum, packed } = self;
        [windows, left, panel, result, sum, packed].into_iter().fold(0, u64::saturating_add).saturating_mul(4)
    }
}

/// A number of columns with the padding of panels.
pub(super) fn padded(columns: u64) -> u64 {
    if columns <= NARROW { NARROW } else { columns.checked_next_multiple_of(WIDE).unwrap_or(u64::MAX) }
}

/// Columns of a panel of a product with so many columns.
pub(super) fn panel(columns: u64) -> u64 {
    if columns <= NARROW { NARROW } else { WIDE }
}
