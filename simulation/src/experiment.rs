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
    /// A round is over, and its model was evaluated if due.
    Round(&'a RoundReport),
}
