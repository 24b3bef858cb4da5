//! The withdrawal of a participant at its own request.

use crate::app::callback::refuse_in_callback;
use crate::app::callbacks::Callbacks;
use crate::error::TributaryError;
use crate::participant::{DeviceReports, builder};

/// Withdraws this device's participant while it is stopped: the coordinator revokes it for good. Returns the
/// coordinator's signed statement about the rounds and versions that contain its updates, as a JSON object of
/// `statement` and `signature`, which have been verified: store it as evidence. `options` and `callbacks` are those of
/// `Participant.start`.
///
/// Waits for the coordinator, for some minutes at most. After an error, and for another statement, it may be repeated.
/// The journal stays as it is; delete it to delete the device's own models.
///
/// # Errors
/// [`TributaryError::Configuration`], [`TributaryError::Journal`] (also while a participant has the journal),
/// [`TributaryError::Enrollment`], [`TributaryError::Failed`], [`TributaryError::InCallback`].
#[cfg_attr(feature = "uniffi", uniffi::export)]
pub fn withdraw(options: String, callbacks: Callbacks) -> Result<String, TributaryError> {
    refuse_in_callback()?;
    // No device state is needed to withdraw.
    let (builder, ..) = builder(options, callbacks, DeviceReports::WithTicks)?;
    let signed = client_sdk::runner::withdraw(builder).map_err(|error| TributaryError::from(&error))?;
    serde_json::to_string(&signed).map_err(|error| TributaryError::Defect(error.to_string()))
}
