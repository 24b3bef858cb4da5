//! The built-in trainer for analytics tasks: for an app with rows and without a model.

use std::borrow::Cow;

use learning::{MetricValue, Parameters, Table};

use crate::trainer::{Trained, Trainer, TrainerError, TrainingJob};

/// Provides its rows to every analysis, regardless of the requested columns: use it for known tasks.
///
/// An app with several tables, or with a consent step, implements [`Trainer::table`] itself.
#[derive(Clone, Debug)]
pub struct TableTrainer {
    table: Table,
}

impl TableTrainer {
    #[must_use]
    pub fn new(table: Table) -> Self {
        Self { table }
    }
}

impl Trainer for TableTrainer {
    fn train(&mut self, _: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        Err(TrainerError::refused(format!("task {:?} trains a model, and this app has none", job.task)))
    }

    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        self.train(model, job).map(|trained| trained.metrics)
    }

    fn table(&mut self, _: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        Ok(Cow::Borrowed(&self.table))
    }

    fn examples(&self) -> u64 {
        self.table.rows() as u64
    }
}
