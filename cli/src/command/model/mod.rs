//! `tributary model`: list, show, fetch, verify, pin, promote, restore, evaluate and export model versions.

use std::path::PathBuf;

use operator_client::fetch;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use wire::inspect::{ModelView, TaskSummary, TaskView};
use wire::{Digest, TaskId, route};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Output, Table, bytes, when};
use crate::server::{IfMatchArgs, PartArgs, Server, ServerArgs, Tagged};

mod evaluate;
mod export;
mod import;
mod provenance;

pub(crate) use evaluate::{Score, examples};
pub(crate) use provenance::read_signed;

/// Model commands.
#[derive(clap::Subcommand)]
pub(crate) enum ModelCommand {
    /// List a task's model versions, newest first
    List {
        /// Id or name of the task
        task: String,
        #[command(flatten)]
        part: PartArgs,
    },
    /// Download a model version as safetensors, with resume and SHA-256 check
    Fetch {
        /// Id or name of the task
        task: String,
        /// Version number [default: the newest]
        #[arg(long = "model-version", value_name = "VERSION")]
        version: Option<u32>,
        /// Download the promoted version
        #[arg(long, conflicts_with = "version")]
        promoted: bool,
        /// Output file [default: TASK-vVERSION.safetensors]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Also save the signed provenance record, for `model verify`
        #[arg(long, value_name = "FILE")]
        provenance: Option<PathBuf>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show a model version and its provenance
    Show(OneVersion),
    /// Verify a downloaded model against its signed record, offline
    Verify(provenance::Verify),
    /// Exempt a model version from the task's retention
    Pin(ChangedVersion),
    /// Make a pinned version subject to the task's retention again
    Unpin(ChangedVersion),
    /// Mark a model version as the one to use, for `model fetch --promoted`; its file is kept
    ///
    /// --if-match compares the task's ETag, which `task show` prints.
    Promote(ChangedVersion),
    /// Publish an earlier model version again, as the newest: the next round starts from it
    ///
    /// No round may be in progress: pause the task first, and resume it afterwards. --if-match compares the task's ETag,
    /// which `task show` prints.
    Restore(ChangedVersion),
    /// Measure accuracy and loss of a safetensors file on held-out data
    Evaluate(evaluate::Evaluate),
    /// Convert a ready model to ONNX or a Triton model repository
    Export(export::Export),
    /// Turn an ONNX file into a graph that devices train, and its parameters into a safetensors file
    Import(import::Import),
}

#[derive(clap::Args)]
pub(crate) struct OneVersion {
    /// Id or name of the task
    task: String,
    /// Version number
    version: u32,
    #[command(flatten)]
    server: ServerArgs,
}

/// A version to change.
#[derive(clap::Args)]
pub(crate) struct ChangedVersion {
    #[command(flatten)]
    one: OneVersion,
    #[command(flatten)]
    if_match: IfMatchArgs,
}

impl ChangedVersion {
    /// Performs the change; `words` describes the answer from the version and the task's name.
    async fn change<A: Serialize + DeserializeOwned>(
        self,
        template: &str,
        output: Output,
        words: impl FnOnce(&A, u32, &str) -> String,
    ) -> Outcome {
        let OneVersion { task, version, server } = self.one;
        let server = server.client()?;
        let id = server.task(&task).await?;
        let path = route::fill(template, &[&id, &version]);
        let Tagged { view, etag } = server.post_tagged(&path, &json!({}), self.if_match.condition()).await?;
        output.answer_tagged(&view, etag.as_deref(), || words(&view, version, &task));
        Ok(())
    }

    async fn pin(self, template: &str, done: &str, output: Output) -> Outcome {
        let words = |_: &ModelView, version: u32, task: &str| format!("Version {version} of {task} is {done}.");
        self.change(template, output, words).await
    }

    async fn promote(self, output: Output) -> Outcome {
        let words = |_: &TaskView, version: u32, task: &str| format!("Version {version} of {task} is promoted.");
        self.change(route::MODEL_PROMOTE, output, words).await
    }

    async fn restore(self, output: Output) -> Outcome {
        let words = |model: &ModelView, version: u32, task: &str| {
            format!("Version {version} of {task} is published again, as version {}.", model.version)
        };
        self.change(route::MODEL_RESTORE, output, words).await
    }
}

impl ModelCommand {
    pub(crate) async fn run(self, output: Output) -> Outcome {
        match self {
            Self::List { task, part } => {
                let server = part.server.client()?;
                let task = server.task(&task).await?;
                output.answer_list(
                    &server.part::<ModelView>(&route::fill(route::MODELS, &[&task]), &[], part).await?,
                    table,
                );
                Ok(())
            }
            Self::Fetch { task, version, promoted, out, provenance, server } => {
                let server = server.client()?;
                let id = server.task(&task).await?;
                let version = if promoted { Some(self::promoted(&server, id).await?) } else { version };
                let model = find(&server, id, version).await?;
                let out = out.unwrap_or_else(|| format!("{task}-v{}.safetensors", model.version).into());
                fetch(&server, &model, &out, &output.transfers()).await?;
                if let Some(path) = provenance {
                    provenance::save(&server, &model, &path).await?;
                }
                if model.version == 0 && version.is_none() {
                    say_untrained(&server, id, output).await?;
                }
                let (version, round) = (model.version, model.round);
                let answer = FetchedModel { path: out, version, round, sha256: model.sha256, bytes: model.bytes };
                output.answer(&answer, || {
                    format!("{} (version {}, sha256 {})", answer.path.display(), model.version, model.sha256)
                });
                Ok(())
            }
            Self::Show(OneVersion { task, version, server }) => {
                let server = server.client()?;
                let task = server.task(&task).await?;
                let model = server.get_tagged(&route::fill(route::MODEL, &[&task, &version])).await?;
                provenance::show(&server, model, output).await
            }
            Self::Verify(verify) => verify.run(output),
            Self::Pin(version) => version.pin(route::MODEL_PIN, "pinned: it stays", output).await,
            Self::Unpin(version) => version.pin(route::MODEL_UNPIN, "no longer pinned", output).await,
            Self::Promote(version) => version.promote(output).await,
            Self::Restore(version) => version.restore(output).await,
            Self::Evaluate(evaluate) => evaluate.run(output),
            Self::Export(export) => export.run(output),
            Self::Import(import) => import.run(output),
        }
    }
}

/// Prints that the newest version is untrained, and whether an earlier task of the same name has a trained one.
async fn say_untrained(server: &Server, id: TaskId, output: Output) -> Outcome {
    output.note("version 0 is the initial model: no round has completed yet");
    let tasks: Vec<TaskSummary> = server.list(route::TASKS, usize::MAX).await?;
    let name = tasks.iter().find(|task| task.id == id).map(|task| task.name.as_str());
    let earlier =
        tasks.iter().find(|task| task.id != id && Some(task.name.as_str()) == name && task.status.is_terminal());
    if let Some(TaskSummary { id, name, status, .. }) = earlier {
        output.note(format!("an earlier task `{name}` is {status}: `tributary model fetch {id}` fetches its model"));
    }
    Ok(())
}

/// The version of a task's model that was promoted.
async fn promoted(server: &Server, task: TaskId) -> Outcome<u32> {
    let view: TaskView = server.get(&route::fill(route::TASK, &[&task]), &[]).await?;
    view.promoted_version.ok_or_else(|| {
        Failure::new(Exit::NotFound, "no version of this task was promoted: see `tributary model promote`")
    })
}

/// A version of a task's model, or its newest.
pub(super) async fn find(server: &Server, task: TaskId, version: Option<u32>) -> Outcome<ModelView> {
    if let Some(version) = version {
        return server.get(&route::fill(route::MODEL, &[&task, &version]), &[]).await;
    }
    let newest: Vec<ModelView> = server.list(&route::fill(route::MODELS, &[&task]), 1).await?;
    newest.into_iter().next().ok_or_else(|| Failure::new(Exit::NotFound, "this task has no model"))
}

/// A downloaded version.
#[derive(Serialize)]
struct FetchedModel {
    path: PathBuf,
    version: u32,
    /// The round that made it; `None` for the model that the task began with.
    round: Option<u32>,
    sha256: Digest,
    /// Size of the file.
    bytes: u64,
}

/// Whether a version can be downloaded, and for how long.
fn file(model: &ModelView) -> &'static str {
    match (model.removed_at, model.pinned_at) {
        (Some(_), _) => "removed",
        (None, Some(_)) => "pinned",
        (None, None) => "kept",
    }
}

fn table(models: &[ModelView], terminal: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("VERSION", Cells::Number),
        ("ROUND", Cells::Number),
        ("SIZE", Cells::Number),
        ("PUBLISHED", Cells::Text),
        ("FILE", Cells::Text),
        ("SHA-256", Cells::Text),
    ]);
    for model in models {
        table.row(vec![
            model.version.to_string(),
            model.round.map_or_else(|| "-".to_owned(), |round| round.to_string()),
            bytes(model.bytes),
            when(model.created_at),
            file(model).to_owned(),
            model.sha256.to_string(),
        ]);
    }
    table.render(terminal, "There are no model versions.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fits_eighty;

    #[test]
    fn a_list_of_versions_fits_eighty_columns() {
        let sha256 = "0123456789abcdef".repeat(4);
        let model = serde_json::json!({
            "task": "01934c2e-7d3a-7b1c-9f00-0123456789ab", "version": 1000, "sha256": sha256, "bytes": 663_000_000, "round": 1000,
            "created_at": 1_700_000_000_000_i64, "removed_at": 1_700_000_000_000_i64,
        });
        let models: [ModelView; 1] = [serde_json::from_value(model).unwrap()];
        let (whole, narrow) = (table(&models, None), table(&models, Some(80)));
        assert!(fits_eighty(&narrow) && whole.contains(&sha256), "{narrow}");
        // 7 + 5 + 6 + 20 + 7, and five gaps: 25 are left.
        assert!(narrow.contains("0123456789abcdef01234567…\n") && narrow.contains("SHA-256 shortened"), "{narrow}");
    }
}
