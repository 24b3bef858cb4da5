//! Flags for the properties of simulated devices ([`simulation::DeviceModel`]).

use std::fmt;
use std::time::Duration;

use simulation::{DeviceModel, Trace};

/// What devices are like.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DeviceArgs {
    /// When devices are available: day (mostly at night, while they charge) or always
    #[arg(long, default_value = "day")]
    trace: Trace,
    /// Median speed of devices, in training examples a second
    #[arg(long, default_value_t = 50.0, value_name = "EXAMPLES")]
    examples_per_second: f64,
    /// How much devices differ in speed: standard deviation of its logarithm
    #[arg(long, default_value_t = 1.0, value_name = "SIGMA")]
    speed_spread: f64,
    /// Median download rate, in Mbit/s
    #[arg(long, default_value_t = 20.0, value_name = "MBPS")]
    down: f64,
    /// Median upload rate, in Mbit/s
    #[arg(long, default_value_t = 5.0, value_name = "MBPS")]
    up: f64,
    /// Median round trip, in milliseconds
    #[arg(long, default_value_t = 60.0, value_name = "MS")]
    round_trip: f64,
    /// How much devices differ in rates and round trips: standard deviation of the logarithm
    #[arg(long, default_value_t = 0.7, value_name = "SIGMA")]
    link_spread: f64,
    /// Probability that a device drops out of a round; devices differ by a quarter of it either way
    #[arg(long, default_value_t = 0.08, value_name = "PROBABILITY")]
    dropout: f64,
    /// Median time after which a device that vanished comes back, in seconds
    #[arg(long, default_value_t = 300.0, value_name = "SECONDS")]
    away: f64,
}

impl DeviceArgs {
    pub(super) fn model(&self) -> DeviceModel {
        DeviceModel {
            trace: self.trace,
            examples_per_second: self.examples_per_second,
            speed_spread: self.speed_spread,
            down_mbps: self.down,
            up_mbps: self.up,
            round_trip_ms: self.round_trip,
            link_spread: self.link_spread,
            dropout: self.dropout,
            away: Duration::try_from_secs_f64(self.away).unwrap_or_default(),
        }
    }
}

impl fmt::Display for DeviceArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = match self.trace {
            Trace::Always => "always available",
            Trace::Day => "available mostly at night",
        };
        write!(
            f,
            "{there}; in the median {} examples/s, {} Mbit/s down, {} up, {} ms; {:.1} % vanish in a round",
            self.examples_per_second,
            self.down,
            self.up,
            self.round_trip,
            100.0 * self.dropout
        )
    }
}
