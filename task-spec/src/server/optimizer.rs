//! The server optimizer of a task: its name and hyperparameters. `learning` implements it.

use serde::{Deserialize, Serialize};

/// The rule that applies the mean update to the model. Omitted values default to the paper's, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ServerOptimizer {
    /// McMahan et al. 2017: adds the mean update times the learning rate.
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
        /// β, 0 to below 1: repeated steps accumulate to 1 / (1 - β) of one.
        #[serde(default = "momentum")]
        momentum: f64,
    },
    /// Reddi et al. 2021: steps shrink where accumulated means are large.
    FedAdagrad {
        /// η, above 0.
        #[serde(default = "adagrad_rate")]
        learning_rate: f64,
        /// β₁, 0 to below 1.
        #[serde(default)]
        beta1: f64,
        /// τ: smaller is more adaptive.
        #[serde(default = "tau")]
        tau: f64,
    },
    /// Reddi et al. 2021: steps of similar size in every coordinate; no bias correction.
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
        /// τ: smaller is more adaptive.
        #[serde(default = "tau")]
        tau: f64,
    },
    /// Reddi et al. 2021: as `fed_adam`, but forgets large means slowly.
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
        /// τ: smaller is more adaptive.
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
    /// Its name in a task file.
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

    /// Whether a step produces state that the next one needs.
    #[must_use]
    pub fn remembers(&self) -> bool {
        !matches!(self, Self::FedAvg { .. })
    }

    /// Invalid hyperparameters: each with its key and the rule it breaks.
    #[must_use]
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let (rate, decays, tau) = match *self {
            Self::FedAvg { learning_rate } => (learning_rate, vec![], None),
            Self::FedAvgM { learning_rate, momentum } => (learning_rate, vec![("momentum", momentum)], None),
            Self::FedAdagrad { learning_rate, beta1, tau } => (learning_rate, vec![("beta1", beta1)], Some(tau)),
            Self::FedAdam { learning_rate, beta1, beta2, tau } | Self::FedYogi { learning_rate, beta1, beta2, tau } => {
                (learning_rate, vec![("beta1", beta1), ("beta2", beta2)], Some(tau))
            }
        };
        let mut problems = Vec::new();
        if !(rate.is_finite() && rate > 0.0) {
            problems.push(("learning_rate", "must be positive and finite".to_owned()));
        }
        let decays = decays.into_iter().filter(|(_, value)| !(0.0..1.0).contains(value));
        problems.extend(decays.map(|(key, value)| (key, format!("is {value}; it must be at least 0 and below 1"))));
        if tau.is_some_and(|tau| !(1e-18..=1e18).contains(&tau)) {
            problems.push(("tau", "must be between 1e-18 and 1e18".to_owned()));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_people_write_it() {
        let read = |text: &str| serde_json::from_str::<ServerOptimizer>(text);
        assert_eq!(read(r#"{"name":"fed_avg"}"#).unwrap(), ServerOptimizer::default());
        let half = ServerOptimizer::FedAvg { learning_rate: 0.5 };
        assert_eq!(read(r#"{"name":"fed_avg","learning_rate":0.5}"#).unwrap(), half);
        for (text, expected) in [
            (r#"{"name":"fed_avg_m"}"#, ServerOptimizer::FedAvgM { learning_rate: 1.0, momentum: 0.9 }),
            (r#"{"name":"fed_adagrad"}"#, ServerOptimizer::FedAdagrad { learning_rate: 0.1, beta1: 0.0, tau: 1e-3 }),
            (
                r#"{"name":"fed_adam","tau":0.1}"#,
                ServerOptimizer::FedAdam { learning_rate: 0.01, beta1: 0.9, beta2: 0.99, tau: 0.1 },
            ),
            (
                r#"{"name":"fed_yogi"}"#,
                ServerOptimizer::FedYogi { learning_rate: 0.01, beta1: 0.9, beta2: 0.99, tau: 1e-3 },
            ),
        ] {
            assert_eq!(read(text).unwrap(), expected);
            assert_eq!(read(&serde_json::to_string(&expected).unwrap()).unwrap(), expected);
            assert!(text.contains(&format!("{:?}", expected.name())), "{text}");
            assert_eq!(expected.problems(), []);
        }
        assert!(read(r#"{"name":"fed_avg","momentum":0.5}"#).unwrap_err().to_string().contains("momentum"));
        assert!(read(r#"{"name":"adam"}"#).unwrap_err().to_string().contains("fed_adam"));
    }

    #[test]
    fn refuses_numbers_that_do_not_learn() {
        for bad in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(!ServerOptimizer::FedAvg { learning_rate: bad }.problems().is_empty(), "{bad}");
            let adam = ServerOptimizer::FedAdam { learning_rate: bad, beta1: 0.9, beta2: 0.99, tau: 1e-3 };
            assert!(!adam.problems().is_empty(), "{bad}");
            let tau = ServerOptimizer::FedAdagrad { learning_rate: 0.1, beta1: 0.0, tau: bad };
            assert!(tau.problems()[0].0 == "tau", "{bad}");
        }
        for bad in [1.0, -0.1, f64::NAN] {
            let error = |spec: ServerOptimizer| format!("{:?}", spec.problems());
            let m = error(ServerOptimizer::FedAvgM { learning_rate: 1.0, momentum: bad });
            assert!(m.contains("momentum") && m.contains("must be at least 0 and below 1"), "{m}");
            let yogi = error(ServerOptimizer::FedYogi { learning_rate: 0.1, beta1: 0.9, beta2: bad, tau: 1e-3 });
            assert!(yogi.contains("beta2"), "{yogi}");
        }
        assert_eq!(ServerOptimizer::default().problems(), []);
    }
}
