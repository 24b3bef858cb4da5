//! Manual rollback to the previous version.

use std::sync::Arc;
use std::time::Duration;

use inference::versions::{LoadedVersion, NoWayBack, WayBack};
use tokio::time::Instant;
use wire::inspect::RefusedBecause;

use super::super::meters;
use super::{Served, WATCH, locked};

/// Maximum time that a rollback waits for a draining version.
pub(super) const DRAINED: Duration = Duration::from_secs(3);

/// Why a rollback failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRolledBack {
    #[error(transparent)]
    NoWayBack(#[from] NoWayBack),
    #[error("version {version} cannot be used again: {why}")]
    Previous { version: u32, why: String },
    #[error("a version is still being drained; try again in a moment")]
    Draining,
}

impl Served {
    /// Rolls back to the previous version, or ends a canary. Returns the version that is active afterwards.
    ///
    /// # Errors
    /// [`NotRolledBack`]: nothing changed.
    pub(crate) async fn roll_back(self: &Arc<Self>) -> Result<u32, NotRolledBack> {
        let _alone = self.changing.lock().await;
        self.until_drained().await?;
        let mut others = self.found().unwrap_or_default();
        // The untrained version is not served.
        others.retain(|version| *version > 0);
        let way = locked(&self.versions).roll_back(&others)?;
        if let WayBack::To(versions) = way {
            self.go_back(versions).await?;
        }
        self.refusals.note_others(locked(&self.versions).refused(), RefusedBecause::RolledBack);
        meters::swapped(&self.name, "rolled_back");
        self.note_state();
        let stable = self.at(None).map(|model| model.version).ok_or(NoWayBack::None)?;
        tracing::warn!(model = self.name, version = stable, "{} was rolled back to version {stable}", self.name);
        Ok(stable)
    }

    /// Waits for room for another version.
    async fn until_drained(&self) -> Result<(), NotRolledBack> {
        let end = Instant::now() + DRAINED;
        loop {
            self.drain();
            if locked(&self.versions).draining().is_none() {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(NotRolledBack::Draining);
            }
            tokio::time::sleep(WATCH).await;
        }
    }

    /// Activates the first usable version of these.
    async fn go_back(self: &Arc<Self>, to: Vec<u32>) -> Result<(), NotRolledBack> {
        let mut wrong = None;
        for version in to {
            let file = self.stamp(version);
            match self.load(version).await {
                Ok((loaded, warm, _)) => {
                    locked(&self.versions).go_back(LoadedVersion { version, model: Arc::new(loaded) }, warm);
                    return Ok(());
                }
                Err(error) => {
                    self.tell_unready(version, file, &error);
                    wrong.get_or_insert(NotRolledBack::Previous { version, why: error.to_string() });
                }
            }
        }
        Err(wrong.unwrap_or(NotRolledBack::NoWayBack(NoWayBack::None)))
    }
}
