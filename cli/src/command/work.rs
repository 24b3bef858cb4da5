//! `tributary work`: takes the background steps of rounds until ctrl-c or SIGTERM, beside processes that serve.

use std::net::SocketAddr;
use std::path::PathBuf;

use coordinator::{Coordinator, Parts};

use super::serve::{follow_level, load, start_failure};
use crate::arguments::log_level;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::signal;

/// Where its configuration comes from.
#[derive(clap::Args)]
pub(crate) struct Work {
    /// TOML file, the same as of the processes that serve; TRIBUTARY_<SECTION>_<KEY> in the environment overrides it
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Reported once it works.
#[derive(serde::Serialize)]
struct Working {
    /// Where `/healthz`, `/readyz` and `/metrics` are told in the clear, if anywhere.
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
        tokio::spawn(follow_level(self.config.clone(), level));
        // Registered first: a signal during start-up must not be lost.
        let stop = std::pin::pin!(signal::shutdown());
        let parts = Parts::system().map_err(|error| start_failure(&error))?;
        let worker = Coordinator::work(&config, parts).await.map_err(|error| start_failure(&error))?;
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
        output.event("stopped", &serde_json::json!({}));
        Ok(())
    }
}
