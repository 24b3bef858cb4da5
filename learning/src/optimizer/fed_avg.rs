//! FedAvg: the model moves by the weighted mean of the participants' deltas (McMahan et al. 2017).

use super::{StepError, elementwise};

/// Adds `learning_rate * delta`; the caller has checked lengths and rate.
pub(super) fn step(learning_rate: f64, values: &mut [f32], deltas: &[f32]) -> Result<(), StepError> {
    elementwise::update(values, [], deltas, |value, [], delta| (value + learning_rate * delta, []))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use task_spec::ServerOptimizer;

    use super::super::{OptimizerState, StepError, step};
    use crate::parameters::{Layout, Parameters, TensorSpec, WrongLength};
    use crate::quantize::MeanUpdate;

    fn parameters(values: &[f32]) -> Parameters {
        let spec = TensorSpec { name: "w".into(), shape: vec![values.len() as u64] };
        Parameters::new(Arc::new(Layout::new(vec![spec]).unwrap()), values.to_vec()).unwrap()
    }

    fn mean(delta: &[f32]) -> MeanUpdate {
        MeanUpdate { delta: delta.to_vec(), weight: 1, participants: 1, metrics: vec![] }
    }

    #[test]
    fn moves_by_the_rate_times_the_mean() {
        let mut model = parameters(&[1.0, -2.0, 0.5]);
        let spec = ServerOptimizer::FedAvg { learning_rate: 0.5 };
        let state = step(&spec, OptimizerState::Empty, &mut model, &mean(&[2.0, 1.0, 0.0])).unwrap();
        assert_eq!((model.values(), state), ([2.0, -1.5, 0.5].as_slice(), OptimizerState::Empty));
    }

    #[test]
    fn an_error_leaves_the_model_whole() {
        let mut model = parameters(&[1.0, f32::MAX]);
        let spec = ServerOptimizer::default();
        let result = step(&spec, OptimizerState::Empty, &mut model, &mean(&[1.0, f32::MAX]));
        assert_eq!(result, Err(StepError::NotFinite(1)));
        let result = step(&spec, OptimizerState::Empty, &mut model, &mean(&[1.0]));
        assert_eq!(result, Err(WrongLength { expected: 2, got: 1 }.into()));
        let frozen = ServerOptimizer::FedAvg { learning_rate: 0.0 };
        let result = step(&frozen, OptimizerState::Empty, &mut model, &mean(&[1.0, 1.0]));
        assert!(matches!(result, Err(StepError::Number { key: "learning_rate", .. })), "{result:?}");
        assert_eq!(model.values(), [1.0, f32::MAX]);
    }
}
