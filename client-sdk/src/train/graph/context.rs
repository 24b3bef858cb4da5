//! What the operations of a graph share.

use graph::Point;
use pulp::Arch;

use super::kernels::product::{Into, Scratch};

/// The end of an operation: what is wrong with the values that it got.
pub(super) type Step = Result<(), String>;

/// Memory of a convolution in place, reused.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) image: Vec<f32>,
    pub(super) delta: Vec<f32>,
    pub(super) weights: Vec<f32>,
    pub(super) result: Vec<f32>,
    pub(super) sum: Vec<f32>,
}

/// Memory of a recurrence on its way back, reused.
#[derive(Default)]
pub(super) struct Recurrent {
    pub(super) d_gates: Vec<f32>,
    pub(super) d_own: Vec<f32>,
    pub(super) before: Vec<f32>,
}

/// What batch normalizations with a momentum normalize by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statistics {
    /// The running statistics, for evaluations and predictions.
    Running,
    /// The mean and variance of the batch, for training.
    Batch,
}

/// What all operations share.
pub(super) struct Context {
    pub(super) arch: Arch,
    pub(super) scratch: Scratch,
    /// Memory for the windows of a convolution.
    pub(super) windows: Vec<f32>,
    /// Memory for a convolution without windows.
    pub(super) frames: Frames,
    pub(super) recurrent: Recurrent,
    pub(super) point: Point,
    /// The seed of dropout; `None` where all elements stay.
    pub(super) dropout: Option<u64>,
    pub(super) statistics: Statistics,
}

impl Context {
    /// For batches of one example and sequences of one position, without dropout, by running statistics.
    pub(super) fn new() -> Self {
        Self {
            arch: Arch::new(),
            scratch: Scratch::default(),
            windows: Vec::new(),
            frames: Frames::default(),
            recurrent: Recurrent::default(),
            point: Point { batch: 1, length: 1 },
            dropout: None,
            statistics: Statistics::Running,
        }
    }
}

/// Calls `f` with the CPU's vector instructions. Like everything that it calls, it has to be inlined.
#[inline(always)]
pub(super) fn vectorized<T>(arch: Arch, with: T, f: impl FnOnce(T)) {
    // Moving a value makes the closure one that is called once, which the compiler calls without a shim.
    arch.dispatch(
        #[inline(always)]
        move || f(with),
    );
}

/// The gradients of a node's inputs.
pub(super) struct Gradients<'a> {
    /// Of all values; empty for values that need none.
    pub(super) all: &'a mut [Vec<f32>],
    /// Whether a gradient holds numbers of this pass. The others hold numbers of an earlier one.
    pub(super) begun: &'a mut [bool],
    /// The numbers of the inputs.
    pub(super) inputs: &'a [usize],
}

impl Gradients<'_> {
    /// What the first of a node's numbers do to the gradient of an input, which they cover as a whole; `None` if the
    /// input needs no gradient or there is no such input.
    pub(super) fn begin(&mut self, input: usize) -> Option<Into> {
        let number = *self.inputs.get(input)?;
        if self.all.get(number)?.is_empty() {
            return None;
        }
        let is_begun = std::mem::replace(self.begun.get_mut(number)?, true);
        Some(if is_begun { Into::Add } else { Into::Replace })
    }

    /// The gradient of an input with what [`Self::begin`] returns.
    pub(super) fn target(&mut self, input: usize) -> Option<(Into, &mut [f32])> {
        let into = self.begin(input)?;
        Some((into, &mut self.all[self.inputs[input]]))
    }

    /// The gradient of an input, to add to; `None` if it needs none or there is no such input.
    pub(super) fn of(&mut self, input: usize) -> Option<&mut [f32]> {
        let (into, gradient) = self.target(input)?;
        into.prepare(gradient);
        Some(gradient)
    }

    /// Calls `add` with the gradient of the first input, if it needs one.
    pub(super) fn add_to_first(&mut self, add: impl FnOnce(&mut [f32])) {
        if let Some(gradient) = self.of(0) {
            add(gradient);
        }
    }
}
