//! How the mean update of a round changes the published model.
//!
//! A closed set: the task names one, and every replica takes the same step to the same bits.

mod fed_avg;

use serde::{Deserialize, Serialize};

use crate::parameters::{Parameters, WrongLength};
use crate::quantize::MeanUpdate;

/// The server optimizer of a task, for example `{ name = "fed_avg", learning_rate = 1.0 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum OptimizerSpec {
    /// Adds the mean update times the learning rate (McMahan et al. 2017, algorithm 1; the rate as in Reddi et al. 2021).
    FedAvg {
        /// Finite and above 0; 1 replaces the model by the weighted mean of the participants' models.
        #[serde(default = "one")]
        learning_rate: f64,
    },
}

fn one() -> f64 {
    1.0
}

impl Default for OptimizerSpec {
    fn default() -> Self {
        Self::FedAvg { learning_rate: one() }
    }
}

/// What an optimizer remembers from one round to the next.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum OptimizerState {
    /// Nothing: the first round of any optimizer, and every round of one without memory.
    #[default]
    Empty,
}

/// Why a step cannot be taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A rate that is zero, negative, NaN or infinite.
    #[error("the server's learning rate must be finite and above 0, not {0}")]
    LearningRate(f64),
    /// A mean of another model.
    #[error("the mean update does not fit the model: {0}")]
    WrongLength(#[from] WrongLength),
    /// The model would leave the range of `f32`.
    #[error("parameter {0} would become NaN or infinite; the model is left as it was")]
    NotFinite(usize),
}

impl OptimizerSpec {
    /// Checks the numbers, for when a task is created.
    ///
    /// # Errors
    /// [`StepError::LearningRate`].
    pub fn check(&self) -> Result<(), StepError> {
        match *self {
            Self::FedAvg { learning_rate } if learning_rate.is_finite() && learning_rate > 0.0 => Ok(()),
            Self::FedAvg { learning_rate } => Err(StepError::LearningRate(learning_rate)),
        }
    }
}

/// Changes `parameters` (the shared part of the model) by one round's mean and returns what the next step has to know.
/// A pure function, elementwise and in `f64`.
///
/// # Errors
/// Any [`StepError`]; `parameters` are then unchanged.
pub fn step(
    spec: &OptimizerSpec,
    state: OptimizerState,
    parameters: &mut Parameters,
    mean: &MeanUpdate,
) -> Result<OptimizerState, StepError> {
    spec.check()?;
    let expected = parameters.values().len();
    if mean.delta.len() != expected {
        return Err(WrongLength { expected, got: mean.delta.len() }.into());
    }
    match (spec, state) {
        (&OptimizerSpec::FedAvg { learning_rate }, OptimizerState::Empty) => {
            fed_avg::step(learning_rate, parameters, mean)?;
            Ok(OptimizerState::Empty)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_people_write_it() {
        let read = |text: &str| serde_json::from_str::<OptimizerSpec>(text);
        assert_eq!(read(r#"{"name":"fed_avg"}"#).unwrap(), OptimizerSpec::default());
        let half = OptimizerSpec::FedAvg { learning_rate: 0.5 };
        assert_eq!(read(r#"{"name":"fed_avg","learning_rate":0.5}"#).unwrap(), half);
        assert_eq!(read(&serde_json::to_string(&half).unwrap()).unwrap(), half);
        assert!(read(r#"{"name":"fed_avg","momentum":0.5}"#).unwrap_err().to_string().contains("momentum"));
        assert!(read(r#"{"name":"adam"}"#).unwrap_err().to_string().contains("fed_avg"));
    }

    #[test]
    fn refuses_rates_that_do_not_learn() {
        for bad in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(OptimizerSpec::FedAvg { learning_rate: bad }.check().is_err(), "{bad}");
        }
        assert_eq!(OptimizerSpec::default().check(), Ok(()));
    }
}
