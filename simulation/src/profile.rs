//! Profiles of devices: lognormal speeds and links, and dropout probabilities.

use std::time::Duration;

use crate::SimulationError;
use crate::chance::{Purpose, lognormal, stream, uniform};
use crate::clock::Moment;
use crate::trace::{Habits, Trace};

/// Distribution of device profiles. Medians are those of lognormal distributions over devices.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct DeviceModel {
    pub trace: Trace,
    /// Median training examples per second; one pass forward and back is one example.
    pub examples_per_second: f64,
    /// Standard deviation of the logarithm of that: 1 makes one device in a hundred ten times as slow as the median.
    pub speed_spread: f64,
    /// Median download rate, in megabits per second.
    pub down_mbps: f64,
    /// Median upload rate, in megabits per second.
    pub up_mbps: f64,
    /// Median round trip, in milliseconds.
    pub round_trip_ms: f64,
    /// Standard deviation of the logarithm of rates and round trips.
    pub link_spread: f64,
    /// Mean probability that a device drops out of a round, at a random step; varies by ± a quarter between devices,
    /// so 0.08 means 6 to 10 %.
    pub dropout: f64,
    /// Median time until a device that dropped out restarts.
    pub away: Duration,
}

impl Default for DeviceModel {
    fn default() -> Self {
        Self {
            trace: Trace::Day,
            examples_per_second: 50.0,
            speed_spread: 1.0,
            down_mbps: 20.0,
            up_mbps: 5.0,
            round_trip_ms: 60.0,
            link_spread: 0.7,
            dropout: 0.08,
            away: Duration::from_secs(300),
        }
    }
}

impl DeviceModel {
    pub(crate) fn check(&self) -> Result<(), SimulationError> {
        let positive = [
            ("examples per second", self.examples_per_second),
            ("the download rate", self.down_mbps),
            ("the upload rate", self.up_mbps),
            ("the round trip", self.round_trip_ms),
        ];
        for (what, value) in positive {
            if !(value > 0.0 && value <= 1e9) {
                return Err(SimulationError::Invalid(format!("{what}: {value} is not above 0 and at most 1e9")));
            }
        }
        for (what, value) in [("the spread of speeds", self.speed_spread), ("the spread of links", self.link_spread)] {
            if !(0.0..=3.0).contains(&value) {
                return Err(SimulationError::Invalid(format!("{what}: {value} is not between 0 and 3")));
            }
        }
        if !(0.0..=0.8).contains(&self.dropout) {
            return Err(SimulationError::Invalid(format!("the dropout is {}, not between 0 and 0.8", self.dropout)));
        }
        Ok(())
    }
}

/// Profile of one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) habits: Habits,
    examples_per_second: f64,
    down_bytes_per_second: f64,
    up_bytes_per_second: f64,
    /// One-way latency.
    latency: Duration,
    /// Probability of dropping out of a round.
    pub(crate) dropout: f64,
}

impl Profile {
    pub(crate) fn draw(model: &DeviceModel, seed: u64, device: u32) -> Self {
        let rng = &mut stream(seed, Purpose::Profile, device.into(), 0);
        let bytes = |mbps: f64| mbps * 1e6 / 8.0;
        let examples_per_second = lognormal(model.examples_per_second, model.speed_spread, rng);
        let down_bytes_per_second = bytes(lognormal(model.down_mbps, model.link_spread, rng));
        let up_bytes_per_second = bytes(lognormal(model.up_mbps, model.link_spread, rng));
        let latency = seconds(lognormal(model.round_trip_ms, model.link_spread, rng) / 2e3);
        let dropout = model.dropout * (0.75 + 0.5 * uniform(rng));
        let habits = Habits::draw(model.trace, seed, device, rng);
        Self { habits, examples_per_second, down_bytes_per_second, up_bytes_per_second, latency, dropout }
    }

    /// Time to send this number of bytes to the coordinator.
    pub(crate) fn upload(&self, bytes: u64) -> Duration {
        self.latency + seconds(bytes as f64 / self.up_bytes_per_second)
    }

    /// Time to receive this number of bytes from the coordinator.
    pub(crate) fn download(&self, bytes: u64) -> Duration {
        self.latency + seconds(bytes as f64 / self.down_bytes_per_second)
    }

    /// Time to train on this number of examples.
    pub(crate) fn training(&self, examples: u64) -> Duration {
        seconds(examples as f64 / self.examples_per_second)
    }

    /// How long it may wait for an answer before it goes away.
    pub(crate) fn stays(&self, now: Moment) -> Duration {
        self.habits.available_until(now).unwrap_or(now).since(now)
    }
}

/// Capped at a year, the longest wait in a simulation.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, 366.0 * 86_400.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_scatter_around_the_medians() {
        let model = DeviceModel::default();
        let mut speeds: Vec<f64> = Vec::new();
        for device in 0..2001 {
            let profile = Profile::draw(&model, 3, device);
            assert!((0.06..=0.10).contains(&profile.dropout));
            speeds.push(profile.examples_per_second);
        }
        speeds.sort_by(f64::total_cmp);
        assert!((40.0..60.0).contains(&speeds[1000]), "{}", speeds[1000]);
        let spread = (speeds[1980] / speeds[1000]).ln();
        assert!((1.8..2.8).contains(&spread), "the 99th percentile is exp(2.33) times the median, not exp({spread})");
    }

    #[test]
    fn what_no_device_can_be_like_is_refused() {
        assert!(DeviceModel::default().check().is_ok());
        for wrong in [
            DeviceModel { examples_per_second: 0.0, ..DeviceModel::default() },
            DeviceModel { up_mbps: f64::NAN, ..DeviceModel::default() },
            DeviceModel { speed_spread: -1.0, ..DeviceModel::default() },
            DeviceModel { dropout: 1.0, ..DeviceModel::default() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
