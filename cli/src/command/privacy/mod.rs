//! `tributary privacy`: the cost of a promise of differential privacy, before and during training.
//!
//! Every figure comes from `learning::privacy`, here or on the coordinator; this module only queries and presents.

use crate::failure::Outcome;
use crate::output::Output;

mod audit;
mod chart;
mod compare;
pub(crate) mod ledger;
mod plan;
mod tables;
mod verify;

/// What to do about privacy.
#[derive(clap::Subcommand)]
pub(crate) enum PrivacyCommand {
    /// Compute the noise for an epsilon, or the epsilon of a noise, and whether a model can still learn
    Plan(plan::PlanArgs),
    /// Compare all mechanisms for the same participants, cohort, rounds and epsilon
    Compare(compare::Compare),
    /// Test a task's noise and clipping: made-up participants of a copy in this process, whose updates are guessed
    ///
    /// Nothing is sent, and no coordinator is needed. The exit code is 20 if the task breaks its promise.
    Audit(audit::Audit),
    /// Show a task's ledger: what each release cost, and what has been spent in total
    Show(ledger::Show),
    /// Write a task's ledger and the coordinator's signature to a file
    Export(verify::Export),
    /// Verify an exported ledger offline: its signature, and the cost of every release
    Verify(verify::Verify),
}

impl PrivacyCommand {
    /// Whether the command prints events.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Audit(_))
    }

    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::Plan(plan) => plan.run(output),
            Self::Compare(compare) => compare.run(output),
            Self::Audit(audit) => audit.run(output).await,
            Self::Show(show) => show.run(output).await,
            Self::Export(export) => export.run(output).await,
            Self::Verify(verify) => verify.run(output),
        }
    }
}
