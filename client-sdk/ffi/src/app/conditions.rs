//! The device's state. The app reports it, and the policy in the options (`device_conditions`) decides.

use client_sdk::{DeviceConditions as Policy, DeviceState, Unmet, participant};

use super::callback::{CallbackError, call};
use crate::error::TributaryError;

/// The SDK's own types, for Kotlin and Swift.
#[cfg(feature = "uniffi")]
mod shown {
    use client_sdk::{DeviceState, Thermal};

    /// The state of the device; null where it is unknown. A condition on an unknown state does not hold.
    #[uniffi::remote(Record)]
    pub struct DeviceState {
        #[uniffi(default = None)]
        pub charging: Option<bool>,
        /// Whether traffic on the network is free of charge.
        #[uniffi(default = None)]
        pub unmetered: Option<bool>,
        /// Whether the device is unused.
        #[uniffi(default = None)]
        pub idle: Option<bool>,
        /// 0 to 100.
        #[uniffi(default = None)]
        pub battery_percent: Option<u8>,
        #[uniffi(default = None)]
        pub thermal: Option<Thermal>,
    }

    /// How warm the device is, in the levels of iOS.
    #[uniffi::remote(Enum)]
    pub enum Thermal {
        Nominal,
        Fair,
        /// The system slows down.
        Serious,
        Critical,
    }
}

/// Returns the state of the device. Called on the participant's thread before each step, and about once a second while
/// a training runs that can pause; must return immediately. While the policy forbids work, it is called again after
/// `ask_again_ms`, and immediately after `Participant.conditions_changed`.
#[cfg_attr(feature = "uniffi", uniffi::export(with_foreign))]
pub trait DeviceConditions: Send + Sync {
    /// The current state.
    ///
    /// # Errors
    /// [`CallbackError`]: then all of it is unknown.
    fn state(&self) -> Result<DeviceState, CallbackError>;
}

/// The condition that holds a participant up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct HeldUp {
    /// `charging`, `unmetered`, `idle`, `battery`, `thermal` or `data_cap`.
    pub condition: String,
    /// The same for a person to read.
    pub reason: String,
}

impl HeldUp {
    /// The name, a colon, and the reason.
    pub(crate) fn in_words(&self) -> String {
        format!("{}: {}", self.condition, self.reason)
    }
}

impl From<Unmet> for HeldUp {
    fn from(unmet: Unmet) -> Self {
        Self { condition: unmet.name().to_owned(), reason: unmet.to_string() }
    }
}

/// Bytes sent and received, without those of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "uniffi", derive(uniffi::Record))]
pub struct DataUse {
    /// In this day of UTC.
    pub sent_today: u64,
    pub received_today: u64,
    /// Ever with this journal.
    pub sent: u64,
    pub received: u64,
}

impl From<participant::DataUse> for DataUse {
    fn from(used: participant::DataUse) -> Self {
        let participant::DataUse { day: _, today, total } = used;
        Self { sent_today: today.sent, received_today: today.received, sent: total.sent, received: total.received }
    }
}

/// The effective policy, depending on whether the app reports the device's state.
pub(crate) fn policy(set: Option<Policy>, is_told: bool) -> Result<Policy, TributaryError> {
    let policy = set.unwrap_or_default();
    match policy.unmet(&DeviceState::default(), 0) {
        Some(unmet) if set.is_some() && !is_told => Err(TributaryError::Configuration(format!(
            "`device_conditions` can never hold: nobody tells what the device is like, and so it counts that {unmet}"
        ))),
        _ => Ok(policy),
    }
}

/// Reads the device's state from the app.
pub(crate) fn ask(conditions: &dyn DeviceConditions) -> DeviceState {
    call(|| conditions.state()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_device_that_cannot_be_asked_nothing_is_known() {
        struct Fails;
        impl DeviceConditions for Fails {
            fn state(&self) -> Result<DeviceState, CallbackError> {
                Err(CallbackError::Failed { reason: "no battery".to_owned() })
            }
        }
        assert_eq!(ask(&Fails), DeviceState::default());
    }

    #[test]
    fn a_policy_that_needs_to_be_told_is_refused_where_nobody_tells() {
        assert_eq!(policy(None, false), Ok(Policy::default()));
        assert_eq!(policy(Some(Policy::default()), true), Ok(Policy::default()));
        let error = policy(Some(Policy::default()), false).unwrap_err();
        assert!(matches!(&error, TributaryError::Configuration(text) if text.contains("not charging")), "{error:?}");
        let cap = Policy {
            charging: false,
            unmetered: false,
            idle: false,
            max_thermal: None,
            max_bytes_per_day: Some(5),
            ..Policy::default()
        };
        assert_eq!(policy(Some(cap), false), Ok(cap), "bytes are counted by the SDK");
    }
}
