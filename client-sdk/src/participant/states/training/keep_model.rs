//! Writes the published model that was fetched, and later its metrics, for the app.

use learning::MetricValue;
use task_spec::ModelSpec;
use wire::TaskId;
use wire::participant::{FinalModel, ModelRef};

use crate::journal::JournalError;
use crate::participant::journal::record::Record;
use crate::participant::journal::snapshot;
use crate::participant::model::kept_models::KeptModel;
use crate::participant::model::model_file::ModelFile;
use crate::participant::states::core::{Core, persist};
use crate::participant::states::state::State;
use crate::participant::task::plan::Plan;
use recipe::digest::sha256;

/// Metadata of a version in the journal, next to its file.
struct Keepsake<'a> {
    task: TaskId,
    name: &'a str,
    model: &'a ModelSpec,
    version: &'a ModelRef,
    /// Metrics of the device's own model, which stays as it is.
    personal_metrics: Vec<(String, MetricValue)>,
}

impl Core {
    /// Writes the model of a file whose digest was checked, then continues with `then`.
    pub(super) fn keep_model(&mut self, plan: &Plan, file: &ModelFile, then: State) -> State {
        let assignment = &*plan.assignment;
        if !self.settings.keep_models || plan.recipe.tensors.analysis.is_some() {
            return then;
        }
        if self.model_written == Some((assignment.task, file.sha256())) {
            return then;
        }
        let kept = Keepsake {
            task: assignment.task,
            name: &assignment.task_name,
            model: &assignment.model,
            version: &assignment.base,
            personal_metrics: Vec::new(),
        };
        self.keep(kept, file, then)
    }

    /// Keeps the last version of a finished task, for an app that keeps models. The personalized model stays as it is.
    pub(super) fn keep_final(&mut self, task: TaskId, last: &FinalModel, file: &ModelFile, then: State) -> State {
        let FinalModel { task_name: name, model, version, .. } = last;
        let personal_metrics = self.models.of(task).map(|kept| kept.personal_metrics.clone()).unwrap_or_default();
        self.keep(Keepsake { task, name, model, version, personal_metrics }, file, then)
    }

    /// Writes the metrics of the last version, if any, then continues with `then`.
    pub(super) fn score_final(
        &mut self,
        task: TaskId,
        last: &FinalModel,
        metrics: Vec<(String, MetricValue)>,
        then: State,
    ) -> State {
        if !self.models.measured_last(task, last.version.sha256, metrics) {
            return then;
        }
        persist(self.list_record().map(|list| vec![list]), then)
    }

    fn keep(&mut self, kept: Keepsake<'_>, file: &ModelFile, then: State) -> State {
        let task = kept.task;
        match self.model_records(kept, file) {
            Ok(records) => {
                self.model_written = Some((task, file.sha256()));
                persist(Ok(records), then)
            }
            Err(error) => State::Finished(Err(error.into())),
        }
    }

    /// Records in the order of writing: removals that make room, the list, the file. Each stored file is in the list,
    /// whenever the process dies.
    fn model_records(&mut self, kept: Keepsake<'_>, file: &ModelFile) -> Result<Vec<Record>, JournalError> {
        let Keepsake { task, name: task_name, model, version, personal_metrics } = kept;
        let name = snapshot::model(task);
        let body = file.content().map_err(|error| JournalError::corrupt(&name, error))?;
        if sha256(&body) != version.sha256 {
            return Err(JournalError::corrupt(&name, "the model that was read is not the file's"));
        }
        let bytes = snapshot::encode_model(version.version, model.architecture.clone(), version.sha256, &body)?;
        let kept = KeptModel {
            task,
            name: task_name.to_owned(),
            version: version.version,
            sha256: version.sha256,
            bytes: version.bytes,
            metrics: Vec::new(),
            personal_metrics,
        };
        let mut records = Vec::new();
        for gone in self.models.add(kept, self.settings.max_model_bytes) {
            records.push(Record::new(snapshot::model(gone), snapshot::encode_no_model()?));
        }
        records.push(self.list_record()?);
        let mut record = Record::new(name, bytes);
        record.body = body;
        records.push(record);
        Ok(records)
    }

    /// The record of a round's metrics, if they belong to the kept model.
    pub(super) fn scores_record(
        &mut self,
        plan: &Plan,
        evaluated: &[(String, MetricValue)],
        trained: &[(String, MetricValue)],
    ) -> Result<Option<Record>, JournalError> {
        if !self.models.measured(plan.place.task, plan.assignment.base.sha256, [evaluated, trained]) {
            return Ok(None);
        }
        self.list_record().map(Some)
    }

    fn list_record(&self) -> Result<Record, JournalError> {
        Ok(Record::new(snapshot::MODELS.to_owned(), self.models.encode()?))
    }
}
