//! A ready policy for devices with a battery: the app reports the device's state, the SDK decides and reports the unmet condition.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// State of the device in the app's last report; `None` where the app did not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceState {
    pub charging: Option<bool>,
    /// Whether traffic on the network is free of charge.
    pub unmetered: Option<bool>,
    /// Whether the device is unused.
    pub idle: Option<bool>,
    /// Charge of the battery in percent, 0 to 100.
    pub battery_percent: Option<u8>,
    pub thermal: Option<Thermal>,
}

/// How warm the device is, in the levels of iOS; Android has more between `Fair` and `Serious`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thermal {
    Nominal,
    Fair,
    /// The system slows down.
    Serious,
    Critical,
}

/// Conditions for the participant to work. A condition on an unreported state does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceConditions {
    /// Default: yes.
    pub charging: bool,
    /// Default: yes.
    pub unmetered: bool,
    /// Default: yes.
    pub idle: bool,
    /// Lowest level of the battery, 0 to 100. Default: any level.
    pub min_battery_percent: Option<u8>,
    /// How warm it may be. Default: `Fair`.
    pub max_thermal: Option<Thermal>,
    /// Most bytes sent and received in a day of UTC, without those of TLS; the SDK counts them and remembers them in
    /// the journal. Transfers in progress when they are used up come on top. Default: unlimited.
    pub max_bytes_per_day: Option<u64>,
    /// Interval after which the conditions are checked again, unless the app reports a change earlier. Default: 60 000.
    pub ask_again_ms: u64,
}

impl Default for DeviceConditions {
    fn default() -> Self {
        Self {
            charging: true,
            unmetered: true,
            idle: true,
            min_battery_percent: None,
            max_thermal: Some(Thermal::Fair),
            max_bytes_per_day: None,
            ask_again_ms: 60_000,
        }
    }
}

/// The condition that holds a participant up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unmet {
    #[error("the device is not charging")]
    Charging,
    #[error("the network is metered")]
    Unmetered,
    #[error("the device is in use")]
    Idle,
    #[error("the battery is at {percent:?} %; {least} % are needed")]
    Battery {
        /// As reported.
        percent: Option<u8>,
        least: u8,
    },
    #[error("the device is too warm: {state:?}; up to {most:?} is allowed")]
    Thermal {
        /// As reported.
        state: Option<Thermal>,
        most: Thermal,
    },
    #[error("{bytes} bytes were sent and received today, and {most} are allowed")]
    DataCap { bytes: u64, most: u64 },
}

impl Unmet {
    /// The condition's name, in snake case.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Charging => "charging",
            Self::Unmetered => "unmetered",
            Self::Idle => "idle",
            Self::Battery { .. } => "battery",
            Self::Thermal { .. } => "thermal",
            Self::DataCap { .. } => "data_cap",
        }
    }
}

impl DeviceConditions {
    /// Time until the conditions are looked at again.
    #[must_use]
    pub fn ask_again(&self) -> Duration {
        Duration::from_millis(self.ask_again_ms)
    }

    /// The first condition that does not hold, if one does not. `bytes_today` were sent and received.
    #[must_use]
    pub fn unmet(&self, state: &DeviceState, bytes_today: u64) -> Option<Unmet> {
        let is_not = |state: Option<bool>| state != Some(true);
        let DeviceState { charging, unmetered, idle, battery_percent: percent, thermal } = *state;
        if self.charging && is_not(charging) {
            return Some(Unmet::Charging);
        }
        if let Some(least) = self.min_battery_percent.filter(|least| percent.is_none_or(|percent| percent < *least)) {
            return Some(Unmet::Battery { percent, least });
        }
        if let Some(most) = self.max_thermal.filter(|most| thermal.is_none_or(|thermal| thermal > *most)) {
            return Some(Unmet::Thermal { state: thermal, most });
        }
        if self.idle && is_not(idle) {
            return Some(Unmet::Idle);
        }
        if self.unmetered && is_not(unmetered) {
            return Some(Unmet::Unmetered);
        }
        let most = self.max_bytes_per_day.filter(|most| bytes_today >= *most)?;
        Some(Unmet::DataCap { bytes: bytes_today, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_holds_up_alone_and_what_is_not_reported_does_not_hold() {
        let policy =
            DeviceConditions { min_battery_percent: Some(30), max_bytes_per_day: Some(100), ..Default::default() };
        let good = DeviceState {
            charging: Some(true),
            unmetered: Some(true),
            idle: Some(true),
            battery_percent: Some(30),
            thermal: Some(Thermal::Fair),
        };
        assert_eq!(policy.unmet(&good, 99), None);
        for (state, bytes, name) in [
            (DeviceState { charging: Some(false), ..good }, 0, "charging"),
            (DeviceState { charging: None, ..good }, 0, "charging"),
            (DeviceState { unmetered: Some(false), ..good }, 0, "unmetered"),
            (DeviceState { unmetered: None, ..good }, 0, "unmetered"),
            (DeviceState { idle: Some(false), ..good }, 0, "idle"),
            (DeviceState { battery_percent: Some(29), ..good }, 0, "battery"),
            (DeviceState { battery_percent: None, ..good }, 0, "battery"),
            (DeviceState { thermal: Some(Thermal::Serious), ..good }, 0, "thermal"),
            (DeviceState { thermal: None, ..good }, 0, "thermal"),
            (good, 100, "data_cap"),
        ] {
            assert_eq!(policy.unmet(&state, bytes).map(|unmet| unmet.name()), Some(name), "{state:?}");
        }
        let nothing = DeviceConditions {
            charging: false,
            unmetered: false,
            idle: false,
            min_battery_percent: None,
            max_thermal: None,
            max_bytes_per_day: None,
            ask_again_ms: 1,
        };
        assert_eq!(nothing.unmet(&DeviceState::default(), u64::MAX), None);
    }

    #[test]
    fn as_json_what_is_left_out_is_as_by_default() {
        let read = |text: &str| serde_json::from_str::<DeviceConditions>(text).map_err(|error| error.to_string());
        assert_eq!(read("{}"), Ok(DeviceConditions::default()));
        let some = read(r#"{"idle":false,"max_thermal":null,"max_bytes_per_day":5}"#).unwrap();
        assert_eq!((some.idle, some.max_thermal, some.max_bytes_per_day), (false, None, Some(5)));
        assert!(read(r#"{"charged":true}"#).unwrap_err().contains("unknown field `charged`"));
        assert!(serde_json::from_str::<DeviceState>(r#"{"thermal":"serious","battery_percent":300}"#).is_err());
    }
}
