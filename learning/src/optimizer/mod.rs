//! How the mean update of a round changes the published model.
//!
//! A closed set: the task names one, and every replica takes the same step to the same bits. What an optimizer remembers
//! belongs to the model version it made ([`state`]), not to the process that made it.

mod adaptive;
mod elementwise;
mod fed_adagrad;
mod fed_adam;
mod fed_avg;
mod fed_avg_m;
mod fed_yogi;
pub mod state;

use serde::{Deserialize, Serialize};

pub use state::{Moments, OptimizerState, StateError};

use crate::parameters::{Parameters, WrongLength};
use crate::quantize::MeanUpdate;
use adaptive::Rule;

/// The server optimizer of a task, for example `{ name = "fed_avg", learning_rate = 1.0 }`.
///
/// Where a paper gives a value it is the default. Reddi et al. search the adaptive optimizers' learning rates per data set;
/// the defaults here are what did well on several of theirs and are a place to start from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum OptimizerSpec {
    /// Adds the mean update times the learning rate (McMahan et al. 2017, algorithm 1; the rate as in Reddi et al. 2021).
    FedAvg {
        /// Finite and above 0; 1 replaces the model by the weighted mean of the participants' models.
        #[serde(default = "default::one")]
        learning_rate: f64,
    },
    /// Momentum over the rounds' means (Hsu et al. 2019).
    FedAvgM {
        /// Finite and above 0.
        #[serde(default = "default::one")]
        learning_rate: f64,
        /// β, in [0, 1).
        #[serde(default = "default::momentum")]
        momentum: f64,
    },
    /// Reddi et al. 2021, algorithm 2.
    FedAdagrad {
        /// η, finite and above 0.
        #[serde(default = "default::adagrad_rate")]
        learning_rate: f64,
        /// β₁, in [0, 1).
        #[serde(default)]
        beta1: f64,
        /// τ, how adaptive: small is more; finite and above 0.
        #[serde(default = "default::tau")]
        tau: f64,
    },
    /// Reddi et al. 2021, algorithm 2.
    FedAdam {
        /// η, finite and above 0.
        #[serde(default = "default::adam_rate")]
        learning_rate: f64,
        /// β₁, in [0, 1).
        #[serde(default = "default::momentum")]
        beta1: f64,
        /// β₂, in [0, 1).
        #[serde(default = "default::beta2")]
        beta2: f64,
        /// τ, how adaptive: small is more; finite and above 0.
        #[serde(default = "default::tau")]
        tau: f64,
    },
    /// Reddi et al. 2021, algorithm 2.
    FedYogi {
        /// η, finite and above 0.
        #[serde(default = "default::adam_rate")]
        learning_rate: f64,
        /// β₁, in [0, 1).
        #[serde(default = "default::momentum")]
        beta1: f64,
        /// β₂, in [0, 1).
        #[serde(default = "default::beta2")]
        beta2: f64,
        /// τ, how adaptive: small is more; finite and above 0.
        #[serde(default = "default::tau")]
        tau: f64,
    },
}

mod default {
    pub(super) fn one() -> f64 {
        1.0
    }

    pub(super) fn momentum() -> f64 {
        0.9
    }

    pub(super) fn adagrad_rate() -> f64 {
        0.1
    }

    pub(super) fn adam_rate() -> f64 {
        0.01
    }

    pub(super) fn beta2() -> f64 {
        0.99
    }

    pub(super) fn tau() -> f64 {
        1e-3
    }
}

impl Default for OptimizerSpec {
    fn default() -> Self {
        Self::FedAvg { learning_rate: default::one() }
    }
}

/// Why a step cannot be taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// A rate that is zero, negative, NaN or infinite.
    #[error("the server's learning rate must be finite and above 0, not {0}")]
    LearningRate(f64),
    /// A momentum or a rate of forgetting that does not fade.
    #[error("the server optimizer's {name} must be at least 0 and below 1, not {value}")]
    Decay {
        /// Which.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// A floor under the adaptive denominator that is none: `τ²` and `1 / τ` must be normal numbers of `f32`.
    #[error("the server optimizer's tau must be between 1e-18 and 1e18, not {0}")]
    Tau(f64),
    /// The memory of another optimizer.
    #[error("the state belongs to the optimizer {got}, but the task's is {expected}")]
    OtherOptimizer {
        /// The task's.
        expected: &'static str,
        /// The state's.
        got: &'static str,
    },
    /// The memory of another model.
    #[error("the optimizer's state does not fit the model: {0}")]
    StateLength(WrongLength),
    /// A mean of another model.
    #[error("the mean update does not fit the model: {0}")]
    WrongLength(#[from] WrongLength),
    /// The model or the optimizer's state would leave the range of `f32`.
    #[error("parameter {0} would become NaN or infinite; the model is left as it was")]
    NotFinite(usize),
}

impl OptimizerSpec {
    /// The name in a task file.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::FedAvg { .. } => "fed_avg",
            Self::FedAvgM { .. } => "fed_avg_m",
            Self::FedAdagrad { .. } => "fed_adagrad",
            Self::FedAdam { .. } => "fed_adam",
            Self::FedYogi { .. } => "fed_yogi",
        }
    }

    /// Whether a step leaves a state that the next one needs.
    #[must_use]
    pub fn remembers(&self) -> bool {
        !matches!(self, Self::FedAvg { .. })
    }

    /// Checks the numbers, for when a task is created.
    ///
    /// # Errors
    /// [`StepError::LearningRate`], [`StepError::Decay`] or [`StepError::Tau`].
    pub fn check(&self) -> Result<(), StepError> {
        let (rate, decays, tau) = match *self {
            Self::FedAvg { learning_rate } => (learning_rate, [None, None], None),
            Self::FedAvgM { learning_rate, momentum } => (learning_rate, [Some(("momentum", momentum)), None], None),
            Self::FedAdagrad { learning_rate, beta1, tau } => {
                (learning_rate, [Some(("beta1", beta1)), None], Some(tau))
            }
            Self::FedAdam { learning_rate, beta1, beta2, tau } | Self::FedYogi { learning_rate, beta1, beta2, tau } => {
                (learning_rate, [Some(("beta1", beta1)), Some(("beta2", beta2))], Some(tau))
            }
        };
        if !(rate.is_finite() && rate > 0.0) {
            return Err(StepError::LearningRate(rate));
        }
        if let Some((name, value)) = decays.into_iter().flatten().find(|(_, value)| !(0.0..1.0).contains(value)) {
            return Err(StepError::Decay { name, value });
        }
        match tau {
            Some(tau) if !(1e-18..=1e18).contains(&tau) => Err(StepError::Tau(tau)),
            _ => Ok(()),
        }
    }
}

/// Changes `parameters` (the shared part of the model) by one round's mean and returns what the next step has to know.
/// A pure function, elementwise and in `f64`. The state is [`OptimizerState::Empty`] before the first round, and after it
/// what the step before returned.
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
    if let Some(got) = state.len().filter(|&got| got != expected) {
        return Err(StepError::StateLength(WrongLength { expected, got }));
    }
    if let Some(got) = state.optimizer().filter(|&got| got != spec.name()) {
        return Err(StepError::OtherOptimizer { expected: spec.name(), got });
    }
    take(spec, state, parameters.values_mut(), &mean.delta)
}

/// The step itself; everything is checked, and the state is this optimizer's or empty.
fn take(
    spec: &OptimizerSpec,
    state: OptimizerState,
    values: &mut [f32],
    deltas: &[f32],
) -> Result<OptimizerState, StepError> {
    match *spec {
        OptimizerSpec::FedAvg { learning_rate } => {
            fed_avg::step(learning_rate, values, deltas)?;
            Ok(OptimizerState::Empty)
        }
        OptimizerSpec::FedAvgM { learning_rate, momentum } => {
            let mut velocity = state.into_velocity().unwrap_or_else(|| vec![0.0; values.len()]);
            fed_avg_m::step(learning_rate, momentum, &mut velocity, values, deltas)?;
            Ok(OptimizerState::FedAvgM { velocity })
        }
        OptimizerSpec::FedAdagrad { learning_rate, beta1, tau } => {
            let rule = Rule { learning_rate, beta1, tau };
            let mut moments = state.into_moments().unwrap_or_else(|| rule.start(values.len()));
            fed_adagrad::step(&rule, &mut moments, values, deltas)?;
            Ok(OptimizerState::FedAdagrad(moments))
        }
        OptimizerSpec::FedAdam { learning_rate, beta1, beta2, tau } => {
            let rule = Rule { learning_rate, beta1, tau };
            let mut moments = state.into_moments().unwrap_or_else(|| rule.start(values.len()));
            fed_adam::step(&rule, beta2, &mut moments, values, deltas)?;
            Ok(OptimizerState::FedAdam(moments))
        }
        OptimizerSpec::FedYogi { learning_rate, beta1, beta2, tau } => {
            let rule = Rule { learning_rate, beta1, tau };
            let mut moments = state.into_moments().unwrap_or_else(|| rule.start(values.len()));
            fed_yogi::step(&rule, beta2, &mut moments, values, deltas)?;
            Ok(OptimizerState::FedYogi(moments))
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
        for (text, expected) in [
            (r#"{"name":"fed_avg_m"}"#, OptimizerSpec::FedAvgM { learning_rate: 1.0, momentum: 0.9 }),
            (r#"{"name":"fed_adagrad"}"#, OptimizerSpec::FedAdagrad { learning_rate: 0.1, beta1: 0.0, tau: 1e-3 }),
            (
                r#"{"name":"fed_adam","tau":0.1}"#,
                OptimizerSpec::FedAdam { learning_rate: 0.01, beta1: 0.9, beta2: 0.99, tau: 0.1 },
            ),
            (
                r#"{"name":"fed_yogi"}"#,
                OptimizerSpec::FedYogi { learning_rate: 0.01, beta1: 0.9, beta2: 0.99, tau: 1e-3 },
            ),
        ] {
            assert_eq!(read(text).unwrap(), expected);
            assert_eq!(read(&serde_json::to_string(&expected).unwrap()).unwrap(), expected);
            assert!(text.contains(&format!("{:?}", expected.name())), "{text}");
            assert_eq!(expected.check(), Ok(()));
        }
        assert!(read(r#"{"name":"fed_avg","momentum":0.5}"#).unwrap_err().to_string().contains("momentum"));
        assert!(read(r#"{"name":"adam"}"#).unwrap_err().to_string().contains("fed_adam"));
    }

    #[test]
    fn refuses_numbers_that_do_not_learn() {
        for bad in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(OptimizerSpec::FedAvg { learning_rate: bad }.check().is_err(), "{bad}");
            let adam = OptimizerSpec::FedAdam { learning_rate: bad, beta1: 0.9, beta2: 0.99, tau: 1e-3 };
            assert!(adam.check().is_err(), "{bad}");
            let tau = OptimizerSpec::FedAdagrad { learning_rate: 0.1, beta1: 0.0, tau: bad };
            assert!(matches!(tau.check(), Err(StepError::Tau(_))), "{bad}");
        }
        for bad in [1.0, -0.1, f64::NAN] {
            let error = |spec: OptimizerSpec| spec.check().unwrap_err().to_string();
            let m = error(OptimizerSpec::FedAvgM { learning_rate: 1.0, momentum: bad });
            assert!(m.contains("momentum must be at least 0 and below 1"), "{m}");
            let yogi = error(OptimizerSpec::FedYogi { learning_rate: 0.1, beta1: 0.9, beta2: bad, tau: 1e-3 });
            assert!(yogi.contains("beta2"), "{yogi}");
        }
        assert_eq!(OptimizerSpec::default().check(), Ok(()));
    }
}
