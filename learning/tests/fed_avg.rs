//! FedAvg end to end, compared with McMahan's weighted mean of models, computed in `f64` without quantization.

use std::sync::Arc;

use learning::{
    Codec, ExactSum, OptimizerState, QuantizationParams, TensorSpec, Update, checkpoint, initialize, optimizer,
};
use learning::{Layout, Parameters};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use task_spec::{Initial, ServerOptimizer, TensorDeclaration};

/// One value in `[-1, 1)`.
fn draw(rng: &mut ChaCha8Rng) -> f32 {
    (rng.next_u32() >> 8) as f32 / 8_388_608.0 - 1.0
}

#[test]
fn a_round_ends_at_the_weighted_mean_of_the_models() {
    let tensor = |name: &str, shape: &[u64], init| TensorDeclaration { name: name.into(), shape: shape.to_vec(), init };
    let uniform = Initial::Uniform { bound: 0.1_f32.sqrt() };
    let inits = [tensor("w", &[10, 60], uniform), tensor("b", &[10], Initial::Zeros)];
    let spec = |init: &TensorDeclaration| TensorSpec { name: init.name.clone(), shape: init.shape.clone() };
    let layout = Arc::new(Layout::new(inits.iter().map(spec).collect()).unwrap());
    let received = initialize(Arc::clone(&layout), &inits, 1).unwrap();
    let codec = Codec::new(QuantizationParams {
        parameters: layout.len(),
        modulus_bits: 32,
        clip_range: 1.0,
        clip_norm: None,
        max_weight: 500,
        max_cohort: 20,
        metrics: 0,
    })
    .unwrap();

    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut words = vec![0_u32; codec.len()];
    let mut reference = vec![0.0_f64; layout.len()];
    let (mut total, participants) = (0.0, 20_u32);
    for participant in 0..u64::from(participants) {
        let values = received.values().iter().map(|v| v + 0.3 * draw(&mut rng)).collect();
        let trained = Parameters::new(Arc::clone(&layout), values).unwrap();
        // Beyond 500 examples the weight is capped.
        let examples = 40 * (participant + 1);
        let weight = examples.min(500) as f64;
        for (sum, value) in reference.iter_mut().zip(trained.values()) {
            *sum += weight * f64::from(*value);
        }
        total += weight;
        let update = Update::between(&received, trained, examples, vec![]).unwrap();
        for (sum, word) in words.iter_mut().zip(codec.encode(&update, &mut rng).unwrap().words) {
            *sum = sum.wrapping_add(word);
        }
    }

    let sum = ExactSum::new(words, 32, participants).unwrap().release_without_noise();
    let mean = codec.decode(&sum).unwrap();
    assert_eq!(mean.weight as f64, total);
    let mut model = received.clone();
    optimizer::step(&ServerOptimizer::default(), OptimizerState::default(), &mut model, &mean).unwrap();
    let unit = f64::from(participants) / (codec.scale() * total);
    for (got, sum) in model.values().iter().zip(&reference) {
        assert!((f64::from(*got) - sum / total).abs() <= unit + 2e-7, "{got} {}", sum / total);
    }

    // The same sum gives the same bytes again, also after storage.
    let again = codec.decode(&learning::NoisedSum::from_bytes(&sum.to_bytes()).unwrap()).unwrap();
    let mut second = received.clone();
    optimizer::step(&ServerOptimizer::default(), OptimizerState::default(), &mut second, &again).unwrap();
    assert_eq!(checkpoint::write(&model).unwrap(), checkpoint::write(&second).unwrap());
}
