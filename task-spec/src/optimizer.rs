//! The server optimizer as a task names it. What it does to a model is `learning`'s; this is its name and its numbers.

use serde::{Deserialize, Serialize};

use super::check::Checks;

/// How the mean update steps the model. What is left out is the paper's value where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ServerOptimizer {
    /// McMahan et al. 2017: add the mean update, times a learning rate.
    FedAvg {
        /// Usually 1.
        #[serde(default = "one")]
        learning_rate: f64,
    },
    /// Hsu et al. 2019: momentum over the rounds' means.
    FedAvgM {
        /// Above 0.
        #[serde(default = "one")]
        learning_rate: f64,
        /// β, 0 to below 1: the steps add up to 1 / (1 - β) of one.
        #[serde(default = "momentum")]
        momentum: f64,
    },
    /// Reddi et al. 2021: steps shrink where means have been large.
    FedAdagrad {
        /// η, above 0.
        #[serde(default = "adagrad_rate")]
        learning_rate: f64,
        /// β₁, 0 to below 1.
        #[serde(default)]
        beta1: f64,
        /// τ, how adaptive: small is more.
        #[serde(default = "tau")]
        tau: f64,
    },
    /// Reddi et al. 2021: steps of about one size in every coordinate; no bias correction.
    FedAdam {
        /// η, above 0.
        #[serde(default = "adam_rate")]
        learning_rate: f64,
        /// β₁, 0 to below 1.
        #[serde(default = "momentum")]
        beta1: f64,
        /// β₂, 0 to below 1.
        #[serde(default = "beta2")]
        beta2: f64,
        /// τ, how adaptive: small is more.
        #[serde(default = "tau")]
        tau: f64,
    },
    /// Reddi et al. 2021: as `fed_adam`, and slow to forget a large mean.
    FedYogi {
        /// η, above 0.
        #[serde(default = "adam_rate")]
        learning_rate: f64,
        /// β₁, 0 to below 1.
        #[serde(default = "momentum")]
        beta1: f64,
        /// β₂, 0 to below 1.
        #[serde(default = "beta2")]
        beta2: f64,
        /// τ, how adaptive: small is more.
        #[serde(default = "tau")]
        tau: f64,
    },
}

impl Default for ServerOptimizer {
    fn default() -> Self {
        Self::FedAvg { learning_rate: one() }
    }
}

fn one() -> f64 {
    1.0
}

fn momentum() -> f64 {
    0.9
}

fn adagrad_rate() -> f64 {
    0.1
}

fn adam_rate() -> f64 {
    0.01
}

fn beta2() -> f64 {
    0.99
}

fn tau() -> f64 {
    1e-3
}

impl ServerOptimizer {
    pub(super) fn check(&self, checks: &mut Checks) {
        let (rate, decays, tau): (f64, &[(&str, f64)], _) = match *self {
            Self::FedAvg { learning_rate } => (learning_rate, &[], None),
            Self::FedAvgM { learning_rate, momentum } => (learning_rate, &[("momentum", momentum)], None),
            Self::FedAdagrad { learning_rate, beta1, tau } => (learning_rate, &[("beta1", beta1)], Some(tau)),
            Self::FedAdam { learning_rate, beta1, beta2, tau } | Self::FedYogi { learning_rate, beta1, beta2, tau } => {
                (learning_rate, &[("beta1", beta1), ("beta2", beta2)], Some(tau))
            }
        };
        checks.require(
            rate.is_finite() && rate > 0.0,
            "aggregation.optimizer.learning_rate",
            "must be positive and finite",
        );
        for (name, value) in decays {
            let field = format!("aggregation.optimizer.{name}");
            checks.require_with((0.0..1.0).contains(value), &field, || {
                format!("is {value}; it must be at least 0 and below 1")
            });
        }
        checks.require(
            tau.is_none_or(|tau| (1e-18..=1e18).contains(&tau)),
            "aggregation.optimizer.tau",
            "must be between 1e-18 and 1e18",
        );
    }
}
