//! The definition of an experiment, and its progress.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::models::Architecture;
use task_spec::TaskSpec;

use crate::{Data, DeviceModel, RoundReport};

#[derive(Clone)]
pub struct Experiment {
    /// Number of enrolled devices.
    pub population: u32,
    /// Distribution of the devices' properties.
    pub devices: DeviceModel,
    pub data: Arc<dyn Data>,
    pub architecture: Architecture,
    pub task: TaskSpec,
    /// Seed of all randomness.
    pub seed: u64,
    /// Number of training threads; does not affect the result.
    pub threads: usize,
    /// Number of completed rounds after which the published model is evaluated on the test data; it is always
    /// evaluated after the last.
    pub evaluate_every: u32,
    /// The simulation ends when an evaluated model reaches this accuracy, if set.
    pub until_accuracy: Option<f64>,
    /// Virtual time after which the simulation ends in any case.
    pub limit: Duration,
    /// Regions between the devices and the coordinator. Then `task` is that of each region in each round of the upper task.
    pub regions: Option<Regions>,
}

/// Regions, each with a coordinator of its own, that take part in the task of an upper coordinator.
#[derive(Clone)]
pub struct Regions {
    /// Number of regions. Devices belong to them in order; their numbers differ by one at most.
    pub count: u32,
    /// The upper task.
    pub task: TaskSpec,
    /// Links between the regions and the upper coordinator, and their dropouts.
    pub links: DeviceModel,
}

impl Regions {
    /// The first device of a region, and its number of devices, of a population.
    pub(crate) fn devices(&self, region: u32, population: u32) -> (u32, u32) {
        let (least, more) = (population / self.count, population % self.count);
        (region * least + region.min(more), least + u32::from(region < more))
    }
}

/// Progress of a running simulation.
#[derive(Debug)]
pub enum Progress<'a> {
    Enrolled(u32),
    /// A round is in progress.
    Running {
        round: u32,
        /// Virtual time since the first device arrived.
        elapsed: Duration,
        /// Updates accepted so far.
        updates: u64,
    },
    /// A region has trained, for so many virtual seconds.
    Region {
        /// From 0.
        region: u32,
        seconds: f64,
    },
    /// A round is over, and its model was evaluated if due.
    Round(&'a RoundReport),
}
