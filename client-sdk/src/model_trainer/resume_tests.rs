//! A training interrupted after every step yields the same bits as an uninterrupted one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use learning::Patterns;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use task_spec::{LocalOptimizer, TrainingPlan};
use zeroize::Zeroizing;

use super::*;
use crate::checkpoints::{Checkpoints, Keep, NotKept};
use crate::models::{Cnn, Gru, InputKind, Linear, Mlp};
use crate::trainer::{Cancel, Purpose};

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

    fn save(&self, state: &[u8], _: bool) -> Result<(), NotKept> {
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
        self.should_pause()
    }
}

fn models() -> [Architecture; 4] {
    [
        Architecture::Linear(Linear { inputs: 7, classes: 3 }),
        Architecture::Mlp(Mlp { inputs: 13, hidden: vec![17], classes: 5 }),
        Architecture::Cnn(Cnn { height: 9, width: 6, channels: 2, classes: 4 }),
        Architecture::Gru(Gru { embedding: 4, hidden: 6, layers: 2, vocabulary: 5 }),
    ]
}

/// Examples of a model, from a seed.
fn data(architecture: &Architecture, count: usize) -> Dataset {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let classes = architecture.classes();
    match architecture.input() {
        InputKind::Features(width) => Dataset::Labelled {
            features: (0..count * width).map(|_| (rng.next_u32() >> 8) as f32 / 8_388_608.0 - 1.0).collect(),
            labels: (0..count).map(|_| rng.next_u32() % classes).collect(),
            width,
        },
        InputKind::Characters => {
            let mut characters = || (0..count * 6).map(|_| rng.next_u32() % classes).collect();
            Dataset::Text { inputs: characters(), targets: characters(), length: 6 }
        }
        InputKind::Tensors => unreachable!("the ready models take rows or characters"),
    }
}

/// With everything that has a state.
fn plans() -> Vec<TrainingPlan> {
    let plain = TrainingPlan { epochs: 2, batch_size: 4, learning_rate: 0.1, ..TrainingPlan::default() };
    let adamw = LocalOptimizer::adamw();
    vec![
        TrainingPlan { optimizer: adamw, weight_decay: 0.01, gradient_clip: Some(0.5), ..plain.clone() },
        TrainingPlan { steps: Some(1), ..plain.clone() },
        plain.clone(),
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

fn job(architecture: &Architecture, plan: TrainingPlan, checkpoints: Checkpoints) -> TrainingJob {
    TrainingJob {
        task: "t".into(),
        round: 1,
        purpose: Purpose::Shared,
        plan,
        architecture: Some(serde_json::to_value(architecture).unwrap()),
        table: None,
        analytics: None,
        metrics: vec![],
        seed: 3,
        deadline: None,
        cancel: Cancel::default(),
        checkpoints,
    }
}

/// The result of one run, and that of one run for each step, with how many there were.
fn both_ways(
    plan: &TrainingPlan,
    architecture: &Architecture,
    mut train: impl FnMut(&TrainingJob) -> Result<Trained, TrainerError>,
) -> (Trained, Trained, u64) {
    let whole = train(&job(architecture, plan.clone(), Checkpoints::default())).unwrap();
    let sliced = job(architecture, plan.clone(), Checkpoints::new(Arc::new(Slices::default())));
    for runs in 1..100 {
        match train(&sliced) {
            Err(TrainerError::Paused) => {}
            result => return (whole, result.unwrap(), runs),
        }
    }
    panic!("it does not come to an end");
}

fn check(device: &Device, what: &str) {
    for architecture in models() {
        for plan in plans() {
            let mut trainer = ModelTrainer::new(data(&architecture, 10), data(&architecture, 0), device.clone());
            let start = architecture.initial(1).unwrap();
            let anchor = architecture.initial(2).unwrap();
            let mut correction = anchor.clone();
            correction.values_mut().iter_mut().for_each(|value| *value *= 0.01);
            let constrained = Constraints { anchor: Some(&anchor), correction: Some(&correction), frozen: &[] };
            for constraints in [Constraints::default(), constrained] {
                let run = |job: &TrainingJob| trainer.train_within(&start, job, constraints);
                let (whole, sliced, runs) = both_ways(&plan, &architecture, run);
                assert_eq!(whole, sliced, "{what}, {architecture:?}, {plan:?}");
                assert_eq!(runs, whole.metrics[1].1.count, "{what}, {plan:?}: each run takes one step");
            }
        }
    }
}

#[test]
fn on_the_cpu_it_has_the_same_bits() {
    check(&Device::Cpu, "cpu");
}

#[cfg(feature = "candle")]
#[test]
fn on_candle_it_has_the_same_bits() {
    check(&Device::Candle(candle_core::Device::Cpu), "candle");
}

#[test]
fn adapters_have_the_same_bits() {
    let architecture = Architecture::Mlp(Mlp { inputs: 13, hidden: vec![17], classes: 5 });
    let base = architecture.initial(1).unwrap();
    let adapters = Adapters::new(base.layout(), &Patterns::new(vec!["fc*.weight".into()]).unwrap(), 2, None).unwrap();
    let start = adapters.initial(4).unwrap();
    let mut trainer = ModelTrainer::new(data(&architecture, 10), data(&architecture, 0), Device::Cpu);
    for plan in plans() {
        let run = |job: &TrainingJob| trainer.train_adapters(&base, &start, job, &adapters);
        let (whole, sliced, _) = both_ways(&plan, &architecture, run);
        assert_eq!(whole, sliced, "{plan:?}");
    }
}

#[test]
fn a_state_of_other_data_begins_anew() {
    let architecture = Architecture::Linear(Linear { inputs: 7, classes: 3 });
    let (start, plan) = (architecture.initial(1).unwrap(), plans().remove(2));
    let checkpoints = Checkpoints::new(Arc::new(Slices::default()));
    let trainer = |count| ModelTrainer::new(data(&architecture, count), data(&architecture, 0), Device::Cpu);
    let paused = trainer(10).train(&start, &job(&architecture, plan.clone(), checkpoints.clone()));
    assert!(matches!(paused, Err(TrainerError::Paused)));
    // What was saved is of ten examples.
    let left = TrainingPlan { steps: Some(1), ..plan };
    let again = trainer(11).train(&start, &job(&architecture, left.clone(), checkpoints)).unwrap();
    assert_eq!(again, trainer(11).train(&start, &job(&architecture, left, Checkpoints::default())).unwrap());
}

#[test]
fn time_before_a_pause_counts_in_the_budget() {
    /// A second passes at each look.
    struct Ticking(std::sync::atomic::AtomicU64);
    impl Clock for Ticking {
        fn now(&self) -> crate::clock::Now {
            let seconds = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            crate::clock::Now { elapsed: Duration::from_secs(seconds), wall: wire::Timestamp(0) }
        }
    }
    let architecture = Architecture::Linear(Linear { inputs: 7, classes: 3 });
    let plan = TrainingPlan {
        budget: Some(Budget { steps: None, time_ms: Some(6_500) }),
        ..TrainingPlan { epochs: 100, ..plans().remove(2) }
    };
    let start = architecture.initial(1).unwrap();
    let mut trainer = ModelTrainer::new(data(&architecture, 10), data(&architecture, 0), Device::Cpu)
        .with_clock(Arc::new(Ticking(0.into())));
    let (whole, sliced, runs) = both_ways(&plan, &architecture, |job| trainer.train(&start, job));
    assert_eq!(whole.metrics[1].1.count, 7);
    // A look for the budget and one to write down what is spent: the steps are fewer, and the budget ends it.
    assert!((2..7).contains(&sliced.metrics[1].1.count) && runs < 7, "{sliced:?}");
}
