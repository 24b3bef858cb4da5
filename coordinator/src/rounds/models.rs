//! Cache of the numbers derived from tasks: a specification is immutable.

use std::collections::HashMap;
use std::sync::Arc;

use federation::id::TaskId;
use listener::PoisonFreeMutex;
use secure_agg::params::Params;
use store::entity::task::TaskRow;
use store::{Store, StoreError};

use recipe::TaskModel;

/// Maximum number of cached tasks; their models hold layouts without parameters.
const REMEMBERED_MAX: usize = 1024;

/// Maximum number of cached session sizes per task.
const SIZES_MAX: usize = 64;

/// The derived models of recently used tasks. Clones share it.
#[derive(Clone, Default)]
pub struct Models(Arc<PoisonFreeMutex<HashMap<TaskId, CachedModel>>>);

struct CachedModel {
    model: Arc<TaskModel>,
    /// Parameters of sessions by size; choosing a mask graph takes milliseconds.
    params: HashMap<u16, Option<Params>>,
}

impl Models {
    /// The model of this task.
    ///
    /// # Errors
    /// `Corrupt` if the specification, validated before storage, is invalid.
    pub(crate) fn of(&self, task: &TaskRow) -> Result<Arc<TaskModel>, StoreError> {
        if let Some(known) = self.0.lock().get(&task.id) {
            return Ok(Arc::clone(&known.model));
        }
        let model = Arc::new(TaskModel::new(&task.spec).map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            StoreError::corrupt(format!("task {} cannot work as it is stored: {}", task.id, errors.join("; ")))
        })?);
        let mut models = self.0.lock();
        if models.len() >= REMEMBERED_MAX {
            models.clear();
        }
        models.insert(task.id, CachedModel { model: Arc::clone(&model), params: HashMap::new() });
        Ok(model)
    }

    /// The model of the task with this id; `None` for an unknown task.
    ///
    /// # Errors
    /// Errors of the store; `Corrupt` as for [`Models::of`].
    pub(crate) async fn find(&self, store: &Store, id: TaskId) -> Result<Option<Arc<TaskModel>>, StoreError> {
        if let Some(known) = self.0.lock().get(&id) {
            return Ok(Some(Arc::clone(&known.model)));
        }
        let task = store.read("task_of_model", |tx| Box::pin(async move { tx.task(id).await })).await?;
        task.map(|task| self.of(&task)).transpose()
    }

    /// Session parameters of the task for this number of participants; `None` without secure aggregation, or for an impossible size.
    pub(crate) fn session_params(&self, task: &TaskRow, participants: u16) -> Option<Params> {
        let model = self.of(task).ok()?;
        let known = self.0.lock().get(&task.id).and_then(|known| known.params.get(&participants).cloned());
        known.unwrap_or_else(|| {
            let params = model.session.as_ref().and_then(|session| session.params(participants).ok());
            if let Some(known) = self.0.lock().get_mut(&task.id) {
                if known.params.len() >= SIZES_MAX {
                    known.params.clear();
                }
                known.params.insert(participants, params.clone());
            }
            params
        })
    }
}
