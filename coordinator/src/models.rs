//! What tasks mean in numbers, derived once for each: a specification never changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use federation::id::TaskId;
use store::entity::task::TaskRow;
use task_spec::SpecError;

use crate::model::TaskModel;

/// Tasks remembered at once; their models hold layouts and no parameters.
const REMEMBERED_MAX: usize = 256;

/// The arithmetic of the tasks that requests were about lately.
#[derive(Default)]
pub(crate) struct Models(Mutex<HashMap<TaskId, Arc<TaskModel>>>);

impl Models {
    /// Of this task.
    ///
    /// # Errors
    /// As [`TaskModel::new`]; a stored task gives none.
    pub(crate) fn of(&self, task: &TaskRow) -> Result<Arc<TaskModel>, Vec<SpecError>> {
        if let Some(model) = self.lock().get(&task.id) {
            return Ok(Arc::clone(model));
        }
        let model = Arc::new(TaskModel::new(&task.spec)?);
        let mut models = self.lock();
        if models.len() >= REMEMBERED_MAX {
            models.clear();
        }
        models.insert(task.id, Arc::clone(&model));
        Ok(model)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Arc<TaskModel>>> {
        // A map has no state between two of its calls that a panic could leave behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
