//! Parameters that do not train: the others get the same bits as if all did.

use std::ops::Range;
use std::sync::Arc;

use graph::{GraphModel, Point};
use learning::{Adapters, Parameters, Patterns};
use task_spec::{LocalOptimizer, TrainingPlan};

use crate::models::Architecture;
use crate::train::adapted::train_on_gradients;
use crate::train::graph::executor::Executor;
use crate::train::graph::imported::transformer;
use crate::train::graph::learner::GraphLearner;
use crate::train::graph::tensor::Tensor;
use crate::train::learner::Learner;
use crate::train::steering::While;
use crate::train::{AdaptedBase, Column, Device, Examples, Sgd, TargetColumn, train, train_adapters, train_while};
use crate::trainer::Constraints;

const LENGTH: u32 = 5;

fn tokens(count: usize) -> Vec<i64> {
    (0..count).map(|index| i64::try_from(index * index % 7).unwrap()).collect()
}

/// The gradient of the transformer after a forward pass; elements that are not written are NaN.
fn gradient(executor: &mut Executor, model: &GraphModel, parameters: &[f32], batch: u32) -> Vec<f32> {
    executor.prepare(Point { batch, length: LENGTH }).unwrap();
    *executor.input(0).unwrap() = Tensor::I64(tokens((batch * LENGTH) as usize));
    executor.set_parameters(parameters);
    executor.forward(None).unwrap();
    let delta: Vec<f32> = executor.value(model.output()).iter().map(|value| 0.1 * value.tanh() - 0.03).collect();
    let mut flat = vec![f32::NAN; parameters.len()];
    executor.backward(model.output(), &delta, &mut flat).unwrap();
    flat
}

/// Positions of each tensor among the flat parameters.
fn ranges(model: &GraphModel) -> Vec<Range<usize>> {
    let mut end = 0;
    let parameters = model.graph().parameters.iter();
    let range = |length: usize| {
        end += length;
        end - length..end
    };
    parameters.map(|parameter| parameter.shape.iter().product::<u32>() as usize).map(range).collect()
}

#[test]
fn trained_gradient_equals_that_of_a_full_pass() {
    let (model, start) = transformer();
    let ranges = ranges(&model);
    // Each tensor alone, and two sets.
    let alone = (0..ranges.len()).map(|one| (0..ranges.len()).map(|tensor| tensor == one).collect());
    let sets = [2, 3].map(|every| (0..ranges.len()).map(|tensor| tensor % every == 0).collect());
    for trains in alone.chain(sets) {
        let trains: Vec<bool> = trains;
        let (mut all, mut some) = (Executor::new(Arc::clone(&model)), Executor::new(Arc::clone(&model)));
        some.train_only(trains.clone());
        let mut parameters = start.clone();
        for batch in [4, 4, 2, 4] {
            let expected = gradient(&mut all, &model, &parameters, batch);
            let found = gradient(&mut some, &model, &parameters, batch);
            for (range, &trains) in ranges.iter().zip(&trains) {
                if trains {
                    assert_eq!(found[range.clone()], expected[range.clone()]);
                    parameters[range.clone()].iter_mut().zip(&found[range.clone()]).for_each(|(p, g)| *p -= 0.01 * g);
                } else {
                    assert!(found[range.clone()].iter().all(|value| value.is_nan()), "it is left as it was");
                }
            }
        }
    }
}

/// Ten sequences of the transformer, of which each target is the next token.
fn with_examples<T>(then: impl FnOnce(Examples<'_>) -> T) -> T {
    let (length, count) = (LENGTH as usize, 10);
    let ids = tokens(count * length);
    let targets: Vec<u32> = (1..=count * length).map(|index| u32::try_from(index * index % 7).unwrap()).collect();
    let inputs = [Column::I64(&ids)];
    then(Examples::Tensors { inputs: &inputs, targets: TargetColumn::Classes(&targets), count, length })
}

fn start() -> (Architecture, Arc<GraphModel>, Parameters) {
    let (model, values) = transformer();
    let architecture = Architecture::Graph(Arc::clone(&model));
    let layout = Arc::clone(architecture.initial(1).unwrap().layout());
    (architecture, model, Parameters::new(layout, values).unwrap())
}

#[test]
fn adapters_train_as_with_a_full_pass_for_each_step() {
    let (architecture, model, base) = start();
    let patterns = Patterns::new(vec!["qkv.weight".into(), "down.weight".into()]).unwrap();
    let adapters = Adapters::new(base.layout(), &patterns, 3, Some(6.0)).unwrap();
    let start = adapters.initial(4).unwrap();
    let adapted = AdaptedBase { base: &base, start: &start, adapters: &adapters };
    let adamw = LocalOptimizer::AdamW { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 };
    for optimizer in [LocalOptimizer::Sgd {}, adamw] {
        // Batches of 4, 4 and 2 examples.
        let plan = TrainingPlan { optimizer, epochs: 3, batch_size: 4, learning_rate: 0.05, ..Default::default() };
        let sgd = Sgd { plan: &plan, seed: 5 };
        with_examples(|examples| {
            let mut full = |merged: &Parameters, chosen: &[usize]| {
                GraphLearner::new(&model, merged.values(), &plan, chosen.len()).gradient(&examples, chosen)
            };
            let steering = &mut While(&mut |_| true);
            let expected = train_on_gradients(adapted, examples.count(), sgd, steering, &mut full).unwrap();
            let found = train_adapters(&architecture, adapted, examples, sgd, &Device::Cpu, &mut |_| true).unwrap();
            assert_eq!(found.delta, expected.delta);
            assert_eq!(found.mean_loss, expected.mean_loss);
            assert!(found.delta.iter().all(|value| *value != 0.0));
        });
    }
}

#[test]
fn frozen_tensors_change_no_bit_of_the_others() {
    let (architecture, model, start) = start();
    let plan = TrainingPlan { steps: Some(1), batch_size: 4, learning_rate: 0.05, ..Default::default() };
    let sgd = Sgd { plan: &plan, seed: 5 };
    let frozen: Vec<bool> = (0..ranges(&model).len()).map(|tensor| tensor % 3 != 1).collect();
    with_examples(|examples| {
        let all = train(&architecture, &start, examples, sgd, &Device::Cpu).unwrap().delta;
        let constraints = Constraints { frozen: &frozen, ..Constraints::default() };
        let go_on = &mut |_| true;
        let some = train_while(&architecture, &start, examples, sgd, &Device::Cpu, constraints, go_on).unwrap().delta;
        for (range, frozen) in ranges(&model).into_iter().zip(&frozen) {
            let expected = if *frozen { vec![0.0; range.len()] } else { all[range.clone()].to_vec() };
            assert_eq!(some[range], expected);
        }
    });
}
