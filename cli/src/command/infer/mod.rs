//! `tributary infer`: serve published models, go back to the previous version, and list the servers.

mod rollback;
mod serve;
mod servers;

use crate::failure::Outcome;
use crate::output::Output;

/// Model serving commands.
#[derive(clap::Subcommand)]
pub(crate) enum InferCommand {
    /// Serve predictions of the newest published versions (Open Inference Protocol v2)
    Serve(Box<serve::Serve>),
    /// Roll a model server back to the previous version, and block the newer one
    Rollback(rollback::Rollback),
    /// List the servers of a task's model and their versions
    Servers(servers::Servers),
}

impl InferCommand {
    /// Whether the command prints events, one per line.
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
