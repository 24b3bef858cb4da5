//! The SDK's trainer on a table, whose columns a task names.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use client_sdk::learning::{Adapters, MetricValue, Parameters, Table};
use client_sdk::train::Device;
use client_sdk::{Constraints, ModelTrainer, Trained, Trainer, TrainerError, TrainingJob};
use datasets::split;
use serde_json::json;
use task_spec::TableColumn;

use super::error::TableError;
use super::fit::{Report, Wanted};
use super::source::TableSource;
use crate::data::OWN_HELD_OUT;
use crate::failure::chain;
use crate::output::Output;

/// Why the table does not fit a task, once that is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Misfit(Arc<OnceLock<String>>);

impl Misfit {
    pub(crate) fn why(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn note(&self, why: String) -> TrainerError {
        let refused = TrainerError::refused(why.clone());
        // The first reason is as good as the next.
        let _ = self.0.set(why);
        refused
    }
}

/// Trains on the columns that each task names.
pub(crate) struct FileTrainer {
    source: TableSource,
    /// Rows of the table at the start.
    rows: u64,
    seed: u64,
    device: Device,
    misfit: Misfit,
    output: Output,
    /// The table in the form of the latest task.
    ready: Option<(Wanted, Ready)>,
}

enum Ready {
    Model(Box<ModelTrainer>),
    Rows(Table),
}

impl FileTrainer {
    /// Reads the table once, without keeping it.
    ///
    /// # Errors
    /// The error in the table that every task would meet, and its place.
    pub(crate) fn new(
        source: TableSource,
        seed: u64,
        device: Device,
        misfit: Misfit,
        output: Output,
    ) -> Result<Self, TableError> {
        let rows = source.count()?;
        Ok(Self { source, rows, seed, device, misfit, output, ready: None })
    }

    /// The table as this job takes it.
    fn ready(&mut self, job: &TrainingJob) -> Result<&mut Ready, TrainerError> {
        let Some(wanted) = Wanted::of_job(job) else {
            return Err(self.misfit.note(format!(
                "task {:?} does not name the columns of a table (`model.table` of its file), so it takes none",
                job.task
            )));
        };
        if self.ready.as_ref().is_none_or(|(last, _)| *last != wanted) {
            // The former task's rows need not be in memory with the next ones.
            self.ready = None;
            let made = self.make(&wanted).map_err(|why| self.misfit.note(why))?;
            self.ready = Some((wanted, made));
        }
        let ready = self.ready.as_mut().map(|(_, ready)| ready);
        ready.ok_or_else(|| TrainerError::failed("the table is not ready"))
    }

    fn make(&self, wanted: &Wanted) -> Result<Ready, String> {
        let (fitted, report) = self.source.fitted(wanted, wanted.keep()).map_err(|error| chain(&error))?;
        // The words and numbers of cells do not belong in a log.
        let Report { rows, used, skipped, .. } = &report;
        let imputed = report.imputed();
        self.output.event("table", &json!({ "rows": rows, "used": used, "skipped": skipped, "imputed": imputed }));
        self.output.line(report.words());
        if wanted.is_analysis() {
            return fitted.table().map(Ready::Rows).map_err(|error| chain(&error));
        }
        if wanted.table.label.is_none() {
            return Err("the task names no column that its model predicts (`model.table.label`)".to_owned());
        }
        let (train, held_out) = split(fitted.rows(), OWN_HELD_OUT, self.seed);
        let (train, held_out) = fitted.datasets(&train, &held_out);
        let trainer = ModelTrainer::new(train, held_out, self.device.clone());
        Ok(Ready::Model(Box::new(trainer)))
    }

    fn model(&mut self, job: &TrainingJob) -> Result<&mut ModelTrainer, TrainerError> {
        match self.ready(job)? {
            Ready::Model(trainer) => Ok(trainer),
            Ready::Rows(_) => Err(TrainerError::refused("an analysis trains nothing")),
        }
    }
}

impl Trainer for FileTrainer {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        self.model(job)?.train(model, job)
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        self.model(job)?.train_within(model, job, constraints)
    }

    fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        job: &TrainingJob,
        adapters: &Adapters,
    ) -> Result<Trained, TrainerError> {
        self.model(job)?.train_adapters(base, start, job, adapters)
    }

    fn base_model(&mut self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
        self.model(job)?.base_model(job)
    }

    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        self.model(job)?.evaluate(model, job)
    }

    fn table(&mut self, job: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        match self.ready(job)? {
            Ready::Rows(table) => Ok(Cow::Borrowed(table)),
            Ready::Model(_) => Err(TrainerError::refused("a model is trained on a table, and does not show it")),
        }
    }

    /// In the unit of the label.
    fn predictions(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Table, TrainerError> {
        let label = job.table.as_ref().and_then(|table| table.label.as_ref()).and_then(TableColumn::range);
        let predictions = self.model(job)?.predictions(model, job)?;
        let Some((low, high)) = label else { return Ok(predictions) };
        predictions.mapped(|value| low + value * (high - low)).map_err(TrainerError::failed)
    }

    /// Before the first task these are all rows, some of which may be held out.
    fn examples(&self) -> u64 {
        match &self.ready {
            Some((_, Ready::Model(trainer))) => trainer.examples(),
            Some((_, Ready::Rows(table))) => table.rows() as u64,
            None => self.rows,
        }
    }

    fn pauses(&self) -> bool {
        true
    }
}
