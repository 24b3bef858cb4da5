//! `tributary task report`: a task on one page, for readers who are no engineers.

use std::path::PathBuf;

use client_sdk::clock::{Clock as _, SystemClock};
use serde_json::json;
use wire::audit::AuditKeyView;
use wire::inspect::{ModelView, RoundView};
use wire::route;

use super::result;
use crate::command::privacy::ledger;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, check_writable, number};
use crate::server::ServerArgs;

mod curve;
mod facts;
mod page;
mod survival;

use facts::Facts;

/// Arguments of `tributary task report`.
#[derive(clap::Args)]
pub(crate) struct TaskReport {
    /// Id or name of the task
    task: String,
    /// The page to write: one file, which loads nothing from elsewhere
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
}

impl TaskReport {
    pub(super) async fn run(self, output: Output) -> Outcome {
        check_writable(&self.html)?;
        let server = self.server.client()?;
        let id = server.task(&self.task).await?;
        let bar = output.spinner("reading rounds".to_owned());
        let task = server.task_view(id).await?;
        let mut rounds: Vec<RoundView> = server.list(&route::fill(route::ROUNDS, &[&id]), usize::MAX).await?;
        let mut versions: Vec<ModelView> = server.list(&route::fill(route::MODELS, &[&id]), usize::MAX).await?;
        let privacy = if task.spec.privacy.is_private() { Some(ledger::get(&server, id).await?) } else { None };
        let audit: AuditKeyView = server.get(route::AUDIT_KEY, &[]).await?;
        let analysis = match &task.spec.analytics {
            Some(_) => Some(result::published(&server, id, None).await?.1),
            None => None,
        };
        bar.finish_and_clear();
        rounds.sort_by_key(|round| round.number);
        versions.sort_by_key(|model| model.version);
        let at = SystemClock::new().now().wall;
        let facts = Facts { task, rounds, versions, privacy, audit, analysis, at };
        let path = self.html.display();
        std::fs::write(&self.html, page::draw(&facts))
            .map_err(Failure::because(Exit::Io, format!("cannot write {path}")))?;
        let completed = facts.completed().count() as u64;
        let about = json!({ "task": id, "html": self.html, "rounds": completed, "versions": facts.versions.len() });
        output.answer(&about, || format!("{path} has {} rounds of task {}", number(completed), self.task));
        Ok(())
    }
}
