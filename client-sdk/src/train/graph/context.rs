//! What the operations of a graph share.

use graph::Point;
use pulp::Arch;

use super::kernels::product::Scratch;

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

/// What all operations share.
pub(super) struct Context {
    pub(super) arch: Arch,
    pub(super) scratch: Scratch,
    /// Memory for the windows of a convolution.
    pub(super) windows: Vec<f32>,
    /// Memory for a convolution without windows.
    pub(super) frames: Frames,
    pub(super) point: Point,
    /// The seed of dropout; `None` where all elements stay.
    pub(super) dropout: Option<u64>,
}

impl Context {
    /// For batches of one example and sequences of one position, without dropout.
    pub(super) fn new() -> Self {
        Self {
            arch: Arch::new(),
            scratch: Scratch::default(),
            windows: Vec::new(),
            frames: Frames::default(),
            point: Point { batch: 1, length: 1 },
            dropout: None,
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
    /// The numbers of the inputs.
    pub(super) inputs: &'a [usize],
}

impl Gradients<'_> {
    /// The gradient of an input, to add to; `None` if it needs none or there is no such input.
    pub(super) fn of(&mut self, input: usize) -> Option<&mut [f32]> {
        let gradient = self.all.get_mut(*self.inputs.get(input)?)?;
        (!gradient.is_empty()).then_some(gradient)
    }

    /// Calls `add` with the gradient of the first input, if it needs one.
    pub(super) fn add_to_first(&mut self, add: impl FnOnce(&mut [f32])) {
        if let Some(gradient) = self.of(0) {
            add(gradient);
        }
    }
}
