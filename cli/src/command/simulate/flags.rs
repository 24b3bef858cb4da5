//! Flags of a simulation.

use std::path::PathBuf;

use serde_json::{Value, json};
use task_spec::Strategy;

use super::devices::DeviceArgs;
use super::pool::SimulatedData;
use crate::privacy_input::PRIVACY;
use crate::task_input::{Flag, FlagForm, Flags, SCHEDULE, ShortFlags, TRAINING, TaskArgs, plain};

/// The simulation's short flags for keys of its task.
#[derive(Clone, Debug)]
pub(super) struct SimulateFlags;

impl Flags for SimulateFlags {
    const ALL: &'static [&'static [Flag]] = &[OWN, PRIVACY, SCHEDULE, TRAINING];
}

const OWN: &[Flag] = &[
    Flag {
        name: "rounds",
        path: "rounds.count",
        form: FlagForm::Value("ROUNDS", plain),
        help: "Rounds to run [default: 20]",
    },
    Flag {
        name: "insecure-aggregation",
        path: "secure_aggregation.enabled",
        form: FlagForm::Off,
        help: "Let the coordinator read every update: no secure aggregation",
    },
    Flag {
        name: "selector",
        path: "selection.strategy",
        form: FlagForm::Value("NAME", strategy),
        help: "How cohorts are drawn: a selector's name, or a table as in a task file, for example '{\"oort\":{}}' [default: \
               uniform]",
    },
    Flag {
        name: "over-selection",
        path: "selection.over_selection",
        form: FlagForm::Value("PART", plain),
        help: "Devices drawn beyond the cohort, as a fraction of it, because some will not report [default: 0.3; 0.2 where devices \
               train ahead of rounds; none in a private task]",
    },
];

/// A selector by its name alone, which takes its numbers from their defaults, or as JSON.
fn strategy(text: &str) -> Result<Value, String> {
    let name = text.trim().replace('-', "_");
    let written = serde_json::from_str(&name).ok().filter(Value::is_object).unwrap_or_else(|| json!(name));
    serde_json::from_value::<Strategy>(written)
        .or_else(|error| serde_json::from_value(json!({ name: {} })).map_err(|_| error))
        .and_then(serde_json::to_value)
        .map_err(|error| error.to_string())
}

/// Arguments of `tributary simulate`.
#[derive(clap::Args)]
pub(crate) struct Simulate {
    /// Devices that are enrolled
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) population: u32,
    /// Updates that a round aims at; buffered, the size of the buffer [default: 50]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) cohort: Option<u32>,
    /// Divide the devices among so many regions, each with a coordinator of its own. Then --rounds counts the rounds among regions, and
    /// the task is that of a region in each of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) regions: Option<u32>,
    /// Regional rounds in each round among regions [default: 5]
    #[arg(long, value_name = "N", requires = "regions", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) regional_rounds: Option<u32>,
    #[command(flatten)]
    pub(super) data: SimulatedData,
    #[command(flatten)]
    pub(super) task: TaskArgs,
    #[command(flatten)]
    pub(super) short: ShortFlags<SimulateFlags>,
    /// How long a device may train, and in mode sync how long a round waits for updates, in virtual seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(30..=2_592_000))]
    pub(super) deadline: u64,
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

impl Simulate {
    /// Fewest devices of one coordinator.
    pub(super) fn devices(&self) -> u32 {
        self.population / self.regions.unwrap_or(1)
    }
}
