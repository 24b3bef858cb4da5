//! `tributary task compare`: tasks side by side, with their differences and results.

use wire::inspect::Comparison;
use wire::route;

use crate::command::comparison::side_by_side;
use crate::failure::Outcome;
use crate::output::Output;
use crate::server::ServerArgs;

/// Arguments of `tributary task compare`.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Ids or names of two tasks or more, at most eight
    #[arg(required = true, num_args = 2..=8)]
    tasks: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

impl Compare {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let server = self.server.client()?;
        let bar = output.spinner("reading rounds".to_owned());
        let mut query = Vec::new();
        for task in &self.tasks {
            query.push(("task", server.task(task).await?.to_string()));
        }
        let compared: Comparison = server.get(route::COMPARE, &query).await?;
        bar.finish_and_clear();
        let nothing = "They have the same keys, and no rounds yet.";
        output.answer(&compared, || side_by_side(&compared, "Last completed round", nothing, output.width()));
        Ok(())
    }
}
