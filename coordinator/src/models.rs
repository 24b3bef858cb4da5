//! Cache of the numbers derived from tasks: a specification never changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use federation::id::TaskId;
use secure_agg::params::Params;
use store::entity::task::TaskRow;
use task_spec::SpecError;

use recipe::TaskModel;

/// Maximum number of cached tasks; they hold layouts, no parameters.
const REMEMBERED_MAX: usize = 256;

/// Maximum number of cached session sizes per task.
const SIZES_MAX: usize = 64;

/// Cache of [`TaskModel`]s for recent requests.
#[derive(Default)]
pub(crate) struct Models(Mutex<HashMap<TaskId, CachedModel>>);

struct CachedModel {
    model: Arc<TaskModel>,
    /// Parameters of sessions by size; choosing a mask graph takes milliseconds.
    params: HashMap<u16, Option<Params>>,
}

impl Models {
    /// The model of this task.
    ///
    /// # Errors
    /// As [`TaskModel::new`]; a stored task gives none.
    pub(crate) fn of(&self, task: &TaskRow) -> Result<Arc<TaskModel>, Vec<SpecError>> {
        if let Some(known) = self.lock().get(&task.id) {
            return Ok(Arc::clone(&known.model));
        }
        let model = Arc::new(TaskModel::new(&task.spec)?);
        let mut models = self.lock();
        if models.len() >= REMEMBERED_MAX {
            models.clear();
        }
        models.insert(task.id, CachedModel { model: Arc::clone(&model), params: HashMap::new() });
        Ok(model)
    }

    /// Parameters of a session of the task with this number of participants; `None` without secure aggregation, or if
    /// that size is impossible.
    pub(crate) fn session_params(&self, task: &TaskRow, participants: u16) -> Option<Params> {
        let model = self.of(task).ok()?;
        let known = self.lock().get(&task.id).and_then(|known| known.params.get(&participants).cloned());
        known.unwrap_or_else(|| {
            let params = model.session.as_ref().and_then(|session| session.params(participants).ok());
            if let Some(known) = self.lock().get_mut(&task.id) {
                if known.params.len() >= SIZES_MAX {
                    known.params.clear();
                }
                known.params.insert(participants, params.clone());
            }
            params
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, CachedModel>> {
        // A panic cannot leave a map in an invalid state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
