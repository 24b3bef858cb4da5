//! Products, convolutions, pooling, reductions, normalizations and recurrences.

use graph::{
    Convolution, Direction, Pool, PoolKind, Recurrence, RecurrentCell, Reduction, Resampling, ResizeCoordinates, Size,
    ValueId,
};

use super::error::ExportError;
use super::names::Names;
use super::writer::{Writer, float, integer, integers, text};
use crate::proto::Attribute;

pub(super) fn gemm(w: &mut Writer<'_>, transposed: [bool; 2], [alpha, beta]: [f32; 2], names: &Names) {
    let [a, b] = transposed.map(i64::from);
    let attributes = vec![integer("transA", a), integer("transB", b), float("alpha", alpha), float("beta", beta)];
    w.node_to("Gemm", &names.all(), &names.output, attributes);
}

fn numbers(name: &str, values: &[u32]) -> Attribute {
    integers(name, values.iter().map(|&value| value.into()).collect())
}

/// Padding before all axes, then after all axes.
fn padding(pads: &[(u32, u32)]) -> Attribute {
    let (before, after) = (pads.iter().map(|pad| pad.0.into()), pads.iter().map(|pad| pad.1.into()));
    integers("pads", before.chain(after).collect())
}

pub(super) fn convolution(of: &Convolution) -> Vec<Attribute> {
    let Convolution { strides, pads, dilations, groups } = of;
    let group = integer("group", (*groups).into());
    vec![numbers("strides", strides), padding(pads), numbers("dilations", dilations), group]
}

pub(super) fn transposed(w: &mut Writer<'_>, of: &Convolution, output_padding: &[u32], names: &Names) {
    let mut attributes = convolution(of);
    attributes.push(numbers("output_padding", output_padding));
    w.node_to("ConvTranspose", &names.all(), &names.output, attributes);
}

/// Whether more windows than whole ones are computed. ONNX's shape inference counts windows that begin in the padding at the
/// end, which a graph leaves out: `ceil_mode` is written only where it is needed.
fn rounds_up(w: &Writer<'_>, of: &Pool, [x, y]: [ValueId; 2]) -> bool {
    let (sizes, found) = (&w.kind(x).shape, &w.kind(y).shape);
    let is_whole = |axis: usize| {
        let padded = sizes[axis + 2] + of.pads[axis].0 as usize + of.pads[axis].1 as usize;
        (padded - of.kernel[axis] as usize) / of.strides[axis] as usize + 1 == found[axis + 2]
    };
    of.ceil && (w.longest(x) != w.kind(x) || !(0..of.kernel.len()).all(is_whole))
}

/// `values`: the input and the result.
pub(super) fn pool(w: &mut Writer<'_>, of: &Pool, values: [ValueId; 2], names: &Names) {
    let ceil = rounds_up(w, of, values);
    let Pool { by, kernel, strides, pads, ceil: _ } = of;
    let mut attributes = vec![numbers("kernel_shape", kernel), numbers("strides", strides), padding(pads)];
    attributes.push(integer("ceil_mode", i64::from(ceil)));
    let operator = match by {
        PoolKind::Max => "MaxPool",
        PoolKind::Mean => "AveragePool",
        PoolKind::MeanWithPadding => {
            attributes.push(integer("count_include_pad", 1));
            "AveragePool"
        }
    };
    w.node_to(operator, &names.all(), &names.output, attributes);
}

pub(super) fn reduce(w: &mut Writer<'_>, by: Reduction, axes: &[u32], keep: bool, names: &Names) {
    let operator = match by {
        Reduction::Sum => "ReduceSum",
        Reduction::Mean => "ReduceMean",
        Reduction::Max => "ReduceMax",
        Reduction::Min => "ReduceMin",
        Reduction::Product => "ReduceProd",
        Reduction::Norm => "ReduceL2",
    };
    if axes.is_empty() {
        // Without axes ONNX reduces all of them.
        let operator = if by == Reduction::Norm { "Abs" } else { "Identity" };
        return w.node_to(operator, &names.all(), &names.output, vec![]);
    }
    let axes = w.vector(&axes.iter().map(|&axis| axis.into()).collect::<Vec<_>>());
    w.node_to(operator, &[names.input(0), &axes], &names.output, vec![integer("keepdims", i64::from(keep))]);
}

pub(super) fn layer_norm(w: &mut Writer<'_>, axis: u32, epsilon: f32, names: &Names) {
    let attributes = vec![integer("axis", axis.into()), float("epsilon", epsilon)];
    w.node_to("LayerNormalization", &names.all(), &names.output, attributes);
}

/// Instances are groups of one channel; larger groups are normalized as the channels of another shape.
pub(super) fn group_norm(w: &mut Writer<'_>, groups: u32, epsilon: f32, x: &[usize], names: &Names) {
    let channels = x.get(1).copied().unwrap_or_default();
    if groups as usize == channels && x.len() > 2 {
        return w.node_to("InstanceNormalization", &names.all(), &names.output, vec![float("epsilon", epsilon)]);
    }
    let [ones, zeros] = [1.0, 0.0].map(|number| {
        let (value, shape) = (w.float(number), w.vector(&[groups.into()]));
        w.node("Expand", &[&value, &shape], vec![])
    });
    let shape = w.node("Shape", &[names.input(0)], vec![]);
    // A size of 0 is that of the input.
    let parts = w.vector(&[0, groups.into(), -1]);
    let grouped = w.node("Reshape", &[names.input(0), &parts], vec![]);
    let normal = w.node("InstanceNormalization", &[&grouped, &ones, &zeros], vec![float("epsilon", epsilon)]);
    let normal = w.node("Reshape", &[&normal, &shape], vec![]);
    let mut column = vec![1; x.len().saturating_sub(1).max(1)];
    column[0] = -1;
    let column = w.vector(&column);
    let [scale, bias] = [1, 2].map(|input| w.node("Reshape", &[names.input(input), &column], vec![]));
    let scaled = w.node("Mul", &[&normal, &scale], vec![]);
    w.node_to("Add", &[&scaled, &bias], &names.output, vec![]);
}

pub(super) fn batch_norm(w: &mut Writer<'_>, epsilon: f32, momentum: Option<f32>, names: &Names) {
    let mut attributes = vec![float("epsilon", epsilon)];
    // ONNX has the share of the running statistics, and the file is for predictions.
    attributes.extend(momentum.map(|momentum| float("momentum", 1.0 - momentum)));
    w.node_to("BatchNormalization", &names.all(), &names.output, attributes);
}

pub(super) fn resize(
    w: &mut Writer<'_>,
    to: &[Size],
    by: Resampling,
    coordinates: ResizeCoordinates,
    names: &Names,
) -> Result<(), ExportError> {
    let x = names.input(0);
    let outer = w.node("Shape", &[x], vec![integer("start", 0), integer("end", 2)]);
    let inner = w.sizes(&to.iter().copied().map(Some).collect::<Vec<_>>())?;
    let sizes = w.node("Concat", &[&outer, &inner], vec![integer("axis", 0)]);
    let coordinates = match coordinates {
        ResizeCoordinates::HalfPixel => "half_pixel",
        ResizeCoordinates::Asymmetric => "asymmetric",
        ResizeCoordinates::AlignCorners => "align_corners",
    };
    let mut attributes = vec![text("coordinate_transformation_mode", coordinates)];
    match by {
        Resampling::Nearest => attributes.extend([text("mode", "nearest"), text("nearest_mode", "floor")]),
        Resampling::Linear => attributes.push(text("mode", "linear")),
    }
    w.node_to("Resize", &[x, "", "", &sizes], &names.output, attributes);
    Ok(())
}

pub(super) fn recurrent(w: &mut Writer<'_>, of: Recurrence, outputs: Vec<String>, names: &Names) {
    let direction = match of.direction {
        Direction::Forward => "forward",
        Direction::Reverse => "reverse",
        Direction::Both => "bidirectional",
    };
    let mut attributes = vec![integer("hidden_size", of.hidden.into()), text("direction", direction)];
    let operator = match of.cell {
        RecurrentCell::Lstm => "LSTM",
        RecurrentCell::Gru => {
            attributes.push(integer("linear_before_reset", 1));
            "GRU"
        }
        RecurrentCell::Rnn => "RNN",
    };
    let mut inputs = names.all();
    if inputs.len() > 4 {
        // Lengths of the sequences are left out.
        inputs.insert(4, "");
    }
    w.node_to_all(operator, &inputs, outputs, attributes);
}
