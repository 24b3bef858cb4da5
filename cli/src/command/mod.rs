//! The command line: one file per subcommand.

use clap::CommandFactory as _;
use coordinator::config::TelemetryConfig;

use crate::allocator::{self, Options};
use crate::arguments::log_level;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Format, Output};

mod audit;
mod backup;
mod check_config;
mod comparison;
mod completions;
mod demo;
mod devices;
mod export;
mod fsck;
pub(crate) mod infer;
mod keeping;
mod manual;
mod migrate;
pub(crate) mod model;
pub(crate) mod participant;
mod privacy;
mod region;
mod restore;
mod round;
mod serve;
mod silo;
mod simulate;
pub(crate) mod task;
mod token;
mod work;

/// Federated learning: one model, many devices' private data.
#[derive(clap::Parser)]
#[command(name = "tributary", version = coordinator::version())]
pub(crate) struct Cli {
    /// Output format: text for people, json for programs
    #[arg(long, global = true, value_enum, default_value = "text", hide_possible_values = true)]
    pub(crate) format: Format,
    /// What to log to stderr, for example info or info,coordinator::work=debug
    #[arg(long, global = true, env = "TRIBUTARY_LOG", value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Default log level of a model server.
const SERVING_LOG: &str = "warn,tributary::serving=info";

/// The subcommands.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run a complete federation on this machine and print its progress
    Demo(Box<demo::Demo>),
    /// Run thousands of simulated devices under virtual time
    Simulate(Box<simulate::Simulate>),
    /// Run a coordinator
    Serve(serve::Serve),
    /// Run background work for coordinators that share a PostgreSQL database
    Work(work::Work),
    /// Create and control tasks
    Task {
        #[command(subcommand)]
        command: task::TaskCommand,
    },
    /// Show, watch and compare rounds
    Round {
        #[command(subcommand)]
        command: round::RoundCommand,
    },
    /// List, fetch, pin and evaluate model versions
    Model {
        #[command(subcommand)]
        command: model::ModelCommand,
    },
    /// Serve published models, list their servers and roll back
    Infer {
        #[command(subcommand)]
        command: infer::InferCommand,
    },
    /// List, show, revoke or run participants
    Participant {
        #[command(subcommand)]
        command: participant::ParticipantCommand,
    },
    /// Take part in another coordinator's task with a whole region
    Region(Box<region::Region>),
    /// Create and revoke operator tokens, create enrolment tokens
    Token {
        #[command(subcommand)]
        command: token::TokenCommand,
    },
    /// Plan differential privacy, and show the privacy spent
    Privacy {
        #[command(subcommand)]
        command: privacy::PrivacyCommand,
    },
    /// Plan and report training at a site with several GPUs
    Silo {
        #[command(subcommand)]
        command: silo::SiloCommand,
    },
    /// Export rounds and metrics to CSV, Parquet, TensorBoard or MLflow
    Export(export::Export),
    /// List, export and verify the audit log
    Audit {
        #[command(subcommand)]
        command: audit::AuditCommand,
    },
    /// Check a configuration and print the effective one
    CheckConfig(check_config::CheckConfig),
    /// Show which devices can aggregate, and which one is selected
    Devices(devices::Devices),
    /// Migrate the database to the current schema
    Migrate(migrate::Migrate),
    /// Back up a coordinator's rows and blobs, also while it is running
    Backup(backup::Backup),
    /// Restore a backup to a stopped coordinator
    Restore(restore::Restore),
    /// Check all stored data for damage, and repair it where possible
    Fsck(fsck::Fsck),
    /// Print a shell completion script
    Completions(completions::Completions),
    /// Write manual pages
    Manual(manual::Manual),
}

impl Command {
    /// Whether it prints events, one per line, instead of one envelope.
    pub(crate) fn is_stream(&self) -> bool {
        match self {
            Self::Round { command } => command.is_stream(),
            Self::Participant { command } => command.is_stream(),
            Self::Infer { command } => command.is_stream(),
            Self::Privacy { command } => command.is_stream(),
            Self::Demo(_)
            | Self::Region(_)
            | Self::Serve(_)
            | Self::Work(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Fsck(_) => true,
            Self::Simulate(_)
            | Self::Task { .. }
            | Self::Model { .. }
            | Self::Token { .. }
            | Self::Silo { .. }
            | Self::Audit { .. }
            | Self::CheckConfig(_)
            | Self::Devices(_)
            | Self::Migrate(_)
            | Self::Export(_)
            | Self::Completions(_)
            | Self::Manual(_) => false,
        }
    }

    fn serves_models(&self) -> bool {
        matches!(self, Self::Infer { command } if command.is_stream())
    }

    /// Allocator options, if the command has any.
    pub(crate) fn allocator(&self) -> Option<Options> {
        match self {
            Self::Serve(_) | Self::Work(_) => Some(allocator::GIVE_BACK),
            Self::Simulate(_) => Some(allocator::KEEP),
            Self::Demo(_)
            | Self::Task { .. }
            | Self::Round { .. }
            | Self::Model { .. }
            | Self::Infer { .. }
            | Self::Participant { .. }
            | Self::Region(_)
            | Self::Token { .. }
            | Self::Privacy { .. }
            | Self::Silo { .. }
            | Self::Audit { .. }
            | Self::CheckConfig(_)
            | Self::Devices(_)
            | Self::Migrate(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Fsck(_)
            | Self::Export(_)
            | Self::Completions(_)
            | Self::Manual(_) => None,
        }
    }

    pub(crate) async fn run(self, log: Option<&str>, output: Output) -> Outcome {
        // The tree has one provider; installing it twice (a test in the same process) is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A coordinator logs by its configuration, a model server logs changes of versions; other commands are quiet by default.
        let log = log.or_else(|| self.serves_models().then_some(SERVING_LOG));
        if let (Some(level), false) = (log, matches!(self, Self::Serve(_) | Self::Work(_))) {
            let telemetry = TelemetryConfig { level: log_level(level)?, ..TelemetryConfig::default() };
            coordinator::observe::start_logging(&telemetry)
                .map_err(Failure::because(Exit::Internal, "cannot start logging"))?;
        }
        match self {
            Self::Demo(demo) => demo.run(output).await,
            Self::Simulate(simulate) => simulate.run(output).await,
            Self::Serve(serve) => serve.run(log, output).await,
            Self::Work(work) => work.run(log, output).await,
            Self::CheckConfig(check) => check.run(output),
            Self::Devices(devices) => devices.run(output),
            Self::Migrate(migrate) => migrate.run(output).await,
            Self::Backup(backup) => backup.run(output).await,
            Self::Restore(restore) => restore.run(output).await,
            Self::Fsck(fsck) => fsck.run(output).await,
            Self::Export(export) => export.run(output).await,
            Self::Completions(completions) => completions.run(Cli::command(), output),
            Self::Manual(manual) => manual.run(Cli::command(), output),
            Self::Task { command } => command.run(output).await,
            Self::Round { command } => command.run(output).await,
            Self::Model { command } => command.run(output).await,
            Self::Infer { command } => command.run(output).await,
            Self::Participant { command } => command.run(output).await,
            Self::Region(region) => region.run(output).await,
            Self::Token { command } => command.run(output).await,
            Self::Privacy { command } => command.run(output).await,
            Self::Silo { command } => command.run(output),
            Self::Audit { command } => command.run(output).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_flags_have_one_name() {
        Cli::command().debug_assert();
    }
}
