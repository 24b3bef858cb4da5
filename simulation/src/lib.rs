//! A whole federation in one process, under one seed and a virtual clock.
//!
//! The coordinator is the real one ([`coordinator::Coordinator::assemble`]: its routes, its background work, SQLite and blobs
//! in memory), participants are the SDK's own machines, and training really runs, on as many threads as there are cores. Only
//! waiting is skipped: how long a device computes, sends and is away follows from what it is like ([`DeviceModel`]), and the
//! clock that both sides see jumps from one thing that happens to the next. The same experiment yields the same [`Report`],
//! byte for byte, whatever the number of threads.
//!
//! Nothing here opens a socket, reads the wall clock or takes randomness from anywhere but the seed.

mod chance;
mod clock;
mod data;
mod device;
mod network;
mod operation;
mod profile;
mod queue;
mod report;
mod rounds;
mod trace;
mod training;
mod world;

use std::sync::Arc;
use std::time::Duration;

use client_sdk::models::Architecture;
use task_spec::TaskSpec;

pub use data::{Data, Drawn, Synthetic};
pub use profile::DeviceModel;
pub use report::{Participation, Point, Report, RoundReport, Waiting};
pub use trace::Trace;

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
    /// Devices enrol.
    Enrolled(u32),
    /// A round is under way.
    Running {
        /// Its number.
        round: u32,
        /// Virtual time since the first device was there.
        elapsed: Duration,
        /// Updates accepted until now.
        updates: u64,
    },
    /// A round is over, and its model scored if it was to be.
    Round(&'a RoundReport),
}

/// Why a simulation ends without a report.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The experiment makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The data cannot be used.
    #[error("the data: {0}")]
    Data(String),
    /// The coordinator does not take the task.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
    /// The coordinator failed inside.
    #[error("the coordinator failed: {0}")]
    Coordinator(String),
    /// A participant ended in a way that no participant should.
    #[error("{name} ended: {error}")]
    Participant {
        /// Which.
        name: String,
        /// Why.
        error: String,
    },
    /// No threads to be had.
    #[error("cannot start threads: {0}")]
    Threads(String),
}

/// Runs an experiment to its end, on the calling thread and the threads it asks for. `progress` is called on the calling thread,
/// which must not be one of an asynchronous runtime.
///
/// # Errors
/// [`SimulationError`].
pub fn run(experiment: &Experiment, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Report, SimulationError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| SimulationError::Threads(error.to_string()))?;
    runtime.block_on(async {
        let mut world = world::World::new(experiment, progress).await?;
        let ran = world.run(progress).await;
        world.stop().await;
        ran?;
        Ok(world.report(progress))
    })
}
