//! The ready models and graphs for apps in other languages: the app provides its examples, and the task names the model.

use learning::{MetricValue, Parameters};
use task_spec::PERSONAL_PREFIX;

use super::jobs::constraints::JobConstraints;
use super::jobs::update::UpdateError;
use crate::model_trainer::{Dataset, ModelTrainer, NamedExamples, architecture};
use crate::train::{Device, graph_of};
use crate::trainer::{Purpose, Trained, Trainer as _, TrainerError, TrainingJob};

/// Rows of `width` numbers, row by row, each with a class.
///
/// # Errors
/// [`UpdateError::Rows`] if `labels` is empty, or the number of values does not match.
pub fn labelled(features: Vec<f32>, labels: Vec<u32>, width: usize) -> Result<Dataset, UpdateError> {
    if labels.is_empty() || labels.len().checked_mul(width) != Some(features.len()) {
        return Err(UpdateError::Rows { numbers: features.len(), rows: labels.len(), width });
    }
    Ok(Dataset::Labelled { features, labels, width })
}

/// Examples with their inputs by name, as the job's graph takes them.
///
/// # Errors
/// [`TrainerError::Refused`] if the job's model is no graph; [`TrainerError::Failed`] names an input that is unknown, missing
/// or given twice, and lists the graph's inputs.
pub fn named(examples: NamedExamples, job: &TrainingJob) -> Result<Dataset, TrainerError> {
    let model = graph_of(architecture(job)?).map_err(TrainerError::refused)?;
    examples.dataset(&model).map_err(TrainerError::failed)
}

/// Trains the job's ready model or graph on one core, by its plan and `constraints`, starting from `parameters`. With
/// `held_out` examples, which must not be in `rows`, a job of the shared model also returns `loss` and, unless the model
/// predicts numbers, `accuracy` of the initial model. A job of the device's own model returns these of the trained model, as
/// `personal_loss` and so on, if the task has such a metric.
///
/// # Errors
/// [`TrainerError::Paused`] if it saved a checkpoint and pauses: the job is issued again. Other errors if the examples
/// do not fit the model, or the task's model is not a ready one.
pub fn train_ready(
    rows: Dataset,
    held_out: Option<Dataset>,
    parameters: &Parameters,
    job: &TrainingJob,
    constraints: &JobConstraints,
) -> Result<Trained, TrainerError> {
    let mut trainer = ModelTrainer::new(rows, held_out.unwrap_or_else(Dataset::none), Device::Cpu);
    match job.purpose {
        Purpose::Shared => {
            // Before training, so that rows that do not fit fail immediately. After a pause it is not repeated in each
            // slice, but runs at the end.
            let is_fresh = !job.checkpoints.has_state();
            let mut measured = if is_fresh { measure(&mut trainer, parameters, job, constraints)? } else { Vec::new() };
            let mut trained = constraints.train(&mut trainer, parameters, job)?;
            if !is_fresh {
                measured = measure(&mut trainer, parameters, job, constraints)?;
            }
            trained.metrics.extend(measured);
            Ok(trained)
        }
        Purpose::Own => {
            let mut trained = constraints.train(&mut trainer, parameters, job)?;
            if job.metrics.iter().any(|name| name.starts_with(PERSONAL_PREFIX)) {
                let measured = measure(&mut trainer, &trained.parameters, job, constraints)?;
                trained
                    .metrics
                    .extend(measured.into_iter().map(|(name, value)| (format!("{PERSONAL_PREFIX}{name}"), value)));
            }
            Ok(trained)
        }
    }
}

/// Metrics of a model on the trainer's held-out rows; none without rows.
fn measure(
    trainer: &mut ModelTrainer,
    parameters: &Parameters,
    job: &TrainingJob,
    constraints: &JobConstraints,
) -> Result<Vec<(String, MetricValue)>, TrainerError> {
    let model = constraints.model(parameters).map_err(TrainerError::failed)?;
    trainer.evaluate(&model, job)
}

#[cfg(test)]
mod tests;
