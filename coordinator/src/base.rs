//! What a round, or a training ahead of rounds, starts from.

use federation::id::Digest;
use federation::model_version::ModelVersion;
use recipe::server::BaseTerms;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};

/// The version that participants start from, and those that finished updates may have started from.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundBase {
    pub version: ModelVersion,
    /// Where participants train ahead of rounds: digests of the files of the version before, of the one before that, and so on,
    /// as many as an update may be behind, or as there are.
    pub earlier: Vec<Digest>,
}

impl RoundBase {
    /// What members of a session agree on: number and clipping norm of the version, and digests of the earlier files.
    pub(crate) fn terms(&self) -> BaseTerms<'_> {
        BaseTerms { version: self.version.version, clip: self.version.clip, earlier: &self.earlier }
    }
}

/// Reads the base; `None` if the task has no such version.
///
/// # Errors
/// The store's; [`StoreError::Corrupt`] if an earlier version is missing.
pub(crate) async fn read(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    version: u32,
) -> Result<Option<RoundBase>, StoreError> {
    let Some(base) = tx.model_version(task.id, version).await? else { return Ok(None) };
    let count = task.spec.ahead().map_or(0, |ahead| ahead.staleness.max.min(version));
    let earlier = match count {
        0 => Vec::new(),
        count => tx.model_versions(task.id, Some(version), count).await?,
    };
    let expected = (version - count..version).rev();
    if !earlier.iter().map(|row| row.version).eq(expected) {
        return Err(StoreError::corrupt(format!("task {} lacks a version before version {version}", task.id)));
    }
    Ok(Some(RoundBase { version: base, earlier: earlier.into_iter().map(|row| row.sha256).collect() }))
}
