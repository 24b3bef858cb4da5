//! `tributary work`: runs background steps until ctrl-c or SIGTERM, in addition to the serving processes.

use std::net::SocketAddr;
use std::path::PathBuf;

use coordinator::{Coordinator, Parts};

use super::serve::{follow_level, load, start_failure, stopped};
use crate::arguments::log_level;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::signal;

/// Where its configuration comes from.
#[derive(clap::Args)]
pub(crate) struct Work {
    /// TOML file, the same as for the serving processes; TRIBUTARY_<SECTION>_<KEY> in the environment overrides it
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Reported once it works.
#[derive(serde::Serialize)]
struct Working {
    /// Plain-HTTP address of `/healthz`, `/readyz` and `/metrics`, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<SocketAddr>,
}

impl Work {
    pub(super) async fn run(self, log: Option<&str>, output: Output) -> Outcome {
        let mut config = load(&self.config)?;
        if let Some(level) = log {
            config.telemetry.level = log_level(level)?;
        }
        let level = coordinator::observe::start_logging(&config.telemetry)
            .map_err(Failure::because(Exit::Configuration, "cannot start logging"))?;
        // Before any key is read.
        coordinator::forbid_core_dumps();
        tokio::spawn(follow_level(self.config.clone(), level));
        // Registered first: a signal during start-up must not be lost.
        let mut stop = std::pin::pin!(signal::shutdown());
        let parts = Parts::system().map_err(|error| start_failure(&error))?;
        // The database may be waited for.
        let worker = tokio::select! {
            worker = Coordinator::work(&config, parts) => worker.map_err(|error| start_failure(&error))?,
            () = &mut stop => {
                stopped(output);
                return Ok(());
            }
        };
        let working = Working { health: worker.health_address() };
        output.event("working", &working);
        output.line("Working on rounds.");
        if let Some(health) = working.health {
            output.line(format!("Health       http://{health}/readyz"));
        }
        output.line("Ctrl-c ends it.");
        stop.await;
        output.line("Shutting down: finishing the steps that were begun.");
        worker.shutdown().await;
        stopped(output);
        Ok(())
    }
}
