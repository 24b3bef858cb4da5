//! Trainings of candle modules, compared with those of the ready models.

use std::sync::Mutex;

use candle_core::DType;
use candle_nn::loss::cross_entropy;
use candle_nn::{BatchNorm, Linear, Module as _, ModuleT as _, batch_norm, linear};
use learning::{Layout, Patterns, TensorSpec, initialize};
use task_spec::{Initial, LocalOptimizer, Precision, TensorDeclaration, TrainingPlan};
use zeroize::Zeroizing;

use super::*;
use crate::checkpoints::{Checkpoints, Keep, NotKept};
use crate::model_trainer::ModelTrainer;
use crate::models::{Architecture, Mlp};
use crate::trainer::{Cancel, Purpose};

/// Rows of `width` numbers from -1 to 1 with classes, repeatable.
pub(super) fn rows(count: usize, width: usize, classes: u32) -> Dataset {
    let mut state = 7_u32;
    let mut draw = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    Dataset::Labelled {
        features: (0..count * width).map(|_| draw() as f32 / 8_388_608.0 - 1.0).collect(),
        labels: (0..count).map(|_| draw() % classes).collect(),
        width,
    }
}

/// A model of these tensors, drawn uniformly from -0.5 to 0.5.
pub(super) fn model(tensors: &[(&str, &[u64])]) -> Parameters {
    let spec = |(name, shape): &(&str, &[u64])| TensorSpec { name: (*name).to_owned(), shape: shape.to_vec() };
    let layout = Arc::new(Layout::new(tensors.iter().map(spec).collect()).unwrap());
    let init = Initial::Uniform { bound: 0.5 };
    let declared =
        |(name, shape): &(&str, &[u64])| TensorDeclaration { name: (*name).to_owned(), shape: shape.to_vec(), init };
    let declared: Vec<_> = tensors.iter().map(declared).collect();
    initialize(layout, &declared, 5).unwrap()
}

pub(super) fn job(plan: TrainingPlan) -> TrainingJob {
    TrainingJob {
        task: "t".into(),
        round: 1,
        purpose: Purpose::Shared,
        plan,
        architecture: None,
        table: None,
        analytics: None,
        metrics: vec![],
        seed: 3,
        deadline: None,
        cancel: Cancel::default(),
        checkpoints: Checkpoints::default(),
    }
}

fn sizes() -> Architecture {
    Architecture::Mlp(Mlp { inputs: 13, hidden: vec![17], classes: 5 })
}

fn mlp() -> CandleTrainer<(Linear, Linear), Dataset> {
    let build = |vb: VarBuilder<'static>| Ok((linear(13, 17, vb.pp("fc1"))?, linear(17, 5, vb.pp("fc2"))?));
    CandleTrainer::new(build, logits_loss, rows(20, 13, 5))
}

fn logits_loss((first, second): &(Linear, Linear), (rows, labels): &(Tensor, Tensor)) -> Result<Tensor> {
    let rows = rows.to_dtype(first.weight().dtype())?;
    cross_entropy(&second.forward(&first.forward(&rows)?.relu()?)?.to_dtype(DType::F32)?, labels)
}

/// Everything of a plan that changes steps.
fn plans() -> Vec<TrainingPlan> {
    let plain = TrainingPlan { epochs: 2, batch_size: 4, learning_rate: 0.1, ..TrainingPlan::default() };
    let adamw = LocalOptimizer::AdamW { beta1: 0.8, beta2: 0.95, epsilon: 1e-2 };
    let half = task_spec::Schedule::Step { every: 2, factor: 0.5, over: task_spec::Over::Steps };
    vec![
        TrainingPlan { schedule: Some(half), ..plain.clone() },
        TrainingPlan { optimizer: adamw, weight_decay: 0.01, proximal_mu: 0.5, ..plain.clone() },
        TrainingPlan {
            momentum: 0.9,
            weight_decay: 0.01,
            proximal_mu: 0.1,
            gradient_clip: Some(0.5),
            accumulate: 2,
            ..plain
        },
    ]
}

fn close(ours: &[f32], expected: &[f32]) {
    let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    assert_eq!(ours.len(), expected.len());
    for (ours, expected) in ours.iter().zip(expected) {
        assert!((ours - expected).abs() <= 1e-5 * largest, "{ours} {expected}");
    }
}

#[test]
fn module_trains_like_the_ready_mlp() {
    let (start, anchor) = (sizes().initial(1).unwrap(), sizes().initial(2).unwrap());
    let mut correction = anchor.clone();
    correction.values_mut().iter_mut().for_each(|value| *value *= 0.1);
    let frozen = [true, false, false, false];
    let constrained = Constraints { anchor: Some(&anchor), correction: Some(&correction), frozen: &frozen };
    for plan in plans() {
        for constraints in [Constraints::default(), constrained] {
            let ours = mlp().train_within(&start, &job(plan.clone()), constraints).unwrap();
            let architecture = Some(serde_json::to_value(sizes()).unwrap());
            let ready = TrainingJob { architecture, ..job(plan.clone()) };
            let mut trainer = ModelTrainer::new(rows(20, 13, 5), rows(0, 13, 5), Device::Cpu);
            let expected = trainer.train_within(&start, &ready, constraints).unwrap();
            close(ours.parameters.values(), expected.parameters.values());
            assert_ne!(ours.parameters, start);
            assert_eq!(ours.metrics[1], expected.metrics[1], "the reach");
            assert!((ours.metrics[0].1.value - expected.metrics[0].1.value).abs() < 1e-5, "the loss");
        }
    }
}

#[test]
fn module_adapters_equal_those_of_the_ready_mlp() {
    let base = sizes().initial(1).unwrap();
    let adapters = Adapters::new(base.layout(), &Patterns::new(vec!["fc*.weight".into()]).unwrap(), 2, None).unwrap();
    let start = adapters.initial(4).unwrap();
    for plan in plans() {
        let ours = mlp().train_adapters(&base, &start, &job(plan.clone()), &adapters).unwrap();
        let architecture = Some(serde_json::to_value(sizes()).unwrap());
        let ready = TrainingJob { architecture, ..job(plan) };
        let mut trainer = ModelTrainer::new(rows(20, 13, 5), rows(0, 13, 5), Device::Cpu);
        let expected = trainer.train_adapters(&base, &start, &ready, &adapters).unwrap();
        close(ours.parameters.values(), expected.parameters.values());
        assert_ne!(ours.parameters, start);
    }
}

/// Pauses the training after each step.
#[derive(Default)]
struct Slices(Mutex<Option<Vec<u8>>>);

impl Keep for Slices {
    fn load(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.0.lock().unwrap().clone().map(Zeroizing::new)
    }

    fn has_state(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }

    fn save(&self, state: &[u8], _: bool) -> std::result::Result<(), NotKept> {
        *self.0.lock().unwrap() = Some(state.to_vec());
        Ok(())
    }

    fn is_due(&self) -> bool {
        false
    }

    fn should_pause(&self) -> bool {
        true
    }

    fn must_pause(&self) -> bool {
        true
    }
}

/// The training with a pause after each step, each time with a new trainer.
fn sliced<N, D: CandleData>(
    trainer: &dyn Fn() -> CandleTrainer<N, D>,
    start: &Parameters,
    plan: &TrainingPlan,
) -> (Trained, u64) {
    let checkpoints = Checkpoints::new(Arc::new(Slices::default()));
    let sliced = TrainingJob { checkpoints, ..job(plan.clone()) };
    for runs in 1..100 {
        match trainer().train(start, &sliced) {
            Err(TrainerError::Paused) => {}
            result => return (result.unwrap(), runs),
        }
    }
    panic!("the training does not end");
}

#[test]
fn resumed_training_has_the_same_bits() {
    let start = sizes().initial(1).unwrap();
    for plan in plans() {
        let whole = mlp().train(&start, &job(plan.clone())).unwrap();
        let (resumed, runs) = sliced(&mlp, &start, &plan);
        assert_eq!(whole, resumed, "{plan:?}");
        assert_eq!(runs, whole.metrics[1].1.count, "each run takes one step");
    }
}

#[test]
fn gradient_check_leaves_the_result_as_it_is() {
    let start = sizes().initial(1).unwrap();
    let plan = plans().remove(2);
    let checked = mlp().train(&start, &job(plan.clone())).unwrap();
    assert_eq!(checked, mlp().without_gradient_check().train(&start, &job(plan)).unwrap());
}

/// A linear layer and batch normalization with running statistics.
fn normalized() -> CandleTrainer<(Linear, BatchNorm), Dataset> {
    let build = |vb: VarBuilder<'static>| Ok((linear(6, 3, vb.pp("fc"))?, batch_norm(3, 1e-5, vb.pp("bn"))?));
    let loss = |(layer, norm): &(Linear, BatchNorm), (rows, labels): &(Tensor, Tensor)| {
        cross_entropy(&norm.forward_t(&layer.forward(rows)?, true)?, labels)
    };
    let trainer = CandleTrainer::new(build, loss, rows(16, 6, 3));
    trainer.with_frozen(["bn.running_mean", "bn.running_var"])
}

#[test]
fn frozen_running_statistics_follow_the_data() {
    let names: [(&str, &[u64]); 6] = [
        ("fc.weight", &[3, 6]),
        ("fc.bias", &[3]),
        ("bn.running_mean", &[3]),
        ("bn.running_var", &[3]),
        ("bn.weight", &[3]),
        ("bn.bias", &[3]),
    ];
    let mut start = model(&names);
    let variance = start.layout().range(3);
    start.values_mut()[variance].fill(1.0);
    let plan = TrainingPlan { momentum: 0.9, epochs: 2, batch_size: 8, learning_rate: 0.1, ..TrainingPlan::default() };
    let trained = normalized().train(&start, &job(plan.clone())).unwrap();
    let same = |index: usize| trained.parameters.tensor(index) == start.tensor(index);
    // A bias before a normalization of the batch has a gradient of rounding errors.
    assert!([0, 2, 3, 4, 5].into_iter().all(|index| !same(index)));
    assert_eq!(sliced(&normalized, &start, &plan).0, trained, "momentum of the tensors behind the frozen ones");
    let held = Constraints { frozen: &[false, false, true, true, false, false], ..Constraints::default() };
    let held = normalized().train_within(&start, &job(plan), held).unwrap();
    for index in [0, 2, 3, 4, 5] {
        assert_eq!(held.parameters.tensor(index) == start.tensor(index), [2, 3].contains(&index), "{index}");
    }
}

#[test]
fn held_out_examples_give_loss_and_metrics() {
    let start = sizes().initial(1).unwrap();
    let plan = plans().remove(0);
    assert_eq!(mlp().evaluate(&start, &job(plan.clone())).unwrap(), []);
    // More than one batch of an evaluation.
    let accuracy = |(first, second): &(Linear, Linear), (rows, labels): &(Tensor, Tensor)| {
        let best = second.forward(&first.forward(rows)?.relu()?)?.argmax(1)?;
        let hits = best.eq(labels)?.to_dtype(DType::F32)?.mean_all()?.to_scalar::<f32>()?;
        Ok(vec![("accuracy".to_owned(), f64::from(hits))])
    };
    let mut trainer = mlp().with_held_out(rows(100, 13, 5)).with_metrics(accuracy);
    let metrics = trainer.evaluate(&start, &job(plan.clone())).unwrap();
    let architecture = Some(serde_json::to_value(sizes()).unwrap());
    let ready = TrainingJob { architecture, ..job(plan) };
    let mut expected = ModelTrainer::new(rows(0, 13, 5), rows(100, 13, 5), Device::Cpu);
    let expected = expected.evaluate(&start, &ready).unwrap();
    for (name, metric) in expected {
        let (_, ours) = metrics.iter().find(|(own, _)| *own == name).unwrap();
        assert!((ours.value - metric.value).abs() < 1e-5 && ours.count == 100, "{name}: {ours:?} {metric:?}");
    }
}

#[test]
fn sixteen_bit_module_learns_about_the_same() {
    let start = sizes().initial(1).unwrap();
    let run = |precision| {
        let plan = TrainingPlan { precision, epochs: 20, ..plans().remove(0) };
        mlp().on(Device::Candle(candle_core::Device::Cpu)).train(&start, &job(plan)).unwrap()
    };
    let full = run(Precision::F32);
    for precision in [Precision::Bf16, Precision::F16] {
        let half = run(precision);
        assert_ne!(half.parameters, full.parameters, "{precision:?}: the passes were in 32 bits");
        let losses = [half.metrics[0].1.value, full.metrics[0].1.value];
        assert!((losses[0] - losses[1]).abs() < 0.05, "{precision:?}: {losses:?}");
    }
}
