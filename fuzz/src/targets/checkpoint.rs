//! Untrusted model and optimizer state files. An accepted file is written to the same values, and can be read again, as a whole or in
//! pieces.

use std::sync::Arc;

use learning::checkpoint::{read, read_from, read_layout, write};
use learning::optimizer::{self, OptimizerState};
use learning::quantize::MeanUpdate;
use learning::parameters::{Layout, Parameters, TensorSpec};
use task_spec::ServerOptimizer;

fn known() -> Arc<Layout> {
    let tensor = |name: &str, shape: &[u64]| TensorSpec { name: name.into(), shape: shape.to_vec() };
    Arc::new(Layout::new(vec![tensor("fc1.weight", &[3, 2]), tensor("fc1.bias", &[3]), tensor("scale", &[])]).unwrap())
}

fn optimizers() -> [ServerOptimizer; 3] {
    let (learning_rate, beta1, tau) = (0.1, 0.9, 1e-3);
    [
        ServerOptimizer::default(),
        ServerOptimizer::FedAvgM { learning_rate, momentum: 0.9 },
        ServerOptimizer::FedAdagrad { learning_rate, beta1, tau },
    ]
}

pub fn run(data: &[u8]) {
    let expected = known();
    let streamed = read_from(&mut &data[..], &expected).expect("memory can be read");
    assert_eq!(read(data, &expected).ok(), streamed.ok(), "a file is read like its bytes");
    if let Ok(parameters) = read(data, &expected) {
        assert!(parameters.values().iter().all(|value| value.is_finite()));
        let written = write(&parameters).expect("finite values can be written");
        assert_eq!(read(&written, &expected).unwrap().values(), parameters.values());
    }
    for spec in optimizers() {
        if let Ok(remembered) = optimizer::read_state(data, &spec, &expected) {
            assert_eq!(remembered.optimizer(), Some(spec.name()), "a state of another optimizer was taken");
            let written = optimizer::write_state(&remembered, &expected).unwrap().expect("it is not empty");
            assert_eq!(optimizer::read_state(&written, &spec, &expected), Ok(remembered));
        }
    }
    if let Ok(layout) = read_layout(data) {
        // A file is at least as long as its claimed content.
        assert!(layout.len() <= data.len());
        drop(read(data, &Arc::new(layout)));
    }
}

/// A model of the known layout, one of another layout, and two states.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut parameters = Parameters::zeros(known());
    for (value, number) in parameters.values_mut().iter_mut().zip(1u8..) {
        *value = f32::from(number) / 4.0;
    }
    let one = TensorSpec { name: "a".into(), shape: vec![1] };
    let other = Parameters::zeros(Arc::new(Layout::new(vec![one]).unwrap()));
    let numbers = parameters.values().to_vec();
    let [_, momentum, adagrad] = optimizers();
    let state = |spec: &ServerOptimizer| {
        let mean = MeanUpdate { delta: numbers.clone(), weight: 1, participants: 1, metrics: vec![] };
        let state = optimizer::step(spec, OptimizerState::Empty, &mut Parameters::zeros(known()), &mean).unwrap();
        optimizer::write_state(&state, &known()).unwrap().unwrap()
    };
    vec![
        write(&parameters).unwrap(),
        write(&other).unwrap(),
        state(&momentum),
        state(&adagrad),
    ]
}
