//! What can be said of a simulation.

use std::path::PathBuf;

use super::devices::DeviceArgs;
use super::pool::SimulatedData;
use crate::command::demo::TrainingArgs;
use crate::command::schedule::ScheduleArgs;
use crate::data::Model;

/// What to simulate.
#[derive(clap::Args)]
pub(crate) struct Simulate {
    /// Devices that are enrolled
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) population: u32,
    /// Updates that a round aims at; buffered, the size of the buffer
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) cohort: u32,
    /// Rounds to run
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) data: SimulatedData,
    /// Model to train [default: linear for synthetic, mlp for mnist]
    #[arg(long, value_enum)]
    pub(super) model: Option<Model>,
    #[command(flatten)]
    pub(super) training: TrainingArgs,
    /// How cohorts are drawn: a selector's name, or a table as in a task file, for example '{"oort":{}}'
    #[arg(long, default_value = "uniform")]
    pub(super) selector: String,
    #[command(flatten)]
    pub(super) schedule: ScheduleArgs,
    /// Devices drawn beyond the cohort, as a fraction of it, because some will not report [default: 0.3; 0.2 where devices
    /// train ahead of rounds]
    #[arg(long)]
    pub(super) over_selection: Option<f64>,
    /// How long a device may train, and in mode sync how long a round waits for updates, in virtual seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(30..=2_592_000))]
    pub(super) deadline: u64,
    /// Let the coordinator read every update: no secure aggregation
    #[arg(long)]
    pub(super) insecure_aggregation: bool,
    #[command(flatten)]
    pub(super) devices: DeviceArgs,
    /// Everything random derives from it, keys included
    #[arg(long, default_value_t = 42)]
    pub(super) seed: u64,
    /// Score the model every so many rounds, and after the last
    #[arg(long, default_value_t = 1, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) evaluate_every: u32,
    /// Stop once the test accuracy of a scored model reaches this fraction
    #[arg(long, value_name = "ACCURACY")]
    pub(super) until_accuracy: Option<f64>,
    /// Stop after so many virtual hours
    #[arg(long, default_value_t = 168, value_parser = clap::value_parser!(u64).range(1..=8760))]
    pub(super) hours: u64,
    /// Threads that train; they change nothing but the speed [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: Option<u32>,
    /// Draw accuracy against virtual time and against bytes
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}
