//! `tributary infer`: serve published models, go back to the version before, and see who serves.

mod rollback;
mod serve;
mod servers;

use crate::failure::Outcome;
use crate::output::Output;

/// What to do with models that are served.
#[derive(clap::Subcommand)]
pub(crate) enum InferCommand {
    /// Answer requests for predictions by the newest published versions (Open Inference Protocol v2)
    Serve(Box<serve::Serve>),
    /// Have a server of models go back to the version before, and not use the newer one again
    Rollback(rollback::Rollback),
    /// List who serves a task's model, and by which version
    Servers(servers::Servers),
}

impl InferCommand {
    /// Whether it prints events, one per line.
    pub(super) fn is_stream(&self) -> bool {
        match self {
            Self::Serve(_) => true,
            Self::Rollback(_) | Self::Servers(_) => false,
        }
    }

    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::Serve(serve) => serve.run(output).await,
            Self::Rollback(rollback) => rollback.run(output).await,
            Self::Servers(servers) => servers.run(output).await,
        }
    }
}
