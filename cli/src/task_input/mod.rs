//! A task from layers: values implied by a command, a task file or a preset, short flags, and `--set KEY=VALUE`.
//!
//! Layers are put on top of each other as one table and read once, by the very types that read a task file; so every
//! key of a task can be set in every layer, with the same errors as a file. The coordinator runs the same check.

use std::path::Path;

use client_sdk::models::{self, Incomplete};
use serde_json::{Value, json};
use task_spec::{Deployment, ModelSpec, SpecError, TaskSpec, said_of, wrong_key};

mod defaults;
mod flags;
mod preset;
mod table;
mod training;

pub(crate) use defaults::{TaskDefaults, ahead_of_rounds, max_weight};
pub(crate) use flags::{Flag, FlagForm, FlagKeys, FlagValue, Flags, Reader, ShortFlags, many, plain, word, yes};
pub(crate) use training::{SCHEDULE, TRAINING};

use crate::failure::{Exit, Failure, Outcome};
use crate::task_file::{self, read_graph};
use table::Table;

/// A task file or preset, and settings on top.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TaskArgs {
    #[arg(long, value_name = "FILE|PRESET", help = preset::help())]
    task: Option<String>,
    #[command(flatten)]
    set: SetArgs,
}

/// Any key of a task.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SetArgs {
    /// Set any key of the task as in a task file (`tributary task keys` lists them), for example aggregation.optimizer.name=fed_adam or
    /// 'selection.cohort={fraction=0.1}'. May be repeated; overrides the file and the short flags, whose keys are in brackets
    #[arg(long, value_name = "KEY=VALUE", value_parser = FlagValue::set)]
    set: Vec<FlagValue>,
}

/// Base of a task.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    table: Table,
}

/// A task's settings, in layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskInput {
    source: Option<Source>,
    given: Vec<FlagValue>,
}

/// Why the layers do not form a task: the key, if known, and the reason.
struct TaskInputError {
    key: String,
    why: String,
}

impl TaskInput {
    /// The layers above the values implied by a command.
    ///
    /// # Errors
    /// A file cannot be read, or is not TOML.
    pub(crate) fn new<F>(task: &TaskArgs, short: &ShortFlags<F>) -> Outcome<Self> {
        let given = short.given.iter().chain(&task.set.set).cloned().collect();
        Ok(Self { source: task.task.as_deref().map(Source::open).transpose()?, given })
    }

    /// The same with one more setting on top.
    pub(crate) fn with(&self, more: FlagValue) -> Self {
        let mut input = self.clone();
        input.given.push(more);
        input
    }

    /// Adds the flag `--cohort`, which overrides a file and is overridden by `--set`.
    pub(crate) fn below_cohort(mut self, flag: Option<u32>) -> Self {
        if let Some(source) = self.source.as_mut().filter(|_| flag.is_some()) {
            table::remove(&mut source.table, "selection", "cohort");
        }
        self
    }

    /// Target cohort for this number of participants, if it was set.
    pub(crate) fn cohort(&self, draft: &TaskSpec, participants: u32) -> Option<u32> {
        self.value_of("selection.cohort").map(|_| draft.selection.cohort.target(participants))
    }

    /// Whether this short flag was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.given.iter().any(|given| given.flag == flag)
    }

    /// The value of a key that belongs to the command, whose path begins with a dot.
    pub(crate) fn own(&self, path: &str) -> Option<&Value> {
        let all = self.given.iter().flat_map(|given| &given.sets);
        all.filter(|(found, _)| found == path).map(|(_, value)| value).next_back()
    }

    /// The value of a task's key, from any layer.
    pub(crate) fn value_of(&self, path: &str) -> Option<Value> {
        table::get(&self.table(None), path).cloned()
    }

    /// The architecture from any layer, with the content of the graph's file if one is named.
    ///
    /// # Errors
    /// The file cannot be read or lacks a graph.
    pub(crate) fn architecture(&self) -> Outcome<Option<Value>> {
        let table = self.table(None);
        let Some(named) = table::get(&table, "model.graph") else { return Ok(self.value_of("model.architecture")) };
        let model = json!({ "graph": named, "loss": table::get(&table, "model.loss") });
        let wrong = |field: &str, detail: String| {
            Failure::new(Exit::Usage, "the model's graph cannot be used").with_error(field, detail)
        };
        let mut model: ModelSpec =
            serde_json::from_value(model).map_err(|error| wrong("model.loss", error.to_string()))?;
        read_graph(&mut model, Path::new("")).map_err(|Incomplete { field, detail }| wrong(field, detail))?;
        Ok(model.architecture)
    }

    /// All layers above the implied one, optionally without one setting.
    fn table(&self, without: Option<usize>) -> Table {
        // A flag for the rate alone needs an optimizer that has one.
        let mut table = Table::new();
        table::set(&mut table, "aggregation.optimizer.name", "fed_avg".into());
        if let Some(source) = &self.source {
            table::cover(&mut table, source.table.clone());
        }
        let given: Vec<_> = self.given.iter().enumerate().filter(|(index, _)| Some(*index) != without).collect();
        for (path, value) in given.iter().flat_map(|(_, given)| &given.sets).filter(|(path, _)| !path.starts_with('.'))
        {
            table::set(&mut table, path, value.clone());
        }
        for (path, value) in given.iter().flat_map(|(_, given)| &given.defaults) {
            if table::get(&table, path).is_none() {
                table::set(&mut table, path, value.clone());
            }
        }
        table
    }

    /// The task, with `implied` as the lowest layer.
    ///
    /// # Errors
    /// The flag or file at fault, the key and the reason.
    pub(crate) fn over(&self, implied: &Value) -> Outcome<TaskSpec> {
        self.read(implied, complete)
    }

    /// The same for values that are independent of the model, whose sizes are not known yet.
    ///
    /// # Errors
    /// As [`Self::over`].
    pub(crate) fn draft(&self, implied: &Value) -> Outcome<TaskSpec> {
        let draft = self.read(implied, |whole| parse(whole, 1))?;
        match draft.analytics {
            None => Ok(draft),
            Some(_) => {
                let detail =
                    "the task is an analysis, and this trains a model: see the examples statistics, clusters and trees";
                Err(Failure::new(Exit::Usage, detail))
            }
        }
    }

    fn read(&self, implied: &Value, read: fn(&Table) -> Result<TaskSpec, TaskInputError>) -> Outcome<TaskSpec> {
        let attempt = |said: Table| {
            let mut whole = implied.as_object().cloned().unwrap_or_default();
            table::cover(&mut whole, said);
            read(&whole)
        };
        attempt(self.table(None)).map_err(|wrong| {
            // The setting at fault: without it there would be a task.
            let is_cause = |index: &usize| attempt(self.table(Some(*index))).is_ok();
            let alone = Self { given: Vec::new(), ..self.clone() };
            let (exit, whose) = match (0..self.given.len()).rev().find(is_cause) {
                Some(index) => (Exit::Usage, self.given[index].to_string()),
                None => match &self.source {
                    Some(source) if attempt(alone.table(None)).is_err() => (Exit::Configuration, source.name.clone()),
                    _ => (Exit::Usage, self.given.iter().map(FlagValue::to_string).collect::<Vec<_>>().join(" ")),
                },
            };
            Failure::new(exit, whose).with_error(&wrong.key, wrong.why)
        })
    }

    /// Rejects tasks that a coordinator would reject, before anything starts.
    ///
    /// # Errors
    /// Every invalid key.
    pub(crate) fn check(&self, spec: &TaskSpec) -> Outcome {
        // A deployment reports its own constraints.
        let deployment = Deployment { poll_interval_ms: 1 };
        let mut privacy = spec.privacy.clone();
        privacy.rounds.get_or_insert(spec.rounds.count);
        let privacy = privacy.check().err().unwrap_or_default();
        let problems = if privacy.is_empty() { spec.check(&deployment).err().unwrap_or_default() } else { privacy };
        if problems.is_empty() { Ok(()) } else { Err(self.refusal(&problems)) }
    }

    fn refusal(&self, problems: &[SpecError]) -> Failure {
        let is_cause = |given: &&FlagValue| {
            let mut paths = given.sets.iter().map(|(path, _)| path).filter(|_| !given.flag.is_empty());
            paths.any(|path| problems.iter().any(|problem| overlap(&problem.field, path)))
        };
        let causes: Vec<_> = self.given.iter().filter(is_cause).map(FlagValue::to_string).collect();
        let (exit, whose) = match &self.source {
            Some(source) if causes.is_empty() => (Exit::Configuration, source.name.clone()),
            _ => (Exit::Usage, causes.join(" ")),
        };
        let failure =
            |failure: Failure, problem: &SpecError| failure.with_error(&problem.field, problem.problem.clone());
        problems.iter().fold(Failure::new(exit, whose), failure)
    }
}

/// The task of a file or preset, with `--set`.
///
/// # Errors
/// Where the file alone is read, the line; else as [`TaskInput::over`].
pub(crate) fn create(source: &str, set: &SetArgs) -> Outcome<TaskSpec> {
    let path = Path::new(source);
    if set.set.is_empty() && path.exists() {
        return task_file::read(path);
    }
    let input = TaskInput { source: Some(Source::open(source)?), given: set.set.clone() };
    // Presets are unnamed.
    let implied = if preset::text(source).is_some() { json!({ "name": source }) } else { json!({}) };
    input.over(&implied)
}

/// Whether two keys are equal, or one is within the other.
fn overlap(one: &str, other: &str) -> bool {
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    within(one, other) || within(other, one)
}

/// The implied layer, from parts; later ones override earlier ones.
pub(crate) fn layered(parts: impl IntoIterator<Item = Value>) -> Value {
    let mut whole = Table::new();
    for part in parts {
        if let Value::Object(part) = part {
            table::cover(&mut whole, part);
        }
    }
    Value::Object(whole)
}

impl Source {
    /// A file of this path, or else a preset of this name.
    fn open(name: &str) -> Outcome<Self> {
        let path = Path::new(name);
        let preset = preset::text(name).filter(|_| !path.exists());
        if preset.is_none() && !path.exists() && path.extension().is_none() && path.components().count() == 1 {
            let detail = format!("there is neither a file nor a preset `{name}`; presets are {}", preset::names());
            return Err(Failure::new(Exit::Configuration, detail));
        }
        let text = preset.map_or_else(|| task_file::text(path), |text| Ok(text.to_owned()))?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| task_file::wrong(path, error))?;
        let mut table = table::object(table)
            .ok_or_else(|| task_file::wrong(path, "holds a number that is not finite, or a date"))?;
        if let Some(graph) = table::get(&table, "model.graph").and_then(Value::as_str) {
            let graph = task_file::beside(graph, path).display().to_string();
            table::set(&mut table, "model.graph", graph.into());
        }
        Ok(Self { name: name.to_owned(), table })
    }
}

/// The table as a task, with the tensors of the model that it names.
fn complete(whole: &Table) -> Result<TaskSpec, TaskInputError> {
    let mut spec = parse(whole, 1)?;
    // The source's folder has been put before the file's name.
    read_graph(&mut spec.model, Path::new(""))
        .and_then(|()| models::complete(&mut spec.model))
        .map_err(|Incomplete { field, detail }| TaskInputError { key: field.to_owned(), why: detail })?;
    // Percentages of the model are resolved once the model is known.
    let parameters = spec.model.tensors.iter().map(|tensor| tensor.shape.iter().product::<u64>()).sum();
    Ok(TaskSpec { model: spec.model, ..parse(whole, parameters)? })
}

/// The table as a task whose model has this number of parameters.
fn parse(whole: &Table, parameters: u64) -> Result<TaskSpec, TaskInputError> {
    let mut whole = whole.clone();
    if let Some(Value::Object(codec)) = whole.get_mut("compression") {
        codec.values_mut().for_each(|value| percentage(value, parameters));
    }
    let whole = Value::Object(whole);
    serde_path_to_error::deserialize(&whole).map_err(|error| {
        let why = error.inner().to_string();
        let key = wrong_key(&whole, &error.path().to_string(), &why);
        TaskInputError { why: said_of(&whole, &key, &why), key }
    })
}

/// Turns `N%` into a number of the model's parameters.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; judged with the task")]
fn percentage(value: &mut Value, parameters: u64) {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.trim().parse::<f64>().ok());
    if let Some(percent) = percent.filter(|percent| percent.is_finite()) {
        *value = ((parameters as f64 * percent / 100.0).round() as u64).into();
    }
}
