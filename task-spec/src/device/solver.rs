//! `training.solver`: corrections for participants that take unequal numbers of steps on different data. The arithmetic
//! is in `learning`.

use serde::{Deserialize, Serialize};

/// Alternatives to the mean of model differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Solver {
    /// Wang et al. 2020: divides updates by the distance their steps cover, and multiplies the mean by the mean
    /// distance.
    FedNova {
        /// Reference number of steps, for which an update is unchanged. Default: `training.steps`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u32>,
    },
    /// Karimireddy et al. 2020: corrects every gradient by control variates, which are learned through the same sum.
    Scaffold {
        /// N: how many participants there are to learn from, drawn or not. It weighs a round's change of the control variate.
        /// [`TrainingPlan::complete`](crate::TrainingPlan::complete) takes 0 for all.
        population: u32,
        /// Steps whose length is the unit of control variates: about those of a typical plan. Default:
        /// `training.steps`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u32>,
    },
}

impl Solver {
    /// Stable name, as in a task file.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::FedNova { .. } => "fed_nova",
            Self::Scaffold { .. } => "scaffold",
        }
    }

    /// The reference number of steps.
    #[must_use]
    pub fn steps(&self) -> Option<u32> {
        match *self {
            Self::FedNova { steps } | Self::Scaffold { steps, .. } => steps,
        }
    }

    /// Number of metrics in an update in addition to the task's.
    #[must_use]
    pub fn extra_metrics(&self) -> usize {
        match self {
            // The distance covered by its steps.
            Self::FedNova { .. } => 1,
            Self::Scaffold { .. } => 0,
        }
    }

    /// Whether a control variate is published, sent and summed with the model, and participants store one.
    #[must_use]
    pub fn has_control(&self) -> bool {
        matches!(self, Self::Scaffold { .. })
    }

    /// The agreed encoding: the name, a zero, the steps and the population (0 if it has none), as big-endian 32-bit numbers.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let population = match *self {
            Self::FedNova { .. } => 0,
            Self::Scaffold { population, .. } => population,
        };
        let mut bytes = self.as_str().as_bytes().to_vec();
        bytes.push(0);
        bytes.extend(self.steps().unwrap_or_default().to_be_bytes());
        bytes.extend(population.to_be_bytes());
        bytes
    }
}

/// FedProx's adaptation of μ (Li et al. 2020, §5.3.2): up while a loss rises, down while it falls. Starts at
/// `training.proximal_mu`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdaptiveMu {
    /// The metric to follow: a loss, where lower is better.
    pub metric: String,
    /// Change of μ at each adaptation.
    pub step: f64,
    /// Number of consecutive falls of the loss after which μ shrinks.
    pub patience: u32,
}

impl Default for AdaptiveMu {
    fn default() -> Self {
        Self { metric: "loss".to_owned(), step: 0.1, patience: 5 }
    }
}
