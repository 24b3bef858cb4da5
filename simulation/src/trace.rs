//! Availability of devices: power, network and their owners' habits.
//!
//! `day` follows what Bonawitz et al. (*Towards Federated Learning at Scale*, 2019, §9) report: phones work while they charge
//! on an unmetered network, mostly at night, so that several times as many are there at night as by day. Each device has a
//! bedtime, a length of night and a time zone of one continent, and on some days it also charges for a while by day.

use std::str::FromStr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_distr::{Distribution as _, Normal};

use crate::chance::{Purpose, lognormal, stream, uniform};
use crate::clock::Moment;

const HOUR: f64 = 3600e6;
const DAY: u64 = 24 * 3_600_000_000;
/// Offsets of the time zones to the west, in hours; a quarter of the devices are in each.
const ZONES: f64 = 4.0;
/// Local time, in hours, at which devices start charging for the night: mean and deviation over devices.
const BEDTIME: (f64, f64) = (22.5, 1.5);
/// Length of a night, in hours: median over devices and deviation of its logarithm.
const NIGHT: (f64, f64) = (7.5, 0.25);
/// Daily deviation of a night's beginning, in hours.
const JITTER: f64 = 0.5;
/// Probability of charging by day, and its length in hours: median and deviation of the logarithm.
const BY_DAY: (f64, f64, f64) = (0.4, 0.75, 0.5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Trace {
    /// At all times.
    Always,
    /// Mostly at night.
    Day,
}

impl FromStr for Trace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "day" => Ok(Self::Day),
            other => Err(format!("there is no trace {other:?}; there are always and day")),
        }
    }
}

/// Habits of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    trace: Trace,
    seed: u64,
    device: u32,
    /// Beginning of its nights, in microseconds after midnight UTC, and their length.
    bedtime: f64,
    night: f64,
}

impl Habits {
    /// Draws a device's habits.
    pub(crate) fn draw(trace: Trace, seed: u64, device: u32, rng: &mut ChaCha20Rng) -> Self {
        let zone = (uniform(rng) * ZONES).floor();
        let bedtime = Normal::new(BEDTIME.0, BEDTIME.1).map_or(BEDTIME.0, |hours| hours.sample(rng));
        let night = lognormal(NIGHT.0, NIGHT.1, rng).clamp(1.0, 14.0);
        Self { trace, seed, device, bedtime: (bedtime + zone) * HOUR, night: night * HOUR }
    }

    /// End of the current availability; `None` if unavailable, the end of time if always available.
    pub(crate) fn available_until(&self, now: Moment) -> Option<Moment> {
        match self.trace {
            Trace::Always => Some(Moment(u64::MAX)),
            Trace::Day => self.windows(now).find(|(from, to)| *from <= now && now < *to).map(|(_, to)| to),
        }
    }

    /// Time until the device's next availability begins.
    pub(crate) fn until_available(&self, now: Moment) -> Duration {
        let next = self.windows(now).map(|(from, _)| from).filter(|from| *from > now).min();
        // There is a night on every day.
        next.map_or(Duration::from_micros(DAY), |next| next.since(now))
    }

    /// The windows that began yesterday, today and tomorrow; the first day begins in the middle of a night.
    fn windows(&self, now: Moment) -> impl Iterator<Item = (Moment, Moment)> {
        let today = now.0 / DAY + 1;
        (today - 1..=today + 1).flat_map(|day| self.day(day))
    }

    /// The night that begins on a day, and perhaps an hour by day. Days count from 1, the day before the simulation begins
    /// is number 0.
    fn day(&self, day: u64) -> impl Iterator<Item = (Moment, Moment)> + use<> {
        let mut rng = stream(self.seed, Purpose::Day, self.device.into(), day);
        let midnight = day as f64 * DAY as f64 - DAY as f64;
        let jitter = (2.0 * uniform(&mut rng) - 1.0) * JITTER * HOUR;
        let night = (midnight + self.bedtime + jitter, self.night);
        let (often, hours, sigma) = BY_DAY;
        let is_today = uniform(&mut rng) < often;
        // After the night before has ended, and before this one begins.
        let free = 24.0 * HOUR - self.night - 2.0 * JITTER * HOUR;
        let length = (lognormal(hours, sigma, &mut rng) * HOUR).min(free / 2.0);
        let begins = uniform(&mut rng) * (free - length);
        let by_day = (midnight + self.bedtime - JITTER * HOUR - free + begins, length);
        [Some(night), is_today.then_some(by_day)]
            .into_iter()
            .flatten()
            .map(|(from, length)| (at(from), at(from + length)))
    }
}

/// Before the beginning is the beginning.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is meant")]
fn at(micros: f64) -> Moment {
    Moment(micros as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn habits(device: u32) -> Habits {
        Habits::draw(Trace::Day, 7, device, &mut stream(7, Purpose::Profile, device.into(), 0))
    }

    #[test]
    fn several_times_as_many_are_there_at_night_as_by_day() {
        let devices: Vec<_> = (0..2000).map(habits).collect();
        let available = |hour: u64| {
            let now = Moment(DAY + hour * DAY / 24);
            devices.iter().filter(|device| device.available_until(now).is_some()).count()
        };
        // Midnight in the middle of the continent, and early afternoon.
        let (night, day) = (available(4), available(18));
        assert!(night > 1200 && day < 400 && day > 20, "{night} {day}");
    }

    #[test]
    fn availability_begins_and_ends_when_it_is_said_to() {
        for device in (0..50).map(habits) {
            let mut now = Moment::default();
            for _ in 0..6 {
                match device.available_until(now) {
                    Some(end) => {
                        assert!(end > now && device.available_until(Moment(end.0 - 1)).is_some());
                        now = end;
                    }
                    None => {
                        let wait = device.until_available(now);
                        assert!(wait > Duration::ZERO && wait <= Duration::from_micros(2 * DAY));
                        now = now.plus(wait);
                        assert!(device.available_until(now).is_some());
                    }
                }
            }
        }
    }

    #[test]
    fn whoever_is_always_there_never_leaves() {
        let always = Habits { trace: Trace::Always, ..habits(1) };
        assert_eq!(always.available_until(Moment(5)), Some(Moment(u64::MAX)));
    }
}
