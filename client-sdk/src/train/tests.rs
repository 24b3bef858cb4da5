//! Gradients against finite differences, and the CPU passes against candle.

use learning::Parameters;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use task_spec::LocalOptimizer;

use super::candle::{CandleLearner, LossScale};
use super::*;
use crate::models::{Cnn, Gru, Linear, Mlp};

/// Labelled rows or sequences, from a seed.
struct Data {
    features: Vec<f32>,
    labels: Vec<u32>,
    targets: Vec<u32>,
    width: usize,
}

const LENGTH: usize = 6;

/// Plain gradient descent for one epoch.
fn one_epoch() -> TrainingPlan {
    TrainingPlan { batch_size: 10, learning_rate: 0.05, ..TrainingPlan::default() }
}

impl Data {
    fn new(architecture: &Architecture, count: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let width = match architecture.input() {
            crate::models::InputKind::Features(width) => width,
            crate::models::InputKind::Characters => LENGTH,
            crate::models::InputKind::Tensors => unreachable!("the ready models take rows or characters"),
        };
        let features = (0..count * width).map(|_| (rng.next_u32() >> 8) as f32 / 8_388_608.0 - 1.0).collect();
        let mut labels = |count: usize| (0..count).map(|_| rng.next_u32() % architecture.classes()).collect();
        let characters = if matches!(architecture, Architecture::Gru(_)) { LENGTH } else { 1 };
        Self { features, labels: labels(count * characters), targets: labels(count * characters), width }
    }

    fn examples(&self, architecture: &Architecture) -> Examples<'_> {
        match architecture {
            Architecture::Gru(_) => Examples::Text { inputs: &self.labels, targets: &self.targets, length: LENGTH },
            _ => Examples::Labelled { features: &self.features, labels: &self.labels, width: self.width },
        }
    }
}

/// Small models that cover every branch: padding, several panels, odd image sides, several channels.
fn models() -> Vec<Architecture> {
    vec![
        Architecture::Linear(Linear { inputs: 7, classes: 3 }),
        Architecture::Mlp(Mlp { inputs: 9, hidden: vec![], classes: 40 }),
        Architecture::Mlp(Mlp { inputs: 13, hidden: vec![17, 35], classes: 5 }),
        Architecture::Cnn(Cnn { height: 9, width: 6, channels: 2, classes: 4 }),
        Architecture::Cnn(Cnn { height: 4, width: 11, channels: 1, classes: 33 }),
        Architecture::Gru(Gru { embedding: 4, hidden: 6, layers: 2, vocabulary: 5 }),
    ]
}

/// A start at which no gradient vanishes by symmetry.
fn start(architecture: &Architecture) -> Parameters {
    let mut parameters = architecture.initial(3).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for value in parameters.values_mut() {
        *value += 0.1 * ((rng.next_u32() >> 8) as f32 / 8_388_608.0 - 1.0);
    }
    parameters
}

/// Mean loss of all examples as one batch, and its gradient, flat, in the layout's order.
fn loss_and_gradient(
    architecture: &Architecture,
    parameters: &Parameters,
    examples: Examples<'_>,
    device: &Device,
) -> Result<(f64, Vec<f32>), TrainError> {
    check(architecture, parameters, &examples)?;
    let all: Vec<usize> = (0..examples.count()).collect();
    let plan = one_epoch();
    let mut learner = learner(architecture, parameters, &examples, &plan, device, all.len())?;
    let (score, gradient) = learner.gradient(&examples, &all)?;
    Ok((score.mean().0, gradient))
}

#[test]
fn gradients_are_what_finite_differences_say() {
    for architecture in models() {
        let data = Data::new(&architecture, 11);
        let examples = data.examples(&architecture);
        let parameters = start(&architecture);
        let loss = |parameters: &Parameters| evaluate(&architecture, parameters, examples, &Device::Cpu).unwrap().loss;
        let (at, gradient) = loss_and_gradient(&architecture, &parameters, examples, &Device::Cpu).unwrap();
        assert!((at - loss(&parameters)).abs() < 1e-5, "{at}");
        // Along a random direction within each tensor: every parameter takes part, rounding averages out.
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for index in 0..parameters.layout().tensors().len() {
            let range = parameters.layout().range(index);
            let length = (range.len() as f32).sqrt();
            let direction: Vec<f32> =
                range.clone().map(|_| if rng.next_u32() & 1 == 0 { 1.0 } else { -1.0 } / length).collect();
            let moved = |by: f32| {
                let mut parameters = parameters.clone();
                let values = &mut parameters.values_mut()[range.clone()];
                values.iter_mut().zip(&direction).for_each(|(value, direction)| *value += by * direction);
                loss(&parameters)
            };
            let step = 5e-3_f32;
            let numeric = (moved(step) - moved(-step)) / f64::from(2.0 * step);
            let exact: f64 =
                gradient[range.clone()].iter().zip(&direction).map(|(&g, &d)| f64::from(g) * f64::from(d)).sum();
            let name = &parameters.layout().tensors()[index].name;
            let kind = architecture.kind();
            assert!((numeric - exact).abs() < 2e-3 + 0.02 * exact.abs(), "{kind} {name}: {numeric} {exact}");
        }
    }
}

#[test]
fn the_cpu_passes_agree_with_candle() {
    let mut large = models();
    large.push(Architecture::Mlp(Mlp::default()));
    large.push(Architecture::Cnn(Cnn::default()));
    for architecture in large {
        let data = Data::new(&architecture, 37);
        let examples = data.examples(&architecture);
        let start = start(&architecture);
        let plan =
            TrainingPlan { momentum: 0.9, weight_decay: 0.01, proximal_mu: 0.1, learning_rate: 0.02, ..one_epoch() };
        let mut ours = cpu::learner(&architecture, start.values(), &plan, &examples, 37);
        let mut candles =
            CandleLearner::new(&architecture, start.values(), &plan, &candle_core::Device::Cpu, 37).unwrap();
        let all: Vec<usize> = (0..37).collect();
        let (score, gradient) = ours.gradient(&examples, &all).unwrap();
        let (expected_score, expected) = candles.gradient(&examples, &all).unwrap();
        assert!((score.loss - expected_score.loss).abs() < 1e-3, "{} {}", score.loss, expected_score.loss);
        close(&architecture, &gradient, &expected);
        let (ours_score, candles_score) =
            (ours.score(&examples, &all).unwrap(), candles.score(&examples, &all).unwrap());
        assert_eq!(ours_score.correct, candles_score.correct);
        let of_some = [30, 2, 7, 36];
        let logits = [&mut *ours, &mut candles as &mut dyn Learner].map(|it| it.logits(&examples, &of_some).unwrap());
        assert_eq!(logits[0].len(), of_some.len() * examples.length() * architecture.classes() as usize);
        close(&architecture, &logits[0], &logits[1]);
        assert!((ours_score.loss - candles_score.loss).abs() < 1e-3);
        for chosen in [&all[..10], &all[10..37], &all[5..6], &all[..32]] {
            ours.step(&examples, chosen, 0.02).unwrap();
            candles.step(&examples, chosen, 0.02).unwrap();
        }
        close(&architecture, &ours.values().unwrap(), &candles.values().unwrap());
    }
}

/// Equal but for rounding, relative to the largest value.
fn close(model: &Architecture, ours: &[f32], expected: &[f32]) {
    assert_eq!(ours.len(), expected.len());
    let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    for (index, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        assert!((ours - expected).abs() <= 1e-5 * largest, "{model:?} {index}: {ours} {expected} (largest {largest})");
    }
}

#[test]
fn equal_pixels_share_no_gradient_on_either_road() {
    let architecture = Architecture::Cnn(Cnn { height: 9, width: 6, channels: 2, classes: 4 });
    let mut data = Data::new(&architecture, 11);
    data.features.fill(0.5);
    let (examples, start) = (data.examples(&architecture), start(&architecture));
    let candle = Device::Candle(candle_core::Device::Cpu);
    let [ours, candles] =
        [Device::Cpu, candle].map(|device| loss_and_gradient(&architecture, &start, examples, &device).unwrap().1);
    close(&architecture, &candles, &ours);
}

#[test]
fn parameters_come_back_as_they_went_in() {
    for architecture in models() {
        let start = start(&architecture);
        let data = Data::new(&architecture, 3);
        let examples = data.examples(&architecture);
        let learner = cpu::learner(&architecture, start.values(), &one_epoch(), &examples, 3);
        assert_eq!(learner.values().unwrap(), start.values());
    }
}

#[test]
fn constraints_hold_on_both_roads() {
    for architecture in models() {
        let data = Data::new(&architecture, 10);
        let examples = data.examples(&architecture);
        let start = start(&architecture);
        let mut anchor = start.clone();
        anchor.values_mut().iter_mut().for_each(|value| *value += 0.05);
        let tensors = start.layout().tensors().len();
        let frozen: Vec<bool> = (0..tensors).map(|index| index == 0).collect();
        let constraints = Constraints { anchor: Some(&anchor), frozen: &frozen, correction: None };
        let plan = TrainingPlan { momentum: 0.5, weight_decay: 0.01, proximal_mu: 5.0, ..one_epoch() };
        let all: Vec<usize> = (0..10).collect();
        let mut ours = cpu::learner(&architecture, start.values(), &plan, &examples, 10);
        let mut candles =
            CandleLearner::new(&architecture, start.values(), &plan, &candle_core::Device::Cpu, 37).unwrap();
        for learner in [&mut *ours, &mut candles] {
            learner.constrain(&constraints.flat(&start)).unwrap();
            for _ in 0..4 {
                learner.step(&examples, &all, 0.05).unwrap();
            }
        }
        let (ours, candles) = (ours.values().unwrap(), candles.values().unwrap());
        close(&architecture, &ours, &candles);
        let still = start.layout().range(0);
        assert_eq!(ours[still.clone()], start.values()[still.clone()], "what is frozen stays");
        // A pull of 5 at rate 0.05 over four steps outweighs any gradient here: everything else went towards the anchor.
        let way: f32 = ours[still.end..].iter().zip(&start.values()[still.end..]).map(|(end, start)| end - start).sum();
        assert!(way / (ours.len() - still.end) as f32 > 0.0125, "{way}");
    }
}

#[test]
fn adamw_is_the_same_on_both_roads_and_leaves_alone_what_is_frozen() {
    for architecture in models() {
        let data = Data::new(&architecture, 10);
        let examples = data.examples(&architecture);
        let start = start(&architecture);
        let tensors = start.layout().tensors().len();
        let frozen: Vec<bool> = (0..tensors).map(|index| index == 0).collect();
        let constraints = Constraints { frozen: &frozen, ..Constraints::default() };
        // A large epsilon: what a rounding makes of a gradient near zero is not what is compared.
        let optimizer = LocalOptimizer::AdamW { beta1: 0.8, beta2: 0.95, epsilon: 1e-2 };
        let plan = TrainingPlan { optimizer, weight_decay: 0.1, proximal_mu: 0.5, ..one_epoch() };
        let all: Vec<usize> = (0..10).collect();
        let ends = roads(&architecture, &start, &plan, &examples, 10).map(|mut learner| {
            learner.constrain(&constraints.flat(&start)).unwrap();
            for _ in 0..4 {
                learner.step(&examples, &all, 0.05).unwrap();
            }
            learner.values().unwrap()
        });
        close(&architecture, &ends[0], &ends[1]);
        let still = start.layout().range(0);
        assert_eq!(ends[0][still.clone()], start.values()[still.clone()]);
        assert!(ends[0][still.end..].iter().zip(&start.values()[still.end..]).all(|(end, start)| end != start));
    }
}

#[test]
fn constraints_that_do_not_fit_are_refused() {
    let architecture = Architecture::Linear(Linear { inputs: 7, classes: 3 });
    let data = Data::new(&architecture, 4);
    let start = start(&architecture);
    let other = Architecture::Linear(Linear { inputs: 6, classes: 3 }).initial(1).unwrap();
    for constraints in [
        Constraints { anchor: Some(&other), ..Constraints::default() },
        Constraints { frozen: &[true], ..Constraints::default() },
        Constraints { frozen: &[true, true], ..Constraints::default() },
    ] {
        let plan = one_epoch();
        let examples = data.examples(&architecture);
        let result = train_while(
            &architecture,
            &start,
            examples,
            Sgd { plan: &plan, seed: 0 },
            &Device::Cpu,
            constraints,
            &mut |_| true,
        );
        assert!(matches!(result, Err(TrainError::Constraints(_))), "{result:?}");
    }
}

/// Both implementations, for steps in chunks of at most `batch`.
fn roads<'a>(
    architecture: &'a Architecture,
    start: &'a Parameters,
    plan: &'a TrainingPlan,
    examples: &Examples<'_>,
    batch: usize,
) -> [Box<dyn Learner + 'a>; 2] {
    let candles = CandleLearner::new(architecture, start.values(), plan, &candle_core::Device::Cpu, batch).unwrap();
    [cpu::learner(architecture, start.values(), plan, examples, batch), Box::new(candles)]
}

#[test]
fn accumulated_batches_are_one_batch_on_both_roads() {
    for architecture in models() {
        let data = Data::new(&architecture, 20);
        let examples = data.examples(&architecture);
        let start = start(&architecture);
        let plan = TrainingPlan { momentum: 0.5, ..one_epoch() };
        let all: Vec<usize> = (0..20).collect();
        let run = |mut learner: Box<dyn Learner + '_>| {
            let mut loss = 0.0;
            // Uneven chunks, and a step of a single one after a step of several.
            for chosen in [&all[..20], &all[3..20], &all[..3]] {
                loss += learner.step(&examples, chosen, 0.1).unwrap().0.loss;
            }
            (loss, learner.values().unwrap())
        };
        let whole = run(cpu::learner(&architecture, start.values(), &plan, &examples, 20));
        for learner in roads(&architecture, &start, &plan, &examples, 7) {
            let (loss, values) = run(learner);
            assert!((loss - whole.0).abs() < 1e-4, "{loss} {}", whole.0);
            close(&architecture, &values, &whole.1);
        }
    }
}

#[test]
fn gradients_are_clipped_and_corrected_alike_on_both_roads() {
    for architecture in models() {
        let data = Data::new(&architecture, 10);
        let examples = data.examples(&architecture);
        let start = start(&architecture);
        let all: Vec<usize> = (0..10).collect();
        let frozen: Vec<bool> = (0..start.layout().tensors().len()).map(|index| index == 0).collect();
        let mut correction = start.clone();
        correction.values_mut().iter_mut().for_each(|value| *value = 0.01);
        let constraints = Constraints { frozen: &frozen, correction: Some(&correction), anchor: None };
        let (_, mut gradient) = loss_and_gradient(&architecture, &start, examples, &Device::Cpu).unwrap();
        let still = start.layout().range(0);
        gradient[still.clone()].fill(0.0);
        let norm = learning::clip::norm(&gradient);
        // Within the bound nothing changes; beyond it the gradient has its length, and what is added comes on top.
        for (bound, factor) in [(2.0 * norm, 1.0), (0.25 * norm, 0.25)] {
            let plan = TrainingPlan { gradient_clip: Some(bound), ..one_epoch() };
            for mut learner in roads(&architecture, &start, &plan, &examples, 10) {
                learner.constrain(&constraints.flat(&start)).unwrap();
                learner.step(&examples, &all, 0.5).unwrap();
                let expected: Vec<f32> = start
                    .values()
                    .iter()
                    .zip(&gradient)
                    .enumerate()
                    .map(|(index, (value, gradient))| {
                        let correction = if still.contains(&index) { 0.0 } else { 0.01 };
                        value - 0.5 * (factor * gradient + correction)
                    })
                    .collect();
                close(&architecture, &learner.values().unwrap(), &expected);
            }
        }
    }
}

/// A run of eight steps with these settings.
fn run(plan: &TrainingPlan) -> Trained {
    let architecture = Architecture::Mlp(Mlp { inputs: 13, hidden: vec![17], classes: 5 });
    let data = Data::new(&architecture, 32);
    train(&architecture, &start(&architecture), data.examples(&architecture), Sgd { plan, seed: 0 }, &Device::Cpu)
        .unwrap()
}

#[test]
fn settings_that_change_nothing_change_no_bit() {
    let plain = TrainingPlan { batch_size: 4, momentum: 0.9, ..one_epoch() };
    let none = TrainingPlan {
        accumulate: 1,
        gradient_clip: Some(f32::MAX.into()),
        schedule: Some(task_spec::Schedule::Step { every: 100, factor: 0.5, over: task_spec::Over::Steps }),
        warmup: Some(task_spec::Warmup { length: 3, over: task_spec::Over::Rounds }),
        precision: task_spec::Precision::Bf16,
        ..plain.clone()
    };
    assert_eq!(run(&plain), run(&none));
}

#[test]
fn a_schedule_is_a_rate_for_each_step_and_the_reach_their_sum() {
    let half = |every| Some(task_spec::Schedule::Step { every, factor: 0.5, over: task_spec::Over::Steps });
    let plain = TrainingPlan { batch_size: 4, learning_rate: 0.5, ..one_epoch() };
    let steps = |steps| TrainingPlan { steps: Some(steps), ..plain.clone() };
    // From the fifth step on half the rate: the first four are those of the plain run.
    let stairs = run(&TrainingPlan { schedule: half(4), ..plain.clone() });
    assert!((stairs.reach - (4.0 * 0.5 + 4.0 * 0.25)).abs() < 1e-12, "{}", stairs.reach);
    assert_eq!(run(&TrainingPlan { schedule: half(4), ..steps(4) }), run(&steps(4)));
    assert_ne!(stairs.delta, run(&plain).delta);
    // A constant factor is the rate times it.
    let warm = task_spec::Warmup { length: 1, over: task_spec::Over::Steps };
    let first = run(&TrainingPlan { warmup: Some(warm), ..steps(1) });
    assert_eq!(first, run(&TrainingPlan { learning_rate: 0.25, ..steps(1) }));
    // Momentum 0.5 over two steps: 0.5 (1) + 0.5 (1.5).
    assert_eq!(run(&TrainingPlan { momentum: 0.5, ..steps(2) }).reach, 1.25);
}

#[test]
fn short_numbers_learn_about_the_same() {
    let architecture = Architecture::Mlp(Mlp { inputs: 13, hidden: vec![17], classes: 5 });
    let data = Data::new(&architecture, 64);
    let (examples, start) = (data.examples(&architecture), start(&architecture));
    let all: Vec<usize> = (0..64).collect();
    let losses = |precision| {
        let plan = TrainingPlan { precision, ..one_epoch() };
        let mut learner =
            CandleLearner::new(&architecture, start.values(), &plan, &candle_core::Device::Cpu, 16).unwrap();
        for _ in 0..60 {
            learner.step(&examples, &all, 0.5).unwrap();
        }
        let values = learner.values().unwrap();
        let learnt = Parameters::new(start.layout().clone(), values).unwrap();
        let loss = evaluate(&architecture, &learnt, examples, &Device::Cpu).unwrap().loss;
        (loss, learnt.values().to_vec())
    };
    let before = evaluate(&architecture, &start, examples, &Device::Cpu).unwrap().loss;
    let (full, exact) = losses(task_spec::Precision::F32);
    for precision in [task_spec::Precision::F16, task_spec::Precision::Bf16] {
        let (loss, values) = losses(precision);
        assert_ne!(values, exact, "{precision:?}: the passes were in 32 bits");
        // Half of what was learnt would be far off.
        assert!((loss - full).abs() < 0.1 * (before - full), "{precision:?}: {loss} instead of {full} from {before}");
    }
}

#[test]
fn an_overflow_costs_a_step_and_halves_the_scale() {
    let architecture = Architecture::Linear(Linear { inputs: 7, classes: 3 });
    let mut data = Data::new(&architecture, 4);
    // In 16 bits 65504 is the largest number: a gradient of 3000 is finite, and 3000 times a scale of 2^16 is not.
    data.features.iter_mut().for_each(|feature| *feature *= 6000.0);
    let plan = TrainingPlan { precision: task_spec::Precision::F16, ..one_epoch() };
    let start = start(&architecture);
    let mut learner = CandleLearner::new(&architecture, start.values(), &plan, &candle_core::Device::Cpu, 4).unwrap();
    let examples = data.examples(&architecture);
    let mut skipped = 0;
    while learner.step(&examples, &[0, 1, 2, 3], 1e-6).unwrap().1 == StepResult::Skipped {
        assert_eq!(learner.values().unwrap(), start.values(), "a skipped step changes nothing");
        skipped += 1;
        assert!(skipped < 20);
    }
    assert!(skipped > 0);
    assert_ne!(learner.values().unwrap(), start.values());
    let mut scale = LossScale::new(task_spec::Precision::F16);
    assert_eq!(scale.after(false), StepResult::Skipped);
    let halved = scale;
    (0..2000).for_each(|_| assert_eq!(scale.after(true), StepResult::Taken));
    assert_ne!(scale, halved, "it grows again");
    assert_eq!(scale, LossScale::new(task_spec::Precision::F16));
    assert_eq!(LossScale::new(task_spec::Precision::Bf16).after(false), StepResult::Taken);
}
