//! Server optimizers: apply the mean update of a round to the published model.
//!
//! The task names one of a closed set, and every replica takes the same step to the same bits. An optimizer's state
//! belongs to the model version it produced (`state`), not to a process.

mod adaptive;
mod elementwise;
mod error;
mod fed_adagrad;
mod fed_adam;
mod fed_avg;
mod fed_avg_m;
mod fed_yogi;
mod state;

use std::io::Cursor;

use task_spec::ServerOptimizer;

pub use error::StepError;
pub use state::{OptimizerState, OptimizerVariables, StateError, StateFile, write as write_state};

use crate::checkpoint::CheckpointError;
use crate::parameters::{Layout, Parameters, WrongLength};
use crate::quantize::MeanUpdate;
use adaptive::Rule;

/// Updates `parameters` (the shared part of the model) by one round's mean and returns the next state. Pure and elementwise, in `f64`.
/// `state` is [`OptimizerState::Empty`] before the first round, and afterwards the previous step's result.
///
/// # Errors
/// Any [`StepError`]; `parameters` are then unchanged.
pub fn step(
    spec: &ServerOptimizer,
    state: OptimizerState,
    parameters: &mut Parameters,
    mean: &MeanUpdate,
) -> Result<OptimizerState, StepError> {
    step_slice(spec, state, parameters.values_mut(), &mean.delta)
}

/// As [`step`], for a slice of the values, their means and their states: the result is the same as for the whole vectors.
///
/// # Errors
/// Any [`StepError`]; the values are then unchanged.
pub fn step_slice(
    spec: &ServerOptimizer,
    state: OptimizerState,
    values: &mut [f32],
    deltas: &[f32],
) -> Result<OptimizerState, StepError> {
    if let Some((key, problem)) = spec.problems().into_iter().next() {
        return Err(StepError::Number { key, problem });
    }
    let expected = values.len();
    if deltas.len() != expected {
        return Err(WrongLength { expected, got: deltas.len() }.into());
    }
    if let Some(got) = state.len().filter(|&got| got != expected) {
        return Err(StepError::StateLength(WrongLength { expected, got }));
    }
    if let Some(got) = state.optimizer().filter(|&got| got != spec.name()) {
        return Err(StepError::OtherOptimizer { expected: spec.name(), got });
    }
    take(spec, state, values, deltas)
}

/// The state file of the optimizer of `spec` for a model of this layout.
///
/// # Errors
/// [`CheckpointError::Malformed`] for a layout beyond the limits of safetensors.
pub fn state_file(spec: &ServerOptimizer, layout: &Layout) -> Result<StateFile, CheckpointError> {
    StateFile::new(spec.name(), names(spec).to_vec(), layout)
}

/// Reads the stored state of the optimizer of `spec` for a model of this layout.
///
/// # Errors
/// Any [`StateError`]; claimed sizes are checked before anything is allocated.
pub fn read_state(bytes: &[u8], spec: &ServerOptimizer, layout: &Layout) -> Result<OptimizerState, StateError> {
    let (file, mut bytes) = (state_file(spec, layout)?, Cursor::new(bytes));
    let opened = file.open(&mut bytes).and_then(|opened| match opened {
        Ok(()) => file.read(&mut bytes, 0, layout.len()),
        Err(error) => Ok(Err(error)),
    });
    opened.unwrap_or_else(|error| Err(CheckpointError::Malformed(error.to_string()).into()))
}

/// Names, in the file, of an optimizer's vectors, in the order of its step.
const fn names(spec: &ServerOptimizer) -> &'static [&'static str] {
    match spec {
        ServerOptimizer::FedAvg { .. } => &[],
        ServerOptimizer::FedAvgM { .. } => &["velocity"],
        ServerOptimizer::FedAdagrad { .. } | ServerOptimizer::FedAdam { .. } | ServerOptimizer::FedYogi { .. } => {
            &["first_moment", "second_moment"]
        }
    }
}

/// Takes the step; all arguments are checked, and the state is empty or belongs to this optimizer.
fn take(
    spec: &ServerOptimizer,
    state: OptimizerState,
    values: &mut [f32],
    deltas: &[f32],
) -> Result<OptimizerState, StepError> {
    match *spec {
        ServerOptimizer::FedAvg { learning_rate } => {
            fed_avg::step(learning_rate, values, deltas)?;
            Ok(OptimizerState::Empty)
        }
        ServerOptimizer::FedAvgM { learning_rate, momentum } => {
            let mut kept = state.or(|| [vec![0.0; values.len()]]);
            fed_avg_m::step(learning_rate, momentum, &mut kept[0], values, deltas)?;
            Ok(OptimizerState::kept(spec.name(), names(spec), kept))
        }
        ServerOptimizer::FedAdagrad { learning_rate, beta1, tau } => {
            adaptive(spec, Rule { learning_rate, beta1, tau }, state, values, deltas, fed_adagrad::next)
        }
        ServerOptimizer::FedAdam { learning_rate, beta1, beta2, tau } => {
            let next = |v, square| fed_adam::next(beta2, v, square);
            adaptive(spec, Rule { learning_rate, beta1, tau }, state, values, deltas, next)
        }
        ServerOptimizer::FedYogi { learning_rate, beta1, beta2, tau } => {
            let next = |v, square| fed_yogi::next(beta2, v, square);
            adaptive(spec, Rule { learning_rate, beta1, tau }, state, values, deltas, next)
        }
    }
}

/// Takes a step of an adaptive optimizer; `next(v, Δ²)` is the next `v`.
fn adaptive(
    spec: &ServerOptimizer,
    rule: Rule,
    state: OptimizerState,
    values: &mut [f32],
    deltas: &[f32],
    next: impl Fn(f64, f64) -> f64,
) -> Result<OptimizerState, StepError> {
    let mut moments = state.or(|| rule.start(values.len()));
    rule.step(&mut moments, values, deltas, next)?;
    Ok(OptimizerState::kept(spec.name(), names(spec), moments))
}
