//! MLflow's file layout (`mlflow.store.tracking.file_store`): a run for each task, a step for each number of a round.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;
use task_spec::keys;
use wire::TaskStatus;

use super::records::TaskRounds;

/// The experiment's id: any digits that MLflow, which draws eighteen at random, is unlikely to draw.
const EXPERIMENT: &str = "725180046310547925";
/// Longest value of a parameter that MLflow takes, in bytes.
const PARAMETER_MAX: usize = 6000;

/// Writes the run of a task. Other files in the folder stay.
pub(super) fn write(task: &TaskRounds, out: &Path) -> io::Result<()> {
    fs::create_dir_all(out)?;
    let experiment = out.canonicalize()?.join(EXPERIMENT);
    let summary = &task.task.summary;
    let run = experiment.join(summary.id.0.simple().to_string());
    // Removes metrics of an earlier export that have since disappeared.
    match fs::remove_dir_all(&run) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for part in ["artifacts", "metrics", "params", "tags"] {
        fs::create_dir_all(run.join(part))?;
    }
    fs::write(experiment.join("meta.yaml"), experiment_meta(&experiment, summary.created_at.0))?;
    fs::write(run.join("meta.yaml"), run_meta(task, &run))?;
    fs::write(run.join("tags/mlflow.runName"), &summary.name)?;
    for (name, lines) in metrics(task) {
        fs::write(run.join("metrics").join(plain(&name)), lines)?;
    }
    for (name, value) in keys(&task.task.spec).map_err(io::Error::other)? {
        fs::write(run.join("params").join(plain(&name)), cut(&value))?;
    }
    Ok(())
}

/// Lines of `MILLISECONDS VALUE STEP`. MLflow keeps every attempt of a step.
fn metrics(task: &TaskRounds) -> BTreeMap<String, String> {
    let mut metrics: BTreeMap<String, String> = BTreeMap::new();
    for round in &task.rounds {
        let at = round.ended_at.unwrap_or(round.opened_at).0;
        for (name, value) in task.figures(round) {
            let _ = writeln!(metrics.entry(name).or_default(), "{at} {value} {}", round.number);
        }
    }
    metrics
}

/// A name as a file's: the coordinator's words must not lead elsewhere. Those of ours begin with a letter.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' };
    name.chars().map(plain).collect()
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(PARAMETER_MAX)]
}

/// YAML, of which JSON's texts and numbers are a part.
fn yaml(fields: &[(&str, Value)]) -> String {
    fields.iter().fold(String::new(), |mut text, (key, value)| {
        let _ = writeln!(text, "{key}: {value}");
        text
    })
}

fn url(folder: &Path) -> Value {
    url::Url::from_file_path(folder).map_or(Value::Null, |url| url.as_str().into())
}

fn experiment_meta(folder: &Path, created_at: i64) -> String {
    yaml(&[
        ("artifact_location", url(folder)),
        ("creation_time", created_at.into()),
        ("experiment_id", EXPERIMENT.into()),
        ("last_update_time", created_at.into()),
        ("lifecycle_stage", "active".into()),
        ("name", "tributary".into()),
    ])
}

fn run_meta(task: &TaskRounds, folder: &Path) -> String {
    let summary = &task.task.summary;
    let id = summary.id.0.simple().to_string();
    let ended_at = summary.status.is_terminal().then(|| task.task.history.last().map(|change| change.at.0)).flatten();
    // The numbers of MLflow's `RunStatus`.
    let status = match summary.status {
        TaskStatus::Active | TaskStatus::Paused => 1,
        TaskStatus::Completed | TaskStatus::BudgetExhausted => 3,
        TaskStatus::Cancelled => 5,
    };
    yaml(&[
        ("artifact_uri", url(&folder.join("artifacts"))),
        ("end_time", ended_at.map_or(Value::Null, Value::from)),
        ("entry_point_name", "".into()),
        ("experiment_id", EXPERIMENT.into()),
        ("lifecycle_stage", "active".into()),
        ("run_id", id.as_str().into()),
        ("run_name", summary.name.as_str().into()),
        ("run_uuid", id.as_str().into()),
        ("source_name", "".into()),
        ("source_type", 4.into()),
        ("source_version", "".into()),
        ("start_time", summary.created_at.0.into()),
        ("status", status.into()),
        ("tags", Value::Array(Vec::new())),
        ("user_id", "".into()),
    ])
}
