//! The device of `--device`, on which models are trained and scored.

use client_sdk::train::{Device, DeviceChoice, DeviceError};

use crate::failure::{Exit, Failure, Outcome};

/// Opens the chosen device; `auto` falls back to the CPU if this program cannot use a GPU here.
///
/// # Errors
/// [`Exit::Device`]: the device is absent, or this program was built without support for it.
pub(crate) fn open(choice: DeviceChoice) -> Outcome<Device> {
    choice.open().map_err(|error| Failure::new(Exit::Device, told(&error)))
}

/// Explains the error, and names the feature as this program calls it.
fn told(error: &DeviceError) -> String {
    if let DeviceError::NotCompiledIn { device } = error {
        return format!(
            "--device {device}: this program was built without it; its feature is `train-{device}` (docs/GPU.md)"
        );
    }
    format!("--device: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_as_this_program_names_it() {
        let said = told(&DeviceError::NotCompiledIn { device: "cuda" });
        assert!(said.contains("--device cuda") && said.contains("`train-cuda`"), "{said}");
        let said = told(&DeviceError::Unavailable { device: "cuda", reason: "no driver".to_owned() });
        assert!(said.contains("no driver"), "{said}");
        assert!(open(DeviceChoice::Cpu).is_ok());
    }
}
