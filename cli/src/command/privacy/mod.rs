//! `tributary privacy`: what a promise of differential privacy costs, before anybody trains.
//!
//! Every figure comes from `learning::privacy`; this only asks and presents.

use crate::failure::Outcome;
use crate::output::Output;

mod chart;
mod plan;

/// What to do about privacy.
#[derive(clap::Subcommand)]
pub(crate) enum PrivacyCommand {
    /// Say what noise keeps an epsilon, or what epsilon a noise keeps, and whether a model can still learn
    Plan(plan::PlanArgs),
}

impl PrivacyCommand {
    pub(crate) fn run(self, output: Output) -> Outcome {
        match self {
            Self::Plan(plan) => plan.run(output),
        }
    }
}
