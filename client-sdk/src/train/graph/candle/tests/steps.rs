//! Steps of a training on candle against the CPU's.

use std::sync::Arc;

use graph::{Constant, Graph, GraphModel, Input, Loss, Node, Operation, Output, Parameter, Size, ValueId, Values};
use learning::Parameters;
use task_spec::{LocalOptimizer, Precision, TrainingPlan};

use super::worst;
use crate::models::{Architecture, Cnn, Mlp};
use crate::train::constraints::Flat;
use crate::train::graph::imported::table;
use crate::train::graph::tests::{cnn_graph, mlp_graph, numbers};
use crate::train::learner::StepResult;
use crate::train::{Column, Device, Examples, TargetColumn, evaluate, learner};
use crate::trainer::Constraints;

fn candle() -> Device {
    Device::Candle(candle_core::Device::Cpu)
}

/// Parameters after some steps, in chunks of at most 4 examples, with the sum of the losses.
fn trained(
    architecture: &Architecture,
    start: &Parameters,
    examples: &Examples<'_>,
    plan: &TrainingPlan,
    constraints: &Flat<'_>,
    device: &Device,
) -> (f64, Vec<f32>) {
    let mut learner = learner(architecture, start, examples, plan, device, 4).unwrap();
    learner.constrain(constraints).unwrap();
    let mut loss = 0.0;
    for chosen in [&[0, 1, 2, 3][..], &[4, 5, 6, 7, 8, 9], &[3, 9], &[7, 1, 2, 0]] {
        let (score, result) = learner.step(examples, chosen, 0.05).unwrap();
        assert_eq!((result, score.predictions > 0), (StepResult::Taken, true));
        loss += score.loss;
    }
    (loss, learner.values().unwrap())
}

/// Plans with everything that a step can contain.
fn plans() -> [TrainingPlan; 3] {
    let plain = TrainingPlan { batch_size: 4, learning_rate: 0.05, ..TrainingPlan::default() };
    // A large epsilon hides the rounding of gradients near zero, which is not compared.
    let optimizer = LocalOptimizer::AdamW { beta1: 0.8, beta2: 0.95, epsilon: 1e-2 };
    let momentum = TrainingPlan { momentum: 0.9, weight_decay: 0.01, proximal_mu: 0.1, ..plain.clone() };
    [
        TrainingPlan { gradient_clip: Some(0.5), ..momentum },
        TrainingPlan { optimizer, weight_decay: 0.1, proximal_mu: 0.5, ..plain.clone() },
        plain,
    ]
}

/// Asserts that both devices take the same steps, with and without constraints.
fn compare(architecture: &Architecture, examples: &Examples<'_>) {
    let start = architecture.initial(3).unwrap();
    let mut anchor = start.clone();
    anchor.values_mut().iter_mut().for_each(|value| *value += 0.05);
    let mut correction = start.clone();
    correction.values_mut().iter_mut().for_each(|value| *value = 0.01);
    let frozen: Vec<bool> = (0..start.layout().tensors().len()).map(|index| index == 0).collect();
    let constrained = Constraints { anchor: Some(&anchor), frozen: &frozen, correction: Some(&correction) };
    for plan in plans() {
        for constraints in [Constraints::default(), constrained] {
            let flat = constraints.flat(&start);
            let run = |device| trained(architecture, &start, examples, &plan, &flat, &device);
            let ((loss, values), (expected_loss, expected)) = (run(candle()), run(Device::Cpu));
            assert!((loss - expected_loss).abs() < 1e-4 * expected_loss.abs().max(1.0), "{loss}, not {expected_loss}");
            let error = worst(&values, &expected, 1e-3);
            assert!(error < 1e-5, "{plan:?}: {error}");
        }
    }
    let scored = |device| evaluate(architecture, &start, *examples, &device).unwrap();
    let (found, expected) = (scored(candle()), scored(Device::Cpu));
    assert!((found.loss - expected.loss).abs() < 1e-5 * expected.loss.abs().max(1.0));
    assert_eq!(found.accuracy, expected.accuracy);
}

#[test]
fn steps_of_dense_and_image_graphs_equal_the_cpu() {
    let labels: Vec<u32> = (0..10).map(|index| index % 3).collect();
    let features = numbers(10 * 6, 1);
    let examples = Examples::Labelled { features: &features, labels: &labels, width: 6 };
    compare(&mlp_graph(&Mlp { inputs: 6, hidden: vec![9, 5], classes: 3 }), &examples);
    let features = numbers(10 * 144, 2);
    let examples = Examples::Labelled { features: &features, labels: &labels, width: 144 };
    compare(&cnn_graph(&Cnn { height: 9, width: 8, channels: 2, classes: 3 }), &examples);
}

#[test]
fn steps_of_a_table_with_embeddings_equal_the_cpu() {
    let (model, _) = table();
    let (numbers, kinds): (Vec<f32>, Vec<i64>) = (numbers(40, 4), (0..10).map(|index| index % 5).collect());
    let targets: Vec<f32> = numbers.chunks(4).map(|row| row[0] - 2.0 * row[3]).collect();
    let inputs = [Column::F32(&numbers), Column::I64(&kinds)];
    let examples =
        Examples::Tensors { inputs: &inputs, targets: TargetColumn::Numbers(&targets), count: 10, length: 1 };
    compare(&Architecture::Graph(model), &examples);
}

/// `(x * first) * mask`, with a parameter that has no influence and dropout.
fn with_dropout(mask: f32) -> Architecture {
    let mut graph = Graph {
        version: Graph::VERSION,
        lengths: None,
        inputs: vec![Input {
            name: "x".into(),
            element: graph::Element::F32,
            shape: vec![Size::BATCH, Size::fixed(3)],
        }],
        parameters: vec![
            Parameter { name: "first".into(), shape: vec![3, 2] },
            Parameter { name: "unused".into(), shape: vec![2] },
        ],
        constants: vec![Constant { name: String::new(), shape: vec![2], values: Values::F32(vec![mask, 1.0]) }],
        nodes: vec![],
        outputs: vec![Output { name: "y".into(), value: ValueId(6) }],
    };
    let node = |operation, inputs| Node { name: String::new(), operation, inputs };
    graph.nodes = vec![
        node(Operation::MatMul, vec![ValueId(0), ValueId(1)]),
        node(Operation::Dropout { rate: 0.5 }, vec![ValueId(4)]),
        node(Operation::Arithmetic(graph::Arithmetic::Mul), vec![ValueId(5), ValueId(3)]),
    ];
    Architecture::Graph(Arc::new(GraphModel::new(graph, Loss::CROSS_ENTROPY).unwrap()))
}

#[test]
fn steps_with_an_unused_parameter_equal_the_cpu() {
    let (features, labels) = (numbers(30, 6), [0, 1, 1, 0, 1, 0, 0, 1, 0, 1]);
    compare(&with_dropout(2.0), &Examples::Labelled { features: &features, labels: &labels, width: 3 });
}

#[test]
fn passes_in_16_bits_learn_about_the_same() {
    let architecture = mlp_graph(&Mlp { inputs: 6, hidden: vec![17], classes: 3 });
    let (features, labels) = (numbers(60 * 6, 7), (0..60).map(|index| index % 3).collect::<Vec<u32>>());
    let examples = Examples::Labelled { features: &features, labels: &labels, width: 6 };
    let start = architecture.initial(3).unwrap();
    let all: Vec<usize> = (0..60).collect();
    let losses = |precision| {
        let plan = TrainingPlan { precision, ..TrainingPlan::default() };
        let device = candle();
        let mut learner = learner(&architecture, &start, &examples, &plan, &device, 16).unwrap();
        for _ in 0..60 {
            learner.step(&examples, &all, 0.5).unwrap();
        }
        let values = learner.values().unwrap();
        let learnt = Parameters::new(start.layout().clone(), values).unwrap();
        (evaluate(&architecture, &learnt, examples, &Device::Cpu).unwrap().loss, learnt.values().to_vec())
    };
    let before = evaluate(&architecture, &start, examples, &Device::Cpu).unwrap().loss;
    let (full, exact) = losses(Precision::F32);
    for precision in [Precision::F16, Precision::Bf16] {
        let (loss, values) = losses(precision);
        assert_ne!(values, exact, "{precision:?}: the passes were in 32 bits");
        assert!((loss - full).abs() < 0.1 * (before - full), "{precision:?}: {loss} instead of {full} from {before}");
    }
}

#[test]
fn overflow_in_16_bits_skips_a_step() {
    let architecture = mlp_graph(&Mlp { inputs: 6, hidden: vec![], classes: 3 });
    // In 16 bits 65504 is the largest number: a gradient of 3000 is finite, and 3000 times a scale of 2^16 is not.
    let features: Vec<f32> = numbers(24, 8).iter().map(|number| 6000.0 * number).collect();
    let examples = Examples::Labelled { features: &features, labels: &[0, 1, 2, 0], width: 6 };
    let (start, plan) =
        (architecture.initial(3).unwrap(), TrainingPlan { precision: Precision::F16, ..Default::default() });
    let device = candle();
    let mut learner = learner(&architecture, &start, &examples, &plan, &device, 4).unwrap();
    let mut skipped = 0;
    while learner.step(&examples, &[0, 1, 2, 3], 1e-6).unwrap().1 == StepResult::Skipped {
        assert_eq!(learner.values().unwrap(), start.values(), "a skipped step changes nothing");
        skipped += 1;
        assert!(skipped < 20);
    }
    assert!(skipped > 0);
    assert_ne!(learner.values().unwrap(), start.values());
}

#[test]
fn large_constant_stays_finite_in_16_bits() {
    let architecture = with_dropout(-3e38);
    let (start, device) = (architecture.initial(3).unwrap(), candle());
    let examples = Examples::Labelled { features: &[0.0; 3], labels: &[0], width: 3 };
    for precision in [Precision::F16, Precision::Bf16] {
        let plan = TrainingPlan { precision, ..TrainingPlan::default() };
        let mut learner = learner(&architecture, &start, &examples, &plan, &device, 1).unwrap();
        let logits = learner.logits(&examples, &[0]).unwrap();
        assert!(logits.iter().all(|logit| *logit == 0.0), "{precision:?}: {logits:?}");
    }
}

#[test]
fn loss_that_is_not_finite_names_the_node() {
    let architecture = mlp_graph(&Mlp { inputs: 6, hidden: vec![4], classes: 3 });
    let mut start = architecture.initial(3).unwrap();
    start.values_mut()[0] = f32::INFINITY;
    let examples = Examples::Labelled { features: &[1.0; 6], labels: &[0], width: 6 };
    let (plan, device) = (TrainingPlan::default(), candle());
    let mut learner = learner(&architecture, &start, &examples, &plan, &device, 1).unwrap();
    let error = learner.step(&examples, &[0], 0.1).unwrap_err().to_string();
    assert!(error.contains("(gemm): its result is not finite"), "{error}");
}
