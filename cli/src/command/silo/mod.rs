//! `tributary silo`: for a participant with many GPUs behind it, whose trainer is a program (docs/PROGRAMS.md).

use crate::failure::Outcome;
use crate::output::Output;

mod plan;
mod report;

/// What to do for a site.
#[derive(clap::Subcommand)]
pub(crate) enum SiloCommand {
    /// Plan how many GPUs train one model: sharding, batch, memory, network, checkpoints; and print the file that runs it
    Plan(plan::PlanArgs),
    /// Sum up how fast a site's program trained: mean, min, max, deviation
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
