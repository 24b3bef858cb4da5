//! Blobs of unreleased data: exact updates, and partial sums before noise.

use std::collections::HashSet;

use federation::id::TaskId;
use store::entity::blob_reference::{BlobReference, BlobUse};
use store::{Store, StoreError};

use crate::records::all_tasks::AllTasks;

/// Private tasks with unmasked inputs.
pub(crate) struct UnmaskedPrivateTasks(HashSet<TaskId>);

impl UnmaskedPrivateTasks {
    /// Whether the blob reveals data hidden by the noise of a release. Backups exclude it, since a copy would violate the task's privacy
    /// guarantee for as long as it exists. Without the blob the round fails after a restore, and is charged.
    pub(crate) fn expose(&self, reference: &BlobReference) -> bool {
        match reference.used_as {
            BlobUse::Input | BlobUse::PartialSum => self.0.contains(&reference.task),
            BlobUse::Model | BlobUse::OptimizerState | BlobUse::NoisedSum => false,
        }
    }
}

/// The tasks of a database whose inputs are excluded from backups.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn unmasked_private_tasks(store: &Store) -> Result<UnmaskedPrivateTasks, StoreError> {
    let (mut found, mut tasks) = (HashSet::new(), AllTasks::of(store));
    while let Some(page) = tasks.next().await? {
        let is_exposed = |spec: &task_spec::TaskSpec| spec.privacy.is_private() && !spec.secure_aggregation.enabled;
        found.extend(page.iter().filter(|task| is_exposed(&task.spec)).map(|task| task.id));
    }
    Ok(UnmaskedPrivateTasks(found))
}

#[cfg(test)]
mod tests {
    use federation::id::Digest;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn inputs_and_partial_sums_are_excluded() {
        let (private, other) = (TaskId(Uuid::from_u128(1)), TaskId(Uuid::from_u128(2)));
        let tasks = UnmaskedPrivateTasks(HashSet::from([private]));
        for used_as in BlobUse::ALL {
            let is_excluded = |task| {
                tasks.expose(&BlobReference { digest: Digest([1; 32]), used_as, task, number: 1, bytes: Some(8) })
            };
            let is_unreleased = matches!(used_as, BlobUse::Input | BlobUse::PartialSum);
            assert_eq!((is_excluded(private), is_excluded(other)), (is_unreleased, false), "{used_as}");
        }
    }
}
