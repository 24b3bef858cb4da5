//! The first model version of a task.

use std::io::{self, Read, Seek, Write};
use std::sync::Arc;

use learning::analytics::{AnalyticsState, EvaluationState};
use learning::checkpoint::{GivenError, GivenModel};
use learning::contribution::scaffold;
use learning::{Parameters, checkpoint};
use task_spec::{Personalization, SpecError, TaskSpec};

use super::TaskModel;
use super::field::wrong;
use crate::Tensors;

impl TaskModel {
    /// The file of the first version.
    ///
    /// # Errors
    /// The initial values of a tensor cannot be drawn, or the state of an analysis is too large.
    pub fn first_version(&self, spec: &TaskSpec) -> Result<Vec<u8>, Vec<SpecError>> {
        match &self.tensors.analysis {
            Some(analysis) => analysis.initial().to_bytes().map_err(|error| wrong("analytics", error)),
            None => {
                let mut values = self.initial(spec)?.values().to_vec();
                values.resize(self.tensors.published.len(), 0.0);
                let first = Parameters::new(Arc::clone(&self.tensors.published), values);
                let first = first.map_err(|error| wrong("training.solver", error))?;
                checkpoint::write(&first).map_err(|error| wrong("model.tensors.init", error))
            }
        }
    }

    /// Writes the file of the first version with the values of a given safetensors file; the given file may also hold local tensors and
    /// control variates of another task. That of an evaluation is the state with the model in it.
    ///
    /// # Errors
    /// [`GivenError`]: the file cannot be read, or does not hold the model.
    pub fn first_version_from(
        &self,
        given: &mut (impl Read + Seek),
        version: &mut impl Write,
    ) -> Result<(), GivenError> {
        let Tensors { whole, published, evaluated, .. } = &self.tensors;
        if let Some(evaluated) = evaluated {
            let mut file = Vec::new();
            let model = GivenModel { whole: evaluated, published: evaluated, skipped: scaffold::CONTROL };
            model.publish(given, &mut file)?;
            let state = EvaluationState::of_model(&file).map(AnalyticsState::Evaluation);
            let bytes = state.and_then(|state| state.to_bytes()).map_err(io::Error::other)?;
            return Ok(version.write_all(&bytes)?);
        }
        GivenModel { whole, published, skipped: scaffold::CONTROL }.publish(given, version)
    }

    /// The initial values of the shared tensors, from the task's seed.
    ///
    /// # Errors
    /// The initial values of a tensor cannot be drawn.
    pub fn initial(&self, spec: &TaskSpec) -> Result<Parameters, Vec<SpecError>> {
        let shares_adapters = spec.personalization.as_ref().is_some_and(Personalization::shares_adapters);
        if let Some(adapters) = self.tensors.adapters.as_ref().filter(|_| shares_adapters) {
            return adapters.initial(spec.model.seed).map_err(|error| wrong("personalization", error));
        }
        let whole = learning::initialize(Arc::clone(&self.tensors.whole), &spec.model.tensors, spec.model.seed)
            .map_err(|error| wrong("model.tensors.init", error))?;
        match &self.tensors.partition {
            None => Ok(whole),
            Some(partition) => {
                let (shared, _) = partition.split(&whole).map_err(|error| wrong("model.personal", error))?;
                Ok(shared)
            }
        }
    }
}
