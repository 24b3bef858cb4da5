//! Model versions: the published models of tasks. Rows stay; of a row only `pinned_at` and `removed_at` change.

use federation::event::{EventKind, Fact, Subject};
use federation::id::{Attempt, ParticipantId, TaskId};
use federation::model_version::ModelVersion;
use federation::round::RoundState;
use federation::time::Timestamp;

use crate::driver::{Before, FromRow, Row};
use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

record!(
    "model_version",
    ModelVersion { task, version, sha256, bytes, round, parent, clip, created_at, optimizer_state }
);

/// A model version, and whether its file stays stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredVersion {
    pub model: ModelVersion,
    /// Since when an operator keeps it, if one does.
    pub pinned_at: Option<Timestamp>,
    /// Time at which its file was removed.
    pub removed_at: Option<Timestamp>,
}

/// A version that a participant requests.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedVersion {
    pub version: StoredVersion,
    /// The attempt that starts from this version and still needs the participant, with its state, if
    /// [`Transaction::pending_assignment`] is in one.
    pub attempt: Option<(Attempt, RoundState)>,
}

impl FromRow for WantedVersion {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let version = StoredVersion::from_row(row)?;
        let attempt = match (row.get("number")?, row.get("attempt")?, row.get("state")?) {
            (Some(round), Some(attempt), Some(state)) => {
                Some((Attempt { task: version.model.task, round, attempt }, state))
            }
            _ => None,
        };
        Ok(Self { version, attempt })
    }
}

impl FromRow for StoredVersion {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let model = ModelVersion::from_row(row)?;
        Ok(Self { model, pinned_at: row.get("pinned_at")?, removed_at: row.get("removed_at")? })
    }
}

impl Transaction<'_> {
    /// Stores a new version, and an event: that it was published, or that an earlier one was restored as it.
    ///
    /// # Errors
    /// `Conflict` if the version exists, the task does not, or the clipping norm is not finite and above 0; `BeingRemoved`.
    pub async fn insert_model_version(&mut self, version: &ModelVersion) -> Result<()> {
        // SQLite would store a NaN as NULL, which means that the version lacks a norm.
        if let Some(clip) = version.clip.filter(|clip| clip.is_nan()) {
            return Err(StoreError::Conflict(format!("a clipping norm of {clip}: it must be above 0")));
        }
        self.must_not_be_doomed(version.sha256).await?;
        if let Some(state) = version.optimizer_state {
            self.must_not_be_doomed(state).await?;
        }
        self.insert(version).await?;
        let number = version.version;
        let facts = [("version", Fact::from(number)), ("sha256", version.sha256.to_string().into())];
        match version.restored_from() {
            None => self.note_of_version(version, EventKind::VersionPublished, facts),
            Some(earlier) => {
                let [number, sha256] = facts;
                self.note_of_version(version, EventKind::VersionRestored, [number, sha256, ("from", earlier.into())]);
            }
        }
        Ok(())
    }

    fn note_of_version<const N: usize>(
        &mut self,
        version: &ModelVersion,
        kind: EventKind,
        facts: [(&'static str, Fact); N],
    ) {
        self.note_event(version.created_at, kind, Subject::Task(version.task), facts);
    }

    pub async fn model_version(&mut self, task: TaskId, version: u32) -> Result<Option<ModelVersion>> {
        self.find("SELECT * FROM model_version WHERE task = ?1 AND version = ?2", (task, version)).await
    }

    pub async fn latest_model_version(&mut self, task: TaskId) -> Result<Option<ModelVersion>> {
        Ok(self.model_versions(task, None, 1).await?.pop())
    }

    /// Versions below `before`, newest first.
    pub async fn model_versions(&mut self, task: TaskId, before: Option<u32>, limit: u32) -> Result<Vec<ModelVersion>> {
        self.list(
            "SELECT * FROM model_version WHERE task = ?1 AND version < ?2
             ORDER BY version DESC LIMIT ?3",
            (task, Before(before), limit),
        )
        .await
    }

    /// A version with the state of its file.
    pub async fn stored_version(&mut self, task: TaskId, version: u32) -> Result<Option<StoredVersion>> {
        self.find("SELECT * FROM model_version WHERE task = ?1 AND version = ?2", (task, version)).await
    }

    /// The same, and for which attempt this participant needs it.
    pub async fn wanted_version(
        &mut self,
        task: TaskId,
        version: u32,
        participant: ParticipantId,
    ) -> Result<Option<WantedVersion>> {
        self.find(
            "SELECT model_version.*, round.number, round.attempt, round.state
             FROM model_version
             LEFT JOIN (SELECT task, number, attempt FROM pending_place WHERE participant = ?3
                        ORDER BY assigned_at, task LIMIT 1) AS place
                    ON place.task = model_version.task
             LEFT JOIN round
                    ON round.task = place.task AND round.number = place.number AND round.attempt = place.attempt
                   AND round.base_version = model_version.version
             WHERE model_version.task = ?1 AND model_version.version = ?2",
            (task, version, participant),
        )
        .await
    }

    /// The same as [`Transaction::stored_version`] of versions below `before`, newest first.
    pub async fn stored_versions(
        &mut self,
        task: TaskId,
        before: Option<u32>,
        limit: u32,
    ) -> Result<Vec<StoredVersion>> {
        self.list(
            "SELECT * FROM model_version WHERE task = ?1 AND version < ?2
             ORDER BY version DESC LIMIT ?3",
            (task, Before(before), limit),
        )
        .await
    }

    /// Pins a version at this time, or unpins it, with an event. Returns false if the version does not exist, or its
    /// file was removed.
    pub async fn pin_version(&mut self, task: TaskId, version: u32, is_pinned: bool, at: Timestamp) -> Result<bool> {
        let changed = self
            .change_one(
                "UPDATE model_version SET pinned_at = ?3 WHERE task = ?1 AND version = ?2 AND removed_at IS NULL",
                (task, version, is_pinned.then_some(at)),
            )
            .await?;
        if changed {
            let kind = if is_pinned { EventKind::VersionPinned } else { EventKind::VersionUnpinned };
            self.note_event(at, kind, Subject::Task(task), [("version", version.into())]);
        }
        Ok(changed)
    }

    /// Gives up the files of the versions below `below`, except pinned ones, the bases of open rounds, and `except`, with an
    /// event for each. Returns their number. Files that other rows need, too, stay.
    pub async fn remove_versions(
        &mut self,
        task: TaskId,
        below: u32,
        except: &[u32],
        removed_at: Timestamp,
    ) -> Result<u32> {
        let removed: Vec<u32> = self
            .change_listing(
                "UPDATE model_version SET removed_at = ?4
             WHERE task = ?1 AND version < ?2 AND removed_at IS NULL AND pinned_at IS NULL
               AND version NOT IN {?3 version:integer}
               AND NOT EXISTS (SELECT 1 FROM round
                               WHERE task = model_version.task AND base_version = model_version.version
                                 AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))
             RETURNING version",
                (task, below, except, removed_at),
            )
            .await?;
        for version in &removed {
            self.note_event(
                removed_at,
                EventKind::VersionRemoved,
                Subject::Task(task),
                [("version", Fact::from(*version))],
            );
        }
        u32::try_from(removed.len()).map_err(StoreError::fault)
    }
}
