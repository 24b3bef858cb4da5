//! `tributary silo`: for a participant with many GPUs behind it, whose trainer is a program (docs/PROGRAMS.md).

use crate::failure::Outcome;
use crate::output::Output;

mod plan;
mod report;

/// Site commands.
#[derive(clap::Subcommand)]
pub(crate) enum SiloCommand {
    /// Plan multi-GPU training: sharding, batch, memory, network, checkpoints; optionally print a launch script
    Plan(plan::PlanArgs),
    /// Summarize the training speed of a site's program: mean, min, max, deviation
    Report(report::ReportArgs),
}

impl SiloCommand {
    pub(crate) fn run(self, output: Output) -> Outcome {
        match self {
            Self::Plan(plan) => plan.run(output),
            Self::Report(report) => report.run(output),
        }
    }
}
