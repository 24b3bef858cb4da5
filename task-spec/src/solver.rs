//! `training.solver`: what keeps participants together that take unequal steps on unlike data. The arithmetic is `learning`'s.

use serde::{Deserialize, Serialize};

/// How local work enters the model where "mean of the differences" is not what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Solver {
    /// Wang et al. 2020: updates are divided by how far their steps go, and the mean is multiplied by the mean of that.
    FedNova {
        /// Steps that an update is of as it is. Default: `training.steps`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u32>,
    },
    /// Karimireddy et al. 2020: every gradient is corrected by control variates, which are learnt through the same sum.
    Scaffold {
        /// N: how many participants there are to learn from, drawn or not. It weighs a round's change of the control variate.
        /// [`TrainingPlan::complete`](crate::TrainingPlan::complete) takes 0 for all.
        population: u32,
        /// Steps whose length is the unit of control variates: about a usual plan's. Default: `training.steps`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u32>,
    },
}

impl Solver {
    /// The stable name, as in a task file.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::FedNova { .. } => "fed_nova",
            Self::Scaffold { .. } => "scaffold",
        }
    }

    /// What it refers to.
    #[must_use]
    pub fn steps(&self) -> Option<u32> {
        match *self {
            Self::FedNova { steps } | Self::Scaffold { steps, .. } => steps,
        }
    }

    /// Metrics of an update beside the task's own.
    #[must_use]
    pub fn extra_metrics(&self) -> usize {
        match self {
            // How far its steps went.
            Self::FedNova { .. } => 1,
            Self::Scaffold { .. } => 0,
        }
    }

    /// Whether a control variate is published, sent and summed beside the model, and participants keep one.
    #[must_use]
    pub fn has_control(&self) -> bool {
        matches!(self, Self::Scaffold { .. })
    }

    /// What participants agree on: the name, a zero, the steps, and the population (0 where it has none), as 32-bit numbers,
    /// largest byte first.
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

/// FedProx's rule for μ (Li et al. 2020, §5.3.2): up while a loss rises, down while it falls. `training.proximal_mu` is where it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdaptiveMu {
    /// The metric that is followed: a loss, of which less is better.
    pub metric: String,
    /// How much μ rises or falls at once.
    pub step: f64,
    /// So many falls of the loss in a row lower μ.
    pub patience: u32,
}

impl Default for AdaptiveMu {
    fn default() -> Self {
        Self { metric: "loss".to_owned(), step: 0.1, patience: 5 }
    }
}
