//! The ready trainer from outside: it learns, is reproducible bit for bit, and reports invalid input.

use std::sync::atomic::{AtomicBool, Ordering};

use client_sdk::models::{Architecture, Cnn, Gru, Linear, Mlp};
use client_sdk::train::{Device, Examples, Sgd, TrainError, evaluate, train};
use learning::Parameters;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use task_spec::TrainingPlan;

/// Plain gradient descent for one epoch.
fn one_epoch() -> TrainingPlan {
    TrainingPlan { batch_size: 10, learning_rate: 0.05, ..TrainingPlan::default() }
}

fn sgd(plan: &TrainingPlan) -> Sgd<'_> {
    Sgd { plan, seed: 0 }
}

/// Rows labelled by the index of the largest of their first numbers.
fn labelled(count: usize, width: usize, classes: u32) -> (Vec<f32>, Vec<u32>) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let features: Vec<f32> = (0..count * width).map(|_| (rng.next_u32() >> 8) as f32 / 8_388_608.0 - 1.0).collect();
    let label = |row: &[f32]| (0..classes).max_by(|&a, &b| row[a as usize].total_cmp(&row[b as usize])).unwrap();
    let labels = features.chunks_exact(width).map(label).collect();
    (features, labels)
}

fn small_mlp() -> Architecture {
    Architecture::Mlp(Mlp { inputs: 20, hidden: vec![32], classes: 4 })
}

fn moved(start: &Parameters, delta: &[f32]) -> Parameters {
    let values = start.values().iter().zip(delta).map(|(start, delta)| start + delta).collect();
    Parameters::new(start.layout().clone(), values).unwrap()
}

#[test]
fn an_mlp_learns_small_data_by_heart() {
    let (model, start) = (small_mlp(), small_mlp().initial(1).unwrap());
    let (features, labels) = labelled(60, 20, 4);
    let examples = rows(&features, &labels, 20);
    let plan = TrainingPlan { epochs: 200, learning_rate: 0.1, momentum: 0.9, ..one_epoch() };
    let trained = train(&model, &start, examples, sgd(&plan), &Device::Cpu).unwrap();
    assert_eq!((trained.steps, trained.examples), (200 * 6, 60));
    let before = evaluate(&model, &start, examples, &Device::Cpu).unwrap();
    let after = evaluate(&model, &moved(&start, &trained.delta), examples, &Device::Cpu).unwrap();
    assert!(before.accuracy < 0.6, "{before:?}");
    assert!(after.accuracy == 1.0 && after.loss < 0.01, "{after:?}");
    assert!(trained.mean_loss > after.loss && trained.mean_loss < before.loss);
}

#[test]
fn the_first_loss_of_a_zero_model_is_that_of_guessing() {
    let model = Architecture::Linear(Linear { inputs: 20, classes: 4 });
    let (features, labels) = labelled(50, 20, 4);
    let examples = rows(&features, &labels, 20);
    let evaluation = evaluate(&model, &model.initial(1).unwrap(), examples, &Device::Cpu).unwrap();
    assert!((evaluation.loss - 4.0_f64.ln()).abs() < 1e-6);
    assert_eq!(evaluation.examples, 50);
}

#[test]
fn a_proximal_term_keeps_the_model_near_its_start() {
    let (model, start) = (small_mlp(), small_mlp().initial(1).unwrap());
    let (features, labels) = labelled(60, 20, 4);
    let examples = rows(&features, &labels, 20);
    let distance = |proximal_mu| {
        let plan = TrainingPlan { epochs: 20, learning_rate: 0.1, proximal_mu, ..one_epoch() };
        let trained = train(&model, &start, examples, sgd(&plan), &Device::Cpu).unwrap();
        trained.delta.iter().map(|value| value * value).sum::<f32>().sqrt()
    };
    let (free, held) = (distance(0.0), distance(1.0));
    assert!(held < 0.5 * free, "{held} {free}");
}

/// Same seed, same bits, also while other threads train on every core.
#[test]
fn training_repeats_bit_for_bit() {
    let (features, labels) = labelled(40, 28 * 28, 4);
    let images = Examples::Labelled { features: &features, labels: &labels, width: 784 };
    let text: Vec<u32> = (0..400).map(|index| index * index % 7).collect();
    let text = Examples::Text { inputs: &text[..399 - 9], targets: &text[1..400 - 9], length: 13 };
    let models = [
        (Architecture::Cnn(Cnn { classes: 4, ..Cnn::default() }), images),
        (Architecture::Mlp(Mlp { classes: 4, ..Mlp::default() }), images),
        (Architecture::Gru(Gru { hidden: 16, ..Gru::with_vocabulary(7) }), text),
    ];
    for (model, examples) in models {
        let start = model.initial(1).unwrap();
        let run = |seed: u64| {
            let plan = TrainingPlan { epochs: 1, momentum: 0.5, ..one_epoch() };
            let trained = train(&model, &start, examples, Sgd { plan: &plan, seed }, &Device::Cpu).unwrap();
            trained.delta.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        };
        let quiet = run(1);
        let stop = AtomicBool::new(false);
        let busy = std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let other = scope.spawn(|| run(2));
            let busy = run(1);
            assert_ne!(other.join().unwrap(), busy, "another seed, another order");
            stop.store(true, Ordering::Relaxed);
            busy
        });
        assert_eq!(quiet, busy, "{}", model.kind());
    }
}

#[test]
fn a_gru_learns_a_cycle() {
    let model = Architecture::Gru(Gru { hidden: 24, ..Gru::with_vocabulary(5) });
    let start = model.initial(1).unwrap();
    // 0 1 2 1 0 1 2 1 …: the successor of a 1 depends on its predecessor.
    let text: Vec<u32> = [0, 1, 2, 1].into_iter().cycle().take(161).collect();
    let examples = Examples::Text { inputs: &text[..160], targets: &text[1..], length: 10 };
    let plan = TrainingPlan { epochs: 60, batch_size: 4, learning_rate: 0.2, momentum: 0.9, ..one_epoch() };
    let trained = train(&model, &start, examples, sgd(&plan), &Device::Cpu).unwrap();
    let after = evaluate(&model, &moved(&start, &trained.delta), examples, &Device::Cpu).unwrap();
    assert_eq!(after.examples, 16);
    // The successor of an initial 1 is unpredictable; all others are predictable.
    assert!(after.accuracy >= 0.94, "{after:?}");
}

fn rows<'a>(features: &'a [f32], labels: &'a [u32], width: usize) -> Examples<'a> {
    Examples::Labelled { features, labels, width }
}

#[test]
fn bad_input_is_named() {
    let (model, start) = (small_mlp(), small_mlp().initial(1).unwrap());
    let (mut features, mut labels) = labelled(12, 20, 4);
    let plan = one_epoch();
    let attempt = |examples: Examples<'_>, plan: &TrainingPlan| {
        train(&model, &start, examples, sgd(plan), &Device::Cpu).map(drop).unwrap_err().to_string()
    };
    assert_eq!(attempt(rows(&[], &[], 20), &plan), "there are no examples");
    assert_eq!(attempt(rows(&features, &labels[..8], 30), &plan), "examples have 30 features; the mlp model takes 20");
    assert_eq!(attempt(rows(&features, &labels[..8], 20), &plan), "got 240 features where 160 were expected");
    let text = Examples::Text { inputs: &labels, targets: &labels, length: 4 };
    assert_eq!(attempt(text, &plan), "the mlp model needs rows of features with labels");
    let wild = TrainingPlan { epochs: 100, learning_rate: 1e30, ..plan.clone() };
    let error = attempt(rows(&features, &labels, 20), &wild);
    assert!(error.starts_with("training diverged") && error.contains("at step "), "{error}");
    assert!(error.contains("learning rate 1000000000000000000000000000000"), "{error}");
    labels[7] = 4;
    assert_eq!(attempt(rows(&features, &labels, 20), &plan), "example 7 has the label 4; this model knows 0 to 3");
    labels[7] = 3;
    features[5] = f32::NAN;
    assert!(attempt(rows(&features, &labels, 20), &plan).starts_with("training diverged"));
    let examples = rows(&features, &labels, 20);
    assert!(matches!(evaluate(&model, &start, examples, &Device::Cpu), Err(TrainError::NotFinite)));
    let other = Architecture::Linear(Linear { inputs: 20, classes: 4 });
    let error = train(&other, &start, examples, sgd(&plan), &Device::Cpu).unwrap_err();
    assert!(matches!(error, TrainError::OtherModel { kind: "linear" }), "{error}");
}

#[test]
fn a_batch_larger_than_the_data_takes_what_is_there() {
    let (model, start) = (small_mlp(), small_mlp().initial(1).unwrap());
    let (features, labels) = labelled(5, 20, 4);
    let examples = rows(&features, &labels, 20);
    let plan = TrainingPlan { steps: Some(3), batch_size: 1000, ..one_epoch() };
    let trained = train(&model, &start, examples, sgd(&plan), &Device::Cpu).unwrap();
    assert_eq!((trained.steps, trained.examples), (3, 5));
}
