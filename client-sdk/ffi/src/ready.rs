//! The ready models: an app without a training function passes its examples, and the task names the model.

use std::sync::Arc;

use client_sdk::learning::Parameters;
use client_sdk::runner::{labelled, train_ready};
use client_sdk::train::{Inputs, Scores};
use client_sdk::{Dataset, TrainerError};

use crate::error::TributaryError;
use crate::job::{Job, Rows, floats};
use crate::model::Model;

impl Job {
    /// Trains the task's ready model on labelled rows of numbers, and submits the result, with the received model's metrics on the
    /// held-out rows. Calls of [`Job::is_overdue`] are answered during the training.
    pub(crate) fn train_rows(&self, rows: Rows, held_out: Option<Rows>) -> Result<(), TributaryError> {
        let dataset = |Rows { features, labels, width }| labelled(features, labels, width);
        self.train_on(dataset(rows)?, held_out.map(dataset).transpose()?)
    }

    /// The same on any examples.
    pub(crate) fn train_on(&self, examples: Dataset, held_out: Option<Dataset>) -> Result<(), TributaryError> {
        self.of_this_process()?;
        let model = self.with_values(|values| Parameters::new(Arc::clone(self.layout()), values.clone()))?;
        let model = model.map_err(|error| TributaryError::Update(error.to_string()))?;
        match train_ready(examples, held_out, &model, self.training(), self.constraints()) {
            Ok(trained) => self.answer(trained),
            // It comes again, and resumes from the trainer's checkpoint.
            Err(error @ TrainerError::Paused) => {
                self.paused();
                Err(TributaryError::Overdue(error.to_string()))
            }
            Err(_) if self.is_overdue() => Err(self.give_up()),
            Err(error) => Err(TributaryError::Update(error.to_string())),
        }
    }
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Job {
    /// Trains the task's ready model (`model.architecture`) by the plan and the job's constraints, and submits the
    /// result. `features` are rows of `width` numbers (32-bit floats, little-endian), `labels` the class of each row.
    /// Waits until it is trained.
    ///
    /// # Errors
    /// [`TributaryError::Update`] if the examples do not fit the model, or the task's model is not a ready one, and the
    /// job still takes an answer; [`TributaryError::Overdue`] also if it should pause: it has saved a checkpoint, and
    /// the job comes again; [`TributaryError::Answered`], [`TributaryError::OtherProcess`].
    pub fn train(&self, features: Vec<u8>, labels: Vec<u32>, width: u64) -> Result<(), TributaryError> {
        self.train_rows(rows(&features, labels, width)?, None)
    }

    /// The same with held-out rows, in the form of the others. A job of the shared model then also submits the initial
    /// model's `loss` and `accuracy` on them.
    ///
    /// # Errors
    /// As for [`Job::train`].
    pub fn train_and_measure(
        &self,
        features: Vec<u8>,
        labels: Vec<u32>,
        width: u64,
        held_out: Vec<u8>,
        held_out_labels: Vec<u32>,
    ) -> Result<(), TributaryError> {
        self.train_rows(rows(&features, labels, width)?, Some(rows(&held_out, held_out_labels, width)?))
    }
}

/// Rows as Kotlin and Swift hand them over.
fn rows(features: &[u8], labels: Vec<u32>, width: u64) -> Result<Rows, TributaryError> {
    Ok(Rows { features: floats(features)?, labels, width: usize::try_from(width).unwrap_or(usize::MAX) })
}

impl Model {
    /// The scores of each class for each row of numbers, if the model is one of the SDK's own.
    pub(crate) fn score_rows(&self, rows: &[f32]) -> Result<Scores, TributaryError> {
        self.kept().scores(Inputs::Rows(rows)).map_err(|error| TributaryError::Argument(error.to_string()))
    }
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Model {
    /// The scores of each class for each row, before softmax, row after row, if the model is one of the SDK's own
    /// (`model.architecture`). `rows` and scores are 32-bit floats, little-endian.
    ///
    /// # Errors
    /// [`TributaryError::Argument`] if the model is not one of the SDK's own, or the rows do not fit.
    pub fn scores(&self, rows: Vec<u8>) -> Result<Vec<u8>, TributaryError> {
        let scores = self.score_rows(&floats(&rows)?)?;
        Ok(scores.values().iter().flat_map(|score| score.to_le_bytes()).collect())
    }
}
