//! Layers: products, windows, reductions, normalizations and recurrences.

use graph::{
    Convolution, Direction, Operation, Pool, PoolKind, Recurrence, RecurrentCell, Reduction, Resampling,
    ResizeCoordinates, Size, Values,
};

use super::{Case, Given, case, floats, sizes_of};

fn parameter(shape: &[u32]) -> Given {
    Given::Parameter(shape.to_vec())
}

pub(super) fn products() -> Vec<Case> {
    let gemm = |transpose_a, transpose_b| Operation::Gemm { transpose_a, transpose_b, alpha: 0.7, beta: -1.3 };
    let expand = vec![Operation::Expand { to: sizes_of(&[3, 5]) }];
    vec![
        case("matmul", Operation::MatMul, vec![floats(&[3, 4]), parameter(&[4, 2])]),
        case("matmul_length", Operation::MatMul, vec![floats(&[0, 4]), floats(&[4, 2])]),
        case("matmul_broadcast", Operation::MatMul, vec![floats(&[1, 3, 4]), parameter(&[2, 4, 2])]),
        case("matmul_vector", Operation::MatMul, vec![floats(&[3, 4]), parameter(&[4])]),
        case("gemm", gemm(false, false), vec![floats(&[4]), parameter(&[4, 5]), parameter(&[5])]),
        case("gemm_transposed", gemm(false, true), vec![floats(&[4]), parameter(&[5, 4]), parameter(&[1, 1])]),
        case("gemm_without_c", gemm(false, true), vec![floats(&[4]), parameter(&[5, 4])]),
        Case { after: expand, ..case("gemm_both", gemm(true, true), vec![parameter(&[4, 3]), parameter(&[5, 4])]) },
    ]
}

/// Strides, pads, dilations and groups.
fn convolution(strides: &[u32], pads: &[(u32, u32)], dilations: &[u32], groups: u32) -> Convolution {
    Convolution { strides: strides.to_vec(), pads: pads.to_vec(), dilations: dilations.to_vec(), groups }
}

pub(super) fn windows() -> Vec<Case> {
    let transposed =
        |of, output_padding: &[u32]| Operation::ConvTranspose { of, output_padding: output_padding.to_vec() };
    let plain = convolution(&[1], &[(1, 1)], &[1], 1);
    let rich = convolution(&[2, 1], &[(1, 0), (0, 2)], &[1, 2], 2);
    let back = convolution(&[2, 1], &[(1, 0), (0, 1)], &[1, 2], 2);
    let mut cases = vec![
        case("conv_1d", Operation::Conv(plain.clone()), vec![floats(&[2, 0]), parameter(&[3, 2, 3]), parameter(&[3])]),
        case("conv_2d", Operation::Conv(rich), vec![floats(&[4, 6, 7]), parameter(&[6, 2, 3, 3]), parameter(&[6])]),
        case("conv_transpose_1d", transposed(plain, &[0]), vec![floats(&[2, 0]), parameter(&[2, 3, 3])]),
        case(
            "conv_transpose_2d",
            transposed(back, &[1, 0]),
            vec![floats(&[4, 5, 4]), parameter(&[4, 3, 3, 2]), parameter(&[6])],
        ),
    ];
    for by in [PoolKind::Max, PoolKind::Mean, PoolKind::MeanWithPadding] {
        for ceil in [false, true] {
            let pool = |kernel: &[u32], strides: &[u32], pads: &[(u32, u32)]| {
                let (kernel, strides, pads) = (kernel.to_vec(), strides.to_vec(), pads.to_vec());
                Operation::Pool(Pool { by, kernel, strides, pads, ceil })
            };
            let name = |form: &str| format!("pool_{form}_{by:?}_{ceil}");
            cases.push(case(name("1d"), pool(&[3], &[2], &[(1, 1)]), vec![floats(&[2, 8])]));
            cases.push(case(name("length"), pool(&[2], &[2], &[(0, 0)]), vec![floats(&[2, 0])]));
            cases.push(case(name("2d"), pool(&[3, 2], &[2, 3], &[(1, 0), (0, 1)]), vec![floats(&[2, 8, 6])]));
            cases.push(case(name("edge"), pool(&[2, 3], &[3, 2], &[(1, 1), (2, 2)]), vec![floats(&[2, 5, 6])]));
        }
    }
    for by in [Resampling::Nearest, Resampling::Linear] {
        for coordinates in
            [ResizeCoordinates::HalfPixel, ResizeCoordinates::Asymmetric, ResizeCoordinates::AlignCorners]
        {
            let resize = |to: &[Size]| Operation::Resize { to: to.to_vec(), by, coordinates };
            let name = |form: &str| format!("resize_{form}_{by:?}_{coordinates:?}");
            cases.push(case(name("up"), resize(&[5, 8].map(Size::fixed)), vec![floats(&[2, 3, 4])]));
            cases.push(case(name("down"), resize(&[2, 3].map(Size::fixed)), vec![floats(&[2, 5, 7])]));
            cases.push(case(name("one"), resize(&[1, 3].map(Size::fixed)), vec![floats(&[2, 5, 7])]));
            let twice = Size { factor: 2, batch: 0, length: 1, offset: 0 };
            cases.push(case(name("length"), resize(&[twice]), vec![floats(&[2, 0])]));
        }
    }
    cases
}

pub(super) fn reductions() -> Vec<Case> {
    let mut cases = Vec::new();
    for by in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Product, Reduction::Norm] {
        for keep in [false, true] {
            let reduce = |axes: &[u32]| Operation::Reduce { by, axes: axes.to_vec(), keep };
            let name = |form: &str| format!("reduce_{form}_{by:?}_{keep}");
            cases.push(case(name("two"), reduce(&[1, 3]), vec![floats(&[3, 4, 0])]));
            cases.push(case(name("none"), reduce(&[]), vec![floats(&[3])]));
        }
    }
    cases.extend([
        case("arg_max", Operation::ArgMax { axis: 1 }, vec![floats(&[5, 3])]),
        case("softmax", Operation::Softmax { axis: 1 }, vec![floats(&[5, 3])]),
        case("softmax_length", Operation::Softmax { axis: 2 }, vec![floats(&[3, 0])]),
        case("log_softmax", Operation::LogSoftmax { axis: 1 }, vec![floats(&[5, 3])]),
    ]);
    cases
}

pub(super) fn normalizations() -> Vec<Case> {
    let epsilon = 1e-3;
    let group = |groups| Operation::GroupNorm { groups, epsilon };
    let channels = || [parameter(&[6]), parameter(&[6])];
    let grouped = |x: Given| [vec![x], channels().into()].into_iter().flatten().collect::<Vec<_>>();
    let layer = |axis| Operation::LayerNorm { axis, epsilon };
    let statistics = |name: &str, x: Given| {
        let mean = Given::Constant(vec![6], Values::F32(vec![0.1, -0.2, 0.3, 0.0, 0.5, -0.6]));
        let variance = Given::Constant(vec![6], Values::F32(vec![1.1, 0.2, 0.3, 2.0, 0.5, 0.6]));
        let [scale, bias] = channels();
        case(name, Operation::BatchNorm { epsilon, momentum: None }, vec![x, scale, bias, mean, variance])
    };
    vec![
        case("layer_norm", layer(2), vec![floats(&[3, 5]), parameter(&[5]), parameter(&[5])]),
        case("layer_norm_two_axes", layer(1), vec![floats(&[3, 5]), parameter(&[3, 5]), parameter(&[3, 5])]),
        case("layer_norm_without_bias", layer(2), vec![floats(&[0, 5]), parameter(&[5])]),
        case("group_norm", group(3), grouped(floats(&[6, 3, 2]))),
        case("group_norm_length", group(2), grouped(floats(&[6, 0]))),
        case("group_norm_flat", group(3), grouped(floats(&[6]))),
        case("instance_norm", group(6), grouped(floats(&[6, 3, 2]))),
        statistics("batch_norm", floats(&[6, 3, 2])),
        statistics("batch_norm_flat", floats(&[6])),
        case("dropout", Operation::Dropout { rate: 0.5 }, vec![floats(&[6])]),
    ]
}

pub(super) fn recurrences() -> Vec<Case> {
    let mut cases = Vec::new();
    let hidden = 3;
    for (cell, gates, states) in [(RecurrentCell::Lstm, 4, 2), (RecurrentCell::Gru, 3, 1), (RecurrentCell::Rnn, 1, 1)] {
        for (direction, directions) in [(Direction::Forward, 1), (Direction::Reverse, 1), (Direction::Both, 2)] {
            for given in 0..=states {
                for result in 0..=states {
                    let x = Given::Moved(Operation::Transpose { order: vec![1, 0, 2] }, floats(&[0, 5]).into());
                    let mut inputs = vec![x];
                    inputs.extend([
                        parameter(&[directions, gates * hidden, 5]),
                        parameter(&[directions, gates * hidden, hidden]),
                        parameter(&[directions, 2 * gates * hidden]),
                    ]);
                    let swap = || Operation::Transpose { order: vec![1, 0, 2] };
                    let state = || Given::Moved(swap(), floats(&[directions.into(), hidden.into()]).into());
                    inputs.extend((0..given).map(|_| state()));
                    let order = if result == 0 { vec![2, 0, 1, 3] } else { vec![1, 0, 2] };
                    let operation = Operation::Recurrent(Recurrence { cell, hidden, direction });
                    let name = format!("{cell:?}_{direction:?}_{given}_states_result_{result}");
                    let after = vec![Operation::Transpose { order }];
                    cases.push(Case { result, after, ..case(name, operation, inputs) });
                }
            }
        }
    }
    cases
}
