//! candle against the CPU executor: results, gradients and steps.

use std::sync::Arc;

use candle_core::{DType, Device, Var};
use graph::{Activation, Graph, GraphModel, Operation, Point, Pool, PoolKind, Reduction, ValueId};

use super::executor::CandleExecutor;
use super::pass::Pass;
use crate::train::graph::executor::Executor;
use crate::train::graph::tensor::Tensor as Elements;
use crate::train::graph::tests::{case, numbers};
use crate::trainer::Interrupt;

mod deep;
mod random;
mod steps;

/// Parameters of a graph as variables.
fn variables(graph: &Graph, mut flat: &[f32]) -> Vec<Var> {
    let variable = |parameter: &graph::Parameter| {
        let shape: Vec<usize> = parameter.shape.iter().map(|&size| size as usize).collect();
        let (own, rest) = flat.split_at(shape.iter().product());
        flat = rest;
        Var::from_slice(own, shape, &Device::Cpu).unwrap()
    };
    graph.parameters.iter().map(variable).collect()
}

/// A value on candle's CPU, and the gradient of each parameter, given that of the value.
pub(in crate::train::graph) fn computed(
    graph: &Graph,
    inputs: &[Elements],
    parameters: &[f32],
    point: Point,
    (of, gradient): (ValueId, &[f32]),
    dropout: Option<u64>,
) -> (Vec<f32>, Vec<Vec<f32>>) {
    let parameters = variables(graph, parameters);
    let mut executor = CandleExecutor::new(graph, &Device::Cpu, DType::F32).unwrap();
    let variables = executor.variables(&parameters).unwrap();
    let pass: Pass<'_> = executor.forward(inputs, variables, point, dropout).unwrap();
    let value = pass.floats(of).unwrap();
    let gradients = pass.backward(of, gradient, &Interrupt::default()).unwrap();
    let flat = |(gradient, parameter): (Option<candle_core::Tensor>, &Var)| match gradient {
        Some(gradient) => {
            assert_eq!(gradient.dims(), parameter.dims());
            gradient.flatten_all().unwrap().to_vec1().unwrap()
        }
        None => vec![0.0; parameter.elem_count()],
    };
    let gradients = gradients.into_iter().zip(&parameters).map(flat).collect();
    let fixed = executor.fixed(&parameters).unwrap();
    let without = executor.forward(inputs, fixed, point, dropout).unwrap();
    assert_eq!(without.floats(of).unwrap(), value, "the same without gradients");
    (value, gradients)
}

/// The largest difference, relative to the largest expected value, at least `least`.
fn worst(found: &[f32], expected: &[f32], least: f32) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(least, |largest, value| largest.max(value.abs()));
    let difference = |(found, expected): (&f32, &f32)| {
        if found.is_nan() && expected.is_nan() || found == expected { 0.0 } else { (found - expected).abs() / largest }
    };
    // NaN is no agreement.
    found.iter().zip(expected).map(difference).fold(0.0, |worst, own| if own <= worst { worst } else { own })
}

/// Asserts that output and gradients are those of the CPU, to 1e-5 and 1e-4 of the largest value.
pub(in crate::train::graph) fn compare(
    model: &Arc<GraphModel>,
    inputs: &[Elements],
    parameters: &[f32],
    point: Point,
    dropout: Option<u64>,
    what: &str,
) {
    let mut executor = Executor::new(Arc::clone(model));
    executor.prepare(point).unwrap();
    executor.inputs().clone_from_slice(inputs);
    executor.set_parameters(parameters);
    executor.forward(dropout).unwrap();
    let expected = executor.value(model.output()).to_vec();
    let weights: Vec<f32> = numbers(expected.len(), 5).iter().map(|number| number + 0.25).collect();
    let mut expected_gradient = vec![f32::NAN; parameters.len()];
    executor.backward(model.output(), &weights, &mut expected_gradient).unwrap();

    let seed = (model.output(), &weights[..]);
    let (output, gradients) = computed(model.graph(), inputs, parameters, point, seed, dropout);
    let error = worst(&output, &expected, 1e-3);
    assert!(error < 1e-5, "{what}: the output differs by {error}: {output:?}, {expected:?}");
    let largest = expected_gradient.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let mut rest = &expected_gradient[..];
    for (number, gradient) in gradients.iter().enumerate() {
        let (own, after) = rest.split_at(gradient.len());
        rest = after;
        let error = worst(gradient, own, (1e-2 * largest).max(1e-3));
        assert!(error < 1e-4, "{what}: the gradient of parameter {number} differs by {error}: {gradient:?}, {own:?}");
    }
}

#[test]
fn kinks_and_bounds_have_the_cpu_gradients() {
    let points = [-6.0, -3.0, -2.5, -1.0, -0.5, 0.0, 0.5, 1.0, 2.5, 3.0, 6.0];
    for activation in [
        Activation::Abs,
        Activation::Relu,
        Activation::LeakyRelu { alpha: 0.1 },
        Activation::Elu { alpha: 0.7 },
        Activation::Softplus,
        Activation::HardSigmoid { alpha: 0.2, beta: 0.5 },
        Activation::HardSwish,
        Activation::Clip { min: Some(-1.0), max: Some(1.0) },
        Activation::Clip { min: None, max: Some(0.5) },
        Activation::Floor,
        Activation::Ceil,
        Activation::Sign,
    ] {
        case("kink", &[&[11]], Operation::Activation(activation)).compare(&points, None);
    }
    // Large values, where a naive formula overflows or has no digits.
    let large = [-200.0, -40.0, -20.0, -17.0, 17.0, 20.0, 40.0, 80.0, 200.0, 1.0, 2.0];
    for activation in [Activation::Softplus, Activation::Sigmoid, Activation::Tanh, Activation::GeluTanh] {
        case("large", &[&[11]], Operation::Activation(activation)).compare(&large, None);
    }
}

#[test]
fn softplus_of_a_negative_number_has_digits() {
    let case = case("softplus", &[&[1]], Operation::Activation(Activation::Softplus));
    let (model, point) = (case.model(), Point { batch: 1, length: 1 });
    let seed = (model.output(), &[1.0][..]);
    let (value, gradient) = computed(model.graph(), &[Elements::F32(vec![1.0])], &[-20.0], point, seed, None);
    let expected = (-20.0_f32).exp();
    assert!((value[0] / expected - 1.0).abs() < 1e-5 && (gradient[0][0] / expected - 1.0).abs() < 1e-5);
}

#[test]
fn ties_give_the_gradient_to_the_first() {
    let tied = [1.0, 3.0, 3.0, 0.0, 3.0, 1.0, 2.0, 2.0, 2.0, 2.0, 5.0, 5.0];
    for by in [Reduction::Max, Reduction::Min] {
        for axes in [vec![0], vec![1], vec![0, 1], vec![]] {
            case("tie", &[&[3, 4]], Operation::Reduce { by, axes, keep: false }).compare(&tied, None);
        }
    }
    let pool = |pads| Pool { by: PoolKind::Max, kernel: vec![2, 3], strides: vec![1, 1], pads, ceil: false };
    case("tied pool", &[&[1, 1, 3, 4]], Operation::Pool(pool(vec![(0, 0); 2]))).compare(&tied, None);
    case("tied pool", &[&[1, 1, 3, 4]], Operation::Pool(pool(vec![(1, 0), (1, 1)]))).compare(&[0.0; 12], None);
    for kind in [graph::Arithmetic::Min, graph::Arithmetic::Max] {
        case("tie of two", &[&[3], &[3]], Operation::Arithmetic(kind)).compare(&[1.0, 2.0, 3.0, 1.0, 3.0, 2.0], None);
    }
}

#[test]
fn zeros_have_the_cpu_gradients() {
    let zeros = [0.0, 0.0, 0.0, 2.0, 0.0, 3.0, 1.0, -2.0, 4.0];
    for by in [Reduction::Product, Reduction::Norm] {
        case("zero", &[&[3, 3]], Operation::Reduce { by, axes: vec![1], keep: true }).compare(&zeros, None);
    }
    // Powers of positive and negative numbers and of zero, each with its own exponent.
    let power = Operation::Arithmetic(graph::Arithmetic::Pow);
    let (bases, exponents) = ([2.0, -2.0, -3.0, 0.0, 0.0, 1.5], [0.5, 3.0, 2.0, 2.0, 1.0, -2.0]);
    case("power", &[&[6], &[6]], power).compare(&[bases, exponents].concat(), None);
    let modulo = Operation::Arithmetic(graph::Arithmetic::Mod);
    case("modulo", &[&[2, 3], &[3]], modulo).compare(&[5.5, -5.5, 2.0, 1.0, 7.0, -3.0, 2.0, 3.0, -2.0], None);
}

#[test]
fn dropout_draws_what_the_cpu_draws() {
    let case = case("dropout", &[&[5, 20]], Operation::Dropout { rate: 0.4 });
    let start = case.start();
    for seed in 0..3 {
        case.compare(&start, Some(seed));
    }
}

#[test]
fn integer_outside_an_axis_names_the_node() {
    let case = case("gather", &[&[4, 3]], Operation::Gather { axis: 0 });
    let case = case.with(crate::train::graph::tests::ints(&[2], &[1, 4]));
    let model = case.model();
    let parameters = variables(model.graph(), &case.start());
    let mut executor = CandleExecutor::new(model.graph(), &Device::Cpu, DType::F32).unwrap();
    let fixed = executor.fixed(&parameters).unwrap();
    let failed = executor.forward(&[Elements::F32(vec![1.0])], fixed, Point { batch: 1, length: 1 }, None);
    let error = failed.err().unwrap().to_string();
    assert!(error.contains("node 0 (gather): position 4 is outside an axis of 4"), "{error}");
}
