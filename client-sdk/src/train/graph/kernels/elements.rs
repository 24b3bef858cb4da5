//! Elements that products and copies write.

/// Numbers in a cache line.
pub(in crate::train::graph) const LINE: usize = 16;

/// What to do with the elements of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::train::graph) enum Into {
    /// Overwrite them.
    Replace,
    /// Add to them.
    Add,
}

impl Into {
    /// Clears elements that are to be replaced, for sums that are added to them.
    pub(in crate::train::graph) fn prepare(self, elements: &mut [f32]) {
        match self {
            Self::Replace => elements.fill(0.0),
            Self::Add => {}
        }
    }
}
