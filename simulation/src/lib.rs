//! A whole federation in one process, under one seed and a virtual clock.
//!
//! The coordinator is the real one ([`coordinator::Coordinator::assemble`]: its routes, its background work, SQLite
//! and blobs in memory), participants are the SDK's own machines, and training really runs, on as many threads as
//! there are cores. Only waiting is skipped: how long a device computes, sends and is away follows from its profile
//! ([`DeviceModel`]), and the clock that both sides see jumps from one event to the next. The same experiment yields
//! the same [`Report`], byte for byte, whatever the number of threads.
//!
//! With [`Regions`], participants are regions: each of their trainings is a world of its own, with a coordinator and devices.
//!
//! [`PrivacyAudit`] runs a copy of a private task with made-up participants, and tests its ledger against what it releases.
//!
//! Its parts ([`in_process`], [`clock`], [`queue`], [`chance`]) also serve audits and tests, which drive time and failures
//! themselves.
//!
//! The only source of randomness is the seed, except in an audit without one, and of time the virtual clock. Sockets are not used.

mod audit;
pub mod chance;
pub mod clock;
mod data;
mod device;
mod error;
mod experiment;
pub mod in_process;
mod operation;
mod profile;
pub mod queue;
mod regional;
mod report;
mod rounds;
mod trace;
mod training;
mod world;

pub use audit::{AuditDesign, AuditReport, AuditStage, Finding, NoiseCorrelation, NoiseRatio, PrivacyAudit};
pub use data::{Data, PooledData, Synthetic};
pub use error::SimulationError;
pub use experiment::{Experiment, Progress, Regions};
pub use profile::DeviceModel;
pub use report::{Participation, Point, PrivacySpending, RegionReport, Report, RoundReport, WaitingTimes};
pub use trace::Trace;

/// Runs an experiment to its end, on the calling thread and the configured number of threads. `progress` is called on the calling thread,
/// which must not be one of an asynchronous runtime.
///
/// # Errors
/// [`SimulationError`].
pub fn run(experiment: &Experiment, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Report, SimulationError> {
    training::on_a_runtime(async {
        let mut world = world::World::new(experiment, regional::Origin::of(experiment), progress).await?;
        let ran = world.run(progress).await;
        world.stop().await;
        ran?;
        Ok(world.report(progress))
    })
}
