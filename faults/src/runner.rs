//! Performs schedules, each in a folder and a runtime of its own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;

use super::base::Base;
use super::outcome::{Flaws, Run};
use super::perform::perform;
use super::schedule::Schedule;
use super::world::Place;
use crate::SetupError;

/// Number of runs between cleanups of the collected metrics.
const TIDIED: u64 = 50;

/// A place for the files of runs, removed at the end.
pub struct Runner {
    folder: tempfile::TempDir,
    /// Starting states of runs, by the number of devices.
    bases: BTreeMap<u32, Base>,
    runs: u64,
    flaws: Flaws,
}

impl Runner {
    /// # Errors
    /// [`SetupError::Files`] if a temporary folder cannot be made.
    pub fn new(flaws: Flaws) -> Result<Self, SetupError> {
        // All files are temporary, so memory serves where there is such a folder.
        let memory = PathBuf::from("/dev/shm");
        let made = tempfile::Builder::new().prefix("tributary-faults").tempdir_in(memory);
        let folder = made.or_else(|_| tempfile::tempdir()).map_err(SetupError::files)?;
        Ok(Self { folder, bases: BTreeMap::new(), runs: 0, flaws })
    }

    /// Performs a schedule, always with the same outcome. With `tell`, each event is reported as it happens.
    ///
    /// # Errors
    /// [`SetupError`] if the run cannot be set up.
    pub fn run(&mut self, schedule: &Schedule, tell: Option<&mut dyn FnMut(&str)>) -> Result<Run, SetupError> {
        self.runs += 1;
        if self.runs.is_multiple_of(TIDIED) {
            // All coordinators of a process share its metrics, which are not read here.
            coordinator::observe::recorder().run_upkeep();
        }
        let folder = self.folder.path().join(format!("run-{}", self.runs));
        std::fs::create_dir_all(&folder).map_err(SetupError::files)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| SetupError::Threads(error.to_string()))?;
        let place = Place { folder: folder.clone(), flaws: self.flaws };
        let base = match self.bases.entry(schedule.devices) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(none) => {
                // A folder of its own: an existing key would skip a draw, and change all later ones.
                let folder = self.folder.path().join(format!("base-{}", schedule.devices));
                none.insert(runtime.block_on(Base::make(schedule.devices, &folder))?)
            }
        };
        let ran = runtime.block_on(perform(schedule, base, place, tell));
        drop(runtime);
        std::fs::remove_dir_all(&folder).map_err(SetupError::files)?;
        ran
    }
}
