//! What is simulated, and how far it is.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::models::Architecture;
use task_spec::TaskSpec;

use crate::{Data, DeviceModel, RoundReport};

/// What to simulate.
#[derive(Clone)]
pub struct Experiment {
    /// Devices that are enrolled.
    pub population: u32,
    /// What they are like.
    pub devices: DeviceModel,
    /// What they train on.
    pub data: Arc<dyn Data>,
    /// What they train.
    pub architecture: Architecture,
    /// The task, as an operator would write it.
    pub task: TaskSpec,
    /// Everything random derives from it.
    pub seed: u64,
    /// Threads that train; the outcome does not depend on them.
    pub threads: usize,
    /// The published model is scored on the test data after every so many completed rounds, and after the last.
    pub evaluate_every: u32,
    /// The simulation ends when a scored model is so accurate, if it is given.
    pub until_accuracy: Option<f64>,
    /// Virtual time after which the simulation ends, wherever its task stands.
    pub limit: Duration,
}

/// How far a simulation is; told while it runs.
#[derive(Debug)]
pub enum Progress<'a> {
    Enrolled(u32),
    /// A round is under way.
    Running {
        round: u32,
        /// Virtual time since the first device was there.
        elapsed: Duration,
        /// Updates accepted until now.
        updates: u64,
    },
    /// A round is over, and its model scored if it was to be.
    Round(&'a RoundReport),
}
