//! The answer about an ended task, with its last version.

use federation::id::TaskId;
use federation::model_version::ModelVersion;
use store::entity::open_task::OpenTask;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use task_spec::TaskSpec;
use wire::participant::{CheckInReply, FinalModel, Finding, ModelRef};
use wire::provenance::SignedProvenance;

use super::look::has_labels;
use crate::http::app::App;
use crate::http::reply::problem::Result;
use crate::records::provenance;

/// The answer to a participant of an ended task: the same for every participant with suitable labels, drawn or not. An SDK that has not
/// reported to read tables as the task has them gets no model: it may be too old to read the answer.
pub(super) async fn over(app: &App, open: OpenTask, findings: &[Finding]) -> Result<CheckInReply> {
    let (spec, task) = (&open.task.spec, open.task.id);
    let is_new = || findings.iter().any(|finding| finding.task == task && finding.eligible);
    let is_told = has_labels(&open) && spec.analytics.is_none() && (!spec.needs_latest_table() || is_new());
    let model = if is_told { final_model(app, open.task).await? } else { None };
    Ok(CheckInReply::TaskOver { task, model: model.map(Box::new) })
}

async fn final_model(app: &App, task: TaskRow) -> Result<Option<FinalModel>> {
    let id = task.id;
    let found = app.store.read("last_version", |tx| Box::pin(last_version(tx, id))).await?;
    let Some((version, provenance)) = found else { return Ok(None) };
    let terms = app.models.of(&task)?;
    let metrics = task.spec.travelling_metrics();
    let TaskSpec { name, model, training, .. } = task.spec;
    Ok(Some(FinalModel {
        task_name: name,
        version: ModelRef { version: version.version, sha256: version.sha256, bytes: version.bytes },
        provenance,
        model,
        training,
        encoding: terms.encoding.clone(),
        metrics,
        privacy: terms.privacy_from(version.clip),
    }))
}

/// The newest version with its provenance record, if both are kept.
async fn last_version(
    tx: &mut Transaction<'_>,
    task: TaskId,
) -> Result<Option<(ModelVersion, SignedProvenance)>, StoreError> {
    let Some(last) = tx.stored_versions(task, None, 1).await?.pop() else { return Ok(None) };
    if last.removed_at.is_some() {
        return Ok(None);
    }
    let provenance = provenance::of(tx, task, last.model.version).await?;
    Ok(provenance.map(|provenance| (last.model, provenance)))
}
