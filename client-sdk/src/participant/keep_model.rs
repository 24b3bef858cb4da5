//! Writes the published model that was fetched, and later what was measured of it, for the app.

use learning::MetricValue;

use super::core::{Core, persist};
use super::kept_models::KeptModel;
use super::model_file::ModelFile;
use super::plan::Plan;
use super::record::Record;
use super::snapshot;
use super::state::State;
use crate::journal::JournalError;
use recipe::digest::sha256;

impl Core {
    /// Writes the model of a file whose digest was checked, then continues with `then`.
    pub(super) fn keep_model(&mut self, plan: &Plan, file: &ModelFile, then: State) -> State {
        let task = plan.place.task;
        let is_kept = self.model_written == Some((task, file.sha256()));
        if is_kept || !self.settings.keep_models || plan.recipe.tensors.analysis.is_some() {
            return then;
        }
        match self.model_records(plan, file) {
            Ok(records) => {
                self.model_written = Some((task, file.sha256()));
                persist(Ok(records), then)
            }
            Err(error) => State::Finished(Err(error.into())),
        }
    }

    /// What makes room first, then the list, then the file: what is not in the list takes no room, whenever the process dies.
    fn model_records(&mut self, plan: &Plan, file: &ModelFile) -> Result<Vec<Record>, JournalError> {
        let assignment = &*plan.assignment;
        let (task, base) = (assignment.task, &assignment.base);
        let name = snapshot::model(task);
        let body = file.content().map_err(|error| JournalError::corrupt(&name, error))?;
        if sha256(&body) != base.sha256 {
            return Err(JournalError::corrupt(&name, "the model that was read is not the file's"));
        }
        let bytes = snapshot::encode_model(base.version, assignment.model.architecture.clone(), base.sha256, &body)?;
        let kept = KeptModel {
            task,
            name: assignment.task_name.clone(),
            version: base.version,
            sha256: base.sha256,
            bytes: base.bytes,
            metrics: Vec::new(),
            personal_metrics: Vec::new(),
        };
        let mut records = Vec::new();
        for gone in self.models.add(kept, self.settings.max_model_bytes) {
            records.push(Record::new(snapshot::model(gone), snapshot::encode_no_model()?));
        }
        records.push(Record::new(snapshot::MODELS.to_owned(), self.models.encode()?));
        let mut record = Record::new(name, bytes);
        record.body = body;
        records.push(record);
        Ok(records)
    }

    /// The record of what was measured in a round, if that was of the model that is kept.
    pub(super) fn scores_record(
        &mut self,
        plan: &Plan,
        evaluated: &[(String, MetricValue)],
        trained: &[(String, MetricValue)],
    ) -> Result<Option<Record>, JournalError> {
        if !self.models.measured(plan.place.task, plan.assignment.base.sha256, [evaluated, trained]) {
            return Ok(None);
        }
        Ok(Some(Record::new(snapshot::MODELS.to_owned(), self.models.encode()?)))
    }
}
