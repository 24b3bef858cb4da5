//! Damaged model versions: detected, reported, and excluded from training.
//!
//! A first version drawn from the task's seed is written again. Otherwise the task is paused until an operator restores a file with the
//! same digest.

use federation::id::TaskId;
use federation::model_version::ModelVersion;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use store::entity::task::TaskRow;
use store::{BlobRead, BlobStore, Store, StoreError, WakeEvent};

use recipe::TaskModel;

/// Model versions checked concurrently.
const LOOKS_AT_ONCE: usize = 8;

/// Whether the blob is missing or damaged.
pub(crate) fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::MissingBlob(_) | StoreError::Corrupt(_))
}

/// Opens the verified parameters of a model version. Writes a damaged one again if possible.
///
/// # Errors
/// As [`BlobStore::open_verified`]; the task's status reports permanent damage.
pub(crate) async fn open_model(
    store: &Store,
    blobs: &dyn BlobStore,
    version: &ModelVersion,
    now: Timestamp,
) -> Result<Box<dyn BlobRead>, StoreError> {
    let error = match blobs.open_verified(version.sha256).await {
        Err(error) if is_damage(&error) => error,
        opened => return opened,
    };
    if remake(store, blobs, version).await?
        && let Ok(blob) = blobs.open_verified(version.sha256).await
    {
        tracing::warn!(
            task = %version.task, version = version.version, digest = %version.sha256,
            "model version {} was damaged and is made anew from the task's seed: {error}", version.version
        );
        return Ok(blob);
    }
    pause(store, version, &error, now).await?;
    Err(error)
}

/// Writes a task's first version again; false for another version, or if the result differs.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn remake(store: &Store, blobs: &dyn BlobStore, version: &ModelVersion) -> Result<bool, StoreError> {
    if version.version != 0 {
        return Ok(false);
    }
    let id = version.task;
    let task = store.read("find_task", |tx| Box::pin(async move { tx.task(id).await })).await?;
    let Some(task) = task else { return Ok(false) };
    let drawn = tokio::task::spawn_blocking(move || TaskModel::new(&task.spec)?.first_version(&task.spec));
    match drawn.await.map_err(StoreError::fault)? {
        Ok(bytes) if crate::digest(&bytes) == version.sha256 => {
            blobs.put_bytes(bytes.into()).await?;
            Ok(true)
        }
        Ok(_) | Err(_) => Ok(false),
    }
}

/// Pauses the task if this is the base of its rounds.
async fn pause(store: &Store, version: &ModelVersion, error: &StoreError, now: Timestamp) -> Result<(), StoreError> {
    let (task, number) = (version.task, version.version);
    let told = problem(version, error);
    let detail = told.as_str();
    let paused = store
        .transact("pause_damaged", |tx| {
            Box::pin(async move {
                let is_newest = tx.task(task).await?.is_some_and(|row| row.model_version == number);
                let (from, to) = ([TaskStatus::Active], TaskStatus::Paused);
                Ok::<_, StoreError>(is_newest && tx.set_task_status(task, &from, to, now, Some(detail)).await?)
            })
        })
        .await?;
    let digest = version.sha256;
    if paused {
        tracing::error!(%task, version = number, %digest, "task {task} is paused: {told}");
        store.wake().publish(WakeEvent::Task(task));
    } else {
        tracing::error!(%task, version = number, %digest, "{told}");
    }
    Ok(())
}

fn problem(version: &ModelVersion, error: &StoreError) -> String {
    format!(
        "model version {} is damaged ({error}); put a copy whose SHA-256 is {} into its place among the blobs, then resume the task",
        version.version, version.sha256
    )
}

/// Problems of the newest model version of each of these tasks. Checks the blob without reading it: a step reads it before opening a round,
/// and pauses the task if it is damaged. For paused tasks, this function reads it too.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn survey(store: &Store, tasks: &[TaskRow]) -> Result<Vec<(TaskId, String)>, StoreError> {
    let newest = store
        .read("newest_versions", |tx| {
            Box::pin(async move {
                let mut newest = Vec::new();
                for task in tasks {
                    let version = tx.model_version(task.id, task.model_version).await?;
                    newest.extend(version.map(|version| (task.status, version)));
                }
                Ok::<_, StoreError>(newest)
            })
        })
        .await?;
    let blobs = &**store.blobs();
    let looks = stream::iter(newest).map(|(status, version)| async move {
        let found = match status {
            TaskStatus::Paused => blobs.open_verified(version.sha256).await.map(drop),
            TaskStatus::Active | TaskStatus::BudgetExhausted | TaskStatus::Completed | TaskStatus::Cancelled => {
                blobs.look(version.sha256, version.bytes).await
            }
        };
        match found {
            Ok(()) => Ok(None),
            Err(error) if is_damage(&error) => Ok(Some((version.task, problem(&version, &error)))),
            Err(error) => Err(error),
        }
    });
    looks.buffered(LOOKS_AT_ONCE).try_filter_map(|found| async move { Ok(found) }).try_collect().await
}
