//! The state of a server optimizer from a blob, and whether the weights that a task asks of its participants (q-FFL) can work.

use std::sync::Arc;

use bytes::Bytes;
use learning::optimizer::{OptimizerState, state};
use learning::{Codec, Fairness, FairnessError, Layout, QFfl, StateError};
use task_spec::{ServerOptimizer, TrainingPlan};

/// Whether weights by loss are fine enough. Participants compute them; the coordinator's mean is the same.
///
/// # Errors
/// [`FairnessError`], of the field `training.fairness`.
pub(crate) fn check_fairness(plan: &TrainingPlan, codec: &Codec) -> Result<(), FairnessError> {
    let Some(fairness) = &plan.fairness else { return Ok(()) };
    let lipschitz = fairness.lipschitz(plan.learning_rate);
    QFfl::new(Fairness { q: fairness.q, lipschitz, loss_cap: fairness.loss_cap }, codec.params()).map(drop)
}

/// The state to go on from; `kept` is what is stored beside version `version` of a model of this layout.
///
/// # Errors
/// What is wrong with it: a version that a step made has the state of that step, and no other.
pub(crate) fn resume(
    spec: &ServerOptimizer,
    layout: &Arc<Layout>,
    version: u32,
    kept: Option<&Bytes>,
) -> Result<OptimizerState, StateError> {
    match kept {
        Some(bytes) => state::read(bytes, spec, layout),
        None if version == 0 || !spec.remembers() => Ok(OptimizerState::Empty),
        None => Err(StateError::NoState),
    }
}

#[cfg(test)]
mod tests {
    use learning::TensorSpec;

    use super::*;

    #[test]
    fn goes_on_from_the_state_of_this_model_and_optimizer_only() {
        let layout = |len| Arc::new(Layout::new(vec![TensorSpec { name: "w".into(), shape: vec![len] }]).unwrap());
        let momentum = ServerOptimizer::FedAvgM { learning_rate: 1.0, momentum: 0.9 };
        let adam = ServerOptimizer::FedAdam { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, tau: 1e-3 };
        let state = OptimizerState::FedAvgM { velocity: vec![1.0, 2.0] };
        let kept = Bytes::from(state::write(&state, &layout(2)).unwrap().unwrap());

        assert_eq!(resume(&momentum, &layout(2), 3, Some(&kept)), Ok(state));
        assert_eq!(resume(&momentum, &layout(2), 0, None), Ok(OptimizerState::Empty));
        assert_eq!(resume(&ServerOptimizer::default(), &layout(2), 3, None), Ok(OptimizerState::Empty));
        assert_eq!(resume(&momentum, &layout(2), 3, None), Err(StateError::NoState));
        assert!(matches!(resume(&adam, &layout(2), 3, Some(&kept)), Err(StateError::OtherOptimizer { .. })));
        assert!(matches!(resume(&momentum, &layout(3), 3, Some(&kept)), Err(StateError::OtherModel(_))));
    }
}
