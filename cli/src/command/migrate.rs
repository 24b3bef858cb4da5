//! `tributary migrate`: brings the database to the newest schema, without serving.

use std::path::PathBuf;

use coordinator::Parts;

use crate::command::serve;
use crate::failure::Outcome;
use crate::output::Output;

/// Arguments of `tributary migrate`.
#[derive(clap::Args)]
pub(crate) struct Migrate {
    /// TOML file, see docs/config/coordinator.toml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl Migrate {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let config = serve::load(&self.config)?;
        let parts = Parts::system().map_err(|error| serve::start_failure(&error))?;
        coordinator::migrate(&config, parts).await.map_err(|error| serve::start_failure(&error))?;
        output
            .answer(&serde_json::json!({ "database": "up_to_date" }), || "The database has the newest schema.".into());
        Ok(())
    }
}
