//! Finds, checks and copies the given initial model of a new task.

use std::io::{BufWriter, Write};
use std::sync::Arc;

use federation::id::{Digest, TaskId};
use learning::checkpoint::GivenError;
use recipe::TaskModel;
use store::entity::task::TaskRow;
use store::{BlobRead, BlobStore, Store, StoreError, Transaction};
use task_spec::{Analytics, InitialModel, ModelSpec, SpecError, TaskSpec, VersionOfTask};
use tokio::io::AsyncReadExt as _;
use tokio_util::io::SyncIoBridge;

use crate::http::inspect::models::must_be_kept;
use crate::http::reply::problem::{Error, Result};
use crate::maintenance::damage::is_damage;

/// Size of the buffer between the copying thread and the blob writer, in bytes.
const PIECE: usize = 1 << 20;

/// A given model, open for reading.
pub(super) struct Given(Box<dyn BlobRead>);

/// Finds the given model of a task, and writes its digest into the task. Returns `None` without a given model.
///
/// # Errors
/// [`Error::InvalidTask`] if the file or version does not exist; errors of the store.
pub(super) async fn find(store: &Store, spec: &mut TaskSpec) -> Result<Option<Given>> {
    let digest = match &spec.model.initial {
        None => return Ok(None),
        // The task's check rejects file paths.
        Some(InitialModel::File(path)) => return Err(wrong(format!("names a file: {path}"))),
        Some(InitialModel::Stored(digest)) => *digest,
        Some(InitialModel::Version(version)) => digest_of(store, version).await?,
    };
    spec.model.initial = Some(InitialModel::Stored(digest));
    match store.blobs().open_verified(digest).await {
        Ok(blob) => Ok(Some(Given(blob))),
        Err(StoreError::MissingBlob(_)) => Err(wrong(format!(
            "no file with SHA-256 {digest} is stored: upload it (a file that no task is created from is removed after a day)"
        ))),
        Err(error) if is_damage(&error) => Err(wrong(format!("the file with SHA-256 {digest} is damaged"))),
        Err(error) => Err(error.into()),
    }
}

/// Gives an evaluation of another task's version that task's model, unless it states one: architecture, running statistics, tensors, and
/// the table, which it may state alone.
///
/// # Errors
/// [`Error::InvalidTask`] if there is no such task; errors of the store.
pub(super) async fn inherit(store: &Store, spec: &mut TaskSpec) -> Result<()> {
    let is_evaluation = spec.analytics.as_ref().is_some_and(Analytics::is_evaluation);
    let Some(InitialModel::Version(version)) = spec.model.initial.clone().filter(|_| is_evaluation) else {
        return Ok(());
    };
    if spec.model.architecture.is_some() || !spec.model.tensors.is_empty() {
        return Ok(());
    }
    let name = version.task.as_str();
    let found = store.read("find_evaluated_task", |tx| Box::pin(async move { task_named(tx, name).await })).await?;
    let ModelSpec { architecture, batch_norm, table, tensors, .. } = found.ok_or_else(|| no_task(name))?.spec.model;
    let table = spec.model.table.take().or(table);
    spec.model = ModelSpec { architecture, batch_norm, table, tensors, ..std::mem::take(&mut spec.model) };
    Ok(())
}

/// The task of this id or name.
async fn task_named(tx: &mut Transaction<'_>, task: &str) -> Result<Option<TaskRow>> {
    match task.parse::<TaskId>() {
        Ok(id) => Ok(tx.task(id).await?),
        Err(_) => Ok(tx.task_by_name(task).await?),
    }
}

fn no_task(name: &str) -> Error {
    wrong(format!("there is no task {name:?}"))
}

/// The digest of a model version.
async fn digest_of(store: &Store, named: &VersionOfTask) -> Result<Digest> {
    let (task, version) = (named.task.as_str(), named.version);
    let found = store
        .read("find_initial_model", |tx| {
            Box::pin(async move {
                let Some(row) = task_named(tx, task).await? else { return Ok(None) };
                let version = tx.stored_version(row.id, version.unwrap_or(row.model_version)).await?;
                Ok::<_, Error>(Some((row.spec.analytics.is_some(), version)))
            })
        })
        .await?;
    match found {
        None => Err(no_task(task)),
        Some((true, _)) => Err(wrong(format!("task {task:?} is an analysis and has no model"))),
        Some((false, None)) => Err(wrong(format!("task {task:?} has no such model version"))),
        Some((false, Some(row))) => {
            must_be_kept(&row).map_err(|error| wrong(error.to_string()))?;
            Ok(row.model.sha256)
        }
    }
}

impl Given {
    /// Checks that the file holds the model, without storing anything.
    ///
    /// # Errors
    /// [`Error::InvalidTask`] with the reason; errors of the store.
    pub(super) async fn check(self, model: Arc<TaskModel>) -> Result<()> {
        tokio::task::spawn_blocking(move || self.copy(&model, &mut std::io::sink())).await.map_err(Error::fault)?
    }

    /// Stores the task's first version; returns its digest and size in bytes.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(super) async fn store(self, model: Arc<TaskModel>, blobs: &Arc<dyn BlobStore>) -> Result<(Digest, u64)> {
        let (to, mut from) = tokio::io::duplex(PIECE);
        let copying = tokio::task::spawn_blocking(move || {
            let mut to = BufWriter::with_capacity(PIECE, SyncIoBridge::new(to));
            self.copy(&model, &mut to)?;
            to.flush().map_err(Error::fault)
        });
        let mut writer = blobs.writer().await?;
        loop {
            let mut piece = bytes::BytesMut::with_capacity(PIECE);
            if from.read_buf(&mut piece).await.map_err(Error::fault)? == 0 {
                break;
            }
            writer.write(piece.freeze()).await?;
        }
        // The blob is committed only after a complete copy.
        copying.await.map_err(Error::fault)??;
        Ok(writer.finish(None).await?)
    }

    fn copy(mut self, model: &TaskModel, to: &mut impl Write) -> Result<()> {
        model.first_version_from(&mut self.0, to).map_err(|error| match error {
            GivenError::Io(error) => Error::from(StoreError::from(error)),
            other => wrong(other.to_string()),
        })
    }
}

fn wrong(problem: String) -> Error {
    Error::InvalidTask(vec![SpecError { field: "model.initial".to_owned(), problem }])
}
