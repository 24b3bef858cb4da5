//! The lengths of sequences that a graph computes.

use graph::{Arithmetic, Element, Graph, Lengths, Operation, Point, Shapes, Values, infer};

/// The longest sequences that a task may have, if the graph does not bound them.
const LONGEST: u32 = 4096;

/// The range of lengths around one that the graph computes.
pub(super) fn computed(graph: &Graph, tried: u32) -> Lengths {
    let with = |lengths| Graph { lengths, ..graph.clone() };
    let whole = with(Some(Lengths { least: 1, most: u32::MAX }));
    let is_computed = |length: u32| {
        let point = Point { batch: 2, length };
        infer(&whole, point).is_ok_and(|shapes| positions_are_inside(graph, &shapes, point))
    };
    // Both ends by bisection: lengths that a graph computes are a range.
    let (mut least, mut below) = (tried, 0);
    while least - below > 1 {
        let middle = below + (least - below) / 2;
        if is_computed(middle) { least = middle } else { below = middle }
    }
    let (mut most, mut above) = (tried, LONGEST.max(tried) + 1);
    while above - most > 1 {
        let middle = most + (above - most) / 2;
        if is_computed(middle) { most = middle } else { above = middle }
    }
    Lengths { least, most }
}

/// Whether positions that follow from the length alone, as those of a table of positions, are inside their tensors.
fn positions_are_inside(graph: &Graph, shapes: &Shapes, point: Point) -> bool {
    // The largest integer of each value; `None` if it depends on the inputs.
    let mut largest: Vec<Option<i64>> = vec![None; graph.constant(0).0 as usize];
    largest.extend(graph.constants.iter().map(|constant| match &constant.values {
        Values::I64(values) => values.iter().copied().max(),
        Values::F32(_) | Values::Bool(_) => None,
    }));
    for node in &graph.nodes {
        let of = |input: usize| largest.get(node.inputs.get(input)?.0 as usize).copied().flatten();
        let found = match &node.operation {
            Operation::Range { end, step, .. } if *step > 0 => end.at(point).and_then(|end| end.checked_sub(1)),
            Operation::Reshape { .. }
            | Operation::Transpose { .. }
            | Operation::Expand { .. }
            | Operation::Slice { .. }
            | Operation::Fill { .. }
            | Operation::Cast { to: Element::I64 } => of(0),
            Operation::Arithmetic(Arithmetic::Add) => of(0).zip(of(1)).and_then(|(a, b)| a.checked_add(b)),
            Operation::Gather { axis } => {
                let size = shapes.get(node.inputs[0]).shape[*axis as usize];
                if of(1).is_some_and(|position| usize::try_from(position).is_ok_and(|position| position >= size)) {
                    return false;
                }
                of(0)
            }
            Operation::Range { .. }
            | Operation::Cast { .. }
            | Operation::Arithmetic(_)
            | Operation::Activation(_)
            | Operation::Comparison(_)
            | Operation::Logic(_)
            | Operation::Where
            | Operation::MatMul
            | Operation::Gemm { .. }
            | Operation::Conv(_)
            | Operation::ConvTranspose { .. }
            | Operation::Pool(_)
            | Operation::Reduce { .. }
            | Operation::ArgMax { .. }
            | Operation::Softmax { .. }
            | Operation::LogSoftmax { .. }
            | Operation::LayerNorm { .. }
            | Operation::GroupNorm { .. }
            | Operation::BatchNorm { .. }
            | Operation::Dropout { .. }
            | Operation::Concat { .. }
            | Operation::GatherElements { .. }
            | Operation::Pad { .. }
            | Operation::Resize { .. }
            | Operation::Triangle { .. }
            | Operation::CumSum { .. }
            | Operation::Recurrent(_) => None,
        };
        largest.extend(std::iter::repeat_n(found, node.operation.outputs() as usize));
    }
    true
}
