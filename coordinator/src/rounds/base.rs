//! The base of a round or of a training ahead of rounds.

use federation::id::Digest;
use federation::model_version::ModelVersion;
use recipe::server::BaseTerms;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};

/// The base version, and the earlier versions on which finished updates may be based.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundBase {
    pub version: ModelVersion,
    /// With training ahead of rounds: digests of the files of earlier versions, newest first, up to the maximum staleness or the first
    /// version.
    pub earlier: Vec<Digest>,
}

impl RoundBase {
    /// The terms agreed by the members of a session: number and clipping norm of the version, and digests of the earlier files.
    pub(crate) fn terms(&self) -> BaseTerms<'_> {
        BaseTerms { version: self.version.version, clip: self.version.clip, earlier: &self.earlier }
    }
}

/// Reads the base; `None` if the task lacks this version.
///
/// # Errors
/// Errors of the store; [`StoreError::Corrupt`] if an earlier version is missing.
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
