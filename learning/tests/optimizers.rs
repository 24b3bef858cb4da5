//! Every server optimizer, q-FFL and FedNova against numbers of an independent `float64` implementation
//! (`golden/optimizers.py`), and optimizer states through their files.

use std::sync::Arc;

use learning::contribution::{Fairness, FedNova, QFfl, fed_nova};
use learning::optimizer::{self, StepError};
use learning::{
    CheckpointError, Codec, ExactSum, Layout, MeanUpdate, MetricValue, OptimizerState, Parameters, QuantizationParams,
    StateError, TensorSpec, Update, WrongLength,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use task_spec::ServerOptimizer;

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/optimizers.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The reference starts from numbers representable as `f32`.
#[expect(clippy::cast_possible_truncation, reason = "exact")]
fn floats(value: &Value) -> Vec<f32> {
    numbers(value).into_iter().map(|number| number as f32).collect()
}

fn layout(tensors: &[(&str, u64)]) -> Arc<Layout> {
    let spec = |&(name, len): &(&str, u64)| TensorSpec { name: name.into(), shape: vec![len] };
    Arc::new(Layout::new(tensors.iter().map(spec).collect()).unwrap())
}

fn model() -> Parameters {
    Parameters::new(layout(&[("z.weight", 4), ("a", 3)]), floats(&golden()["start"])).unwrap()
}

fn mean(delta: Vec<f32>) -> MeanUpdate {
    MeanUpdate { delta, weight: 1, participants: 1, metrics: vec![] }
}

#[track_caller]
fn close(got: &[f32], expected: &Value, tolerance: f64) {
    assert_eq!(got.len(), numbers(expected).len());
    for (got, expected) in got.iter().zip(numbers(expected)) {
        let error = (f64::from(*got) - expected).abs() / expected.abs();
        assert!(error <= tolerance, "{got} where the reference has {expected}: {error:e}");
    }
}

fn specs() -> Vec<(ServerOptimizer, Value)> {
    let golden = golden();
    let cases = golden["optimizers"].as_array().unwrap().clone();
    cases.into_iter().map(|case| (serde_json::from_value(case["spec"].clone()).unwrap(), case)).collect()
}

/// Twelve rounds; `between` transforms the state from one to the next.
fn run(
    spec: &ServerOptimizer,
    mut between: impl FnMut(OptimizerState) -> OptimizerState,
) -> (Parameters, OptimizerState) {
    let (mut model, mut state) = (model(), OptimizerState::Empty);
    for delta in golden()["deltas"].as_array().unwrap() {
        let next = optimizer::step(spec, between(state), &mut model, &mean(floats(delta))).unwrap();
        state = next;
    }
    (model, state)
}

#[test]
fn optimizers_agree_with_an_independent_float64_reference() {
    let cases = specs();
    let names: std::collections::BTreeSet<_> = cases.iter().map(|(spec, _)| spec.name()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["fed_adagrad", "fed_adam", "fed_avg", "fed_avg_m", "fed_yogi"]);
    for (spec, case) in cases {
        let (model, state) = run(&spec, |state| state);
        close(model.values(), &case["x"], 1e-6);
        for (name, reference) in [("velocity", "velocity"), ("first_moment", "first"), ("second_moment", "second")] {
            match (state.vector(name), case.get(reference)) {
                (Some(vector), Some(reference)) => close(vector, reference, 1e-6),
                (vector, reference) => assert_eq!(vector.is_some(), reference.is_some(), "{name} of {}", spec.name()),
            }
        }
    }
}

#[test]
fn a_state_comes_back_from_its_file_to_the_bit() {
    for (spec, _) in specs() {
        let layout = Arc::clone(model().layout());
        let straight = run(&spec, |state| state);
        let stored = run(&spec, |state| {
            let Some(bytes) = optimizer::write_state(&state, &layout).unwrap() else { return state };
            let read = optimizer::read_state(&bytes, &spec, &layout).unwrap();
            assert_eq!(read, state);
            assert_eq!(optimizer::write_state(&read, &layout).unwrap().unwrap(), bytes);
            read
        });
        let bits = |(model, state): &(Parameters, OptimizerState)| {
            let bits: Vec<_> = model.values().iter().map(|value| value.to_bits()).collect();
            (bits, optimizer::write_state(state, &layout).unwrap())
        };
        assert_eq!(bits(&straight), bits(&stored), "{}", spec.name());
        assert_eq!(straight.1.is_empty(), spec.name() == "fed_avg");
    }
}

#[test]
fn a_state_of_another_optimizer_or_model_is_refused() {
    let layout = Arc::clone(model().layout());
    let specs = specs();
    for (spec, _) in &specs {
        let (_, state) = run(spec, |state| state);
        let Some(bytes) = optimizer::write_state(&state, &layout).unwrap() else { continue };
        for (other, _) in specs.iter().filter(|(other, _)| other.name() != spec.name()) {
            let expected = StateError::OtherOptimizer { expected: other.name(), got: spec.name().into() };
            assert_eq!(optimizer::read_state(&bytes, other, &layout), Err(expected));
            let expected = StepError::OtherOptimizer { expected: other.name(), got: spec.name() };
            let mut untouched = model();
            let step = optimizer::step(other, state.clone(), &mut untouched, &mean(vec![0.1; 7]));
            assert_eq!((step, untouched), (Err(expected), model()));
        }
        let prefix = if spec.name() == "fed_avg_m" { "velocity" } else { "first_moment" };
        let read = |tensors: &[(&str, u64)]| match optimizer::read_state(&bytes, spec, &self::layout(tensors)) {
            Err(StateError::OtherModel(error)) => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(read(&[("z.weight", 4), ("b", 3)]), CheckpointError::Missing(format!("{prefix}/b")));
        assert_eq!(read(&[("z.weight", 4)]), CheckpointError::Unexpected(format!("{prefix}/a")));
        let (expected, got) = (vec![2], vec![3]);
        let shape = CheckpointError::Shape { tensor: format!("{prefix}/a"), expected, got };
        assert_eq!(read(&[("z.weight", 4), ("a", 2)]), shape);
        for length in 0..bytes.len() {
            assert!(optimizer::read_state(&bytes[..length], spec, &layout).is_err(), "{length} bytes");
        }
        let mut small = Parameters::new(self::layout(&[("a", 1)]), vec![1.0]).unwrap();
        let step = optimizer::step(spec, state.clone(), &mut small, &mean(vec![0.1]));
        assert_eq!(step, Err(StepError::StateLength(WrongLength { expected: 1, got: 7 })));
    }
    // A model is not a state.
    let bytes = learning::checkpoint::write(&model()).unwrap();
    assert_eq!(optimizer::read_state(&bytes, &specs[1].0, &layout), Err(StateError::NoState));
}

#[test]
fn a_step_out_of_range_leaves_the_model_whole() {
    for (spec, _) in specs() {
        let mut model = Parameters::new(layout(&[("a", 2)]), vec![1.0, f32::MAX]).unwrap();
        let before = model.clone();
        let huge = mean(vec![1.0, f32::INFINITY]);
        assert_eq!(optimizer::step(&spec, OptimizerState::Empty, &mut model, &huge), Err(StepError::NotFinite(1)));
        assert_eq!(model, before);
    }
}

/// The five participants of the reference.
fn participants() -> Vec<(Update, f64, u32)> {
    let golden = golden();
    let all = &golden["participants"];
    let (losses, examples, steps) = (numbers(&all["losses"]), &all["examples"], &all["steps"]);
    let deltas = all["deltas"].as_array().unwrap();
    let one = |(index, delta): (usize, &Value)| {
        let update = Update { delta: floats(delta), examples: examples[index].as_u64().unwrap(), metrics: vec![] };
        (update, losses[index], u32::try_from(steps[index].as_u64().unwrap()).unwrap())
    };
    deltas.iter().enumerate().map(one).collect()
}

fn params(max_weight: u32, metrics: usize) -> QuantizationParams {
    let (modulus_bits, clip_range, clip_norm, max_cohort) = (32, 1.0, Some(1.5), 5);
    QuantizationParams { parameters: 7, modulus_bits, clip_range, clip_norm, max_weight, max_cohort, metrics }
}

/// Through the integers of secure aggregation.
fn summed(params: QuantizationParams, updates: &[Update]) -> MeanUpdate {
    let codec = Codec::new(params).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut words = vec![0_u32; codec.len()];
    for update in updates {
        for (sum, word) in words.iter_mut().zip(codec.encode(update, &mut rng).unwrap().words) {
            *sum = sum.wrapping_add(word);
        }
    }
    let participants = u32::try_from(updates.len()).unwrap();
    codec.decode(&ExactSum::new(words, 32, participants).unwrap().release_without_noise()).unwrap()
}

#[test]
fn q_ffl_is_the_papers_in_numbers_and_in_the_secure_sum() {
    for case in golden()["q_ffl"].as_array().unwrap() {
        let fairness =
            Fairness { q: case["q"].as_f64().unwrap(), lipschitz: case["lipschitz"].as_f64().unwrap(), loss_cap: 2.5 };
        let (mut numerator, mut denominator) = (vec![0.0; 7], 0.0);
        for (update, loss, _) in participants() {
            let norm = update.delta.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
            let terms = fairness.terms(loss, norm);
            denominator += terms.weight;
            for (sum, &value) in numerator.iter_mut().zip(&update.delta) {
                *sum += terms.factor * f64::from(value);
            }
        }
        for ((sum, start), expected) in numerator.iter().zip(model().values()).zip(numbers(&case["x"])) {
            let got = f64::from(*start) + sum / denominator;
            assert!((got - expected).abs() <= 1e-6 * expected.abs(), "q = {}: {got} {expected}", fairness.q);
        }

        let params = params(1_000_000, 0);
        let rule = QFfl::new(fairness, &params).unwrap();
        let sent: Vec<_> =
            participants().into_iter().map(|(update, loss, _)| rule.contribution(loss, update).unwrap()).collect();
        let mean = summed(params, &sent);
        assert_eq!(mean.weight, sent.iter().map(|update| update.examples).sum::<u64>());
        // Weights are rounded up by less than 1 each, words by less than a unit each.
        let codec = Codec::new(params).unwrap();
        let unit = 5.0 / (codec.scale() * mean.weight as f64);
        for (got, sum) in mean.delta.iter().zip(&numerator) {
            let expected = sum / denominator;
            let bound = expected.abs() * 5.0 / mean.weight as f64 + unit + 1e-7;
            assert!((f64::from(*got) - expected).abs() <= bound, "q = {}: {got} {expected}", fairness.q);
        }
    }
}

/// The sum without rounding to integers.
fn plain_mean(updates: &[Update]) -> MeanUpdate {
    let weight: u64 = updates.iter().map(|update| update.examples).sum();
    let sum = |index: usize| {
        let terms = updates.iter().map(|update| update.examples as f64 * f64::from(update.delta[index]));
        terms.sum::<f64>() / weight as f64
    };
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    let delta = (0..updates[0].delta.len()).map(|index| sum(index) as f32).collect();
    let metric = updates.iter().map(|update| update.metrics[0]).reduce(MetricValue::merge).unwrap();
    MeanUpdate { delta, weight, participants: u32::try_from(updates.len()).unwrap(), metrics: vec![metric] }
}

#[test]
fn fed_nova_is_the_papers_in_numbers_and_in_the_secure_sum() {
    for case in golden()["fed_nova"].as_array().unwrap() {
        let number = |name: &str| case[name].as_f64().unwrap();
        let reach = |steps| fed_nova::reach(steps, number("momentum"), number("proximal")).unwrap();
        for ((_, _, steps), expected) in participants().iter().zip(numbers(&case["reach"])) {
            assert!((reach(*steps) - expected).abs() <= 1e-12 * expected, "{} {expected}", reach(*steps));
        }
        let params = params(60, 1);
        let rule = FedNova::new(reach(20), &params).unwrap();
        let normalize = |(update, _, steps)| rule.normalize(reach(steps), update).unwrap();
        let sent: Vec<_> = participants().into_iter().map(normalize).collect();

        // One step of 20 is scaled up as if that participant had continued, so the range must leave room.
        let wide = QuantizationParams { clip_range: 32.0, clip_norm: None, ..params };
        let mut mean = summed(wide, &sent);
        let effective = FedNova::scale(&mut mean).unwrap();
        let (mut weighted, mut total) = (0.0, 0.0);
        for (update, _, steps) in participants() {
            weighted += update.examples as f64 * reach(steps) / reach(20);
            total += update.examples as f64;
        }
        assert!((effective - weighted / total).abs() < 1e-4, "{effective}");
        let stepped = |mean: &MeanUpdate| {
            let mut model = model();
            optimizer::step(&ServerOptimizer::default(), OptimizerState::Empty, &mut model, mean).unwrap();
            model
        };
        let unit = 5.0 / (Codec::new(wide).unwrap().scale() * total);
        close(stepped(&mean).values(), &case["x"], 1e-5 + unit);
        let mut exact = plain_mean(&sent);
        FedNova::scale(&mut exact).unwrap();
        close(stepped(&exact).values(), &case["x"], 1e-6);
    }
}
