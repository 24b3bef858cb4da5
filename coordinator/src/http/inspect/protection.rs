//! Access to the updates of a task.

use federation::id::TaskId;
use learning::privacy::SealedRow;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use task_spec::NoisedBy;
use wire::inspect::{AcrossRounds, CertifiedBy, Protection};

use crate::rounds::models::Models;

/// Describes access to the updates of a task.
///
/// # Errors
/// Errors of the store.
pub(super) async fn protection(
    tx: &mut Transaction<'_>,
    models: &Models,
    task: &TaskRow,
    certified_by: CertifiedBy,
) -> Result<Protection, StoreError> {
    let secure = &task.spec.secure_aggregation;
    if !secure.enabled {
        return Ok(Protection::ReadableByCoordinator);
    }
    let session = models.of(task).ok().and_then(|model| model.session.clone());
    Ok(Protection::HiddenInSums {
        certified_by,
        max_corrupt_fraction: secure.max_corrupt_fraction,
        tolerated_colluders: session.as_ref().map_or(0, |session| session.tolerated_colluders().into()),
        smallest_sum: session.as_ref().map_or(0, |session| session.smallest_sum().into()),
        across_rounds: across_rounds(tx, task).await?,
    })
}

/// Bound on the information revealed by differences between a task's sums.
async fn across_rounds(tx: &mut Transaction<'_>, task: &TaskRow) -> Result<AcrossRounds, StoreError> {
    match task.spec.privacy.mechanism.noised_by() {
        NoisedBy::Coordinator | NoisedBy::CoordinatorOverRounds => spent(tx, task.id, None).await,
        NoisedBy::Cohort | NoisedBy::EachParticipant => spent(tx, task.id, Some(0.0)).await,
        NoisedBy::Nobody => {
            Ok(task.spec.batch_size().map_or(AcrossRounds::NotProtected, |size| AcrossRounds::Batches { size }))
        }
    }
}

/// The noise of a private task, with the total in the last row of its ledger (verified by [`super::privacy::show`]). `server_epsilon`:
/// value for an empty ledger.
async fn spent(
    tx: &mut Transaction<'_>,
    task: TaskId,
    server_epsilon: Option<f64>,
) -> Result<AcrossRounds, StoreError> {
    let Some(last) = tx.privacy_count(task).await?.checked_sub(1) else {
        return Ok(AcrossRounds::Noise { epsilon: Some(0.0), server_epsilon });
    };
    let row = tx.privacy_rows(task, last, 1).await?.pop();
    let total = row.and_then(|row| serde_json::from_str::<SealedRow>(&row.row).ok()).map(|sealed| sealed.row.total);
    Ok(match total {
        Some(total) => AcrossRounds::Noise { epsilon: Some(total.cohort_known), server_epsilon: total.server },
        None => AcrossRounds::Noise { epsilon: None, server_epsilon: None },
    })
}
