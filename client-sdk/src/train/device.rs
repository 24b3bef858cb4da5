//! Selection of the training device.
//!
//! The features `cuda` and `metal` compile in CUDA and Metal. Choosing one that is unavailable is an error. Only `auto`
//! falls back to another device.

use serde::{Deserialize, Serialize};

/// Where a model is trained and scored.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Device {
    /// The SDK's own passes, on one core.
    #[default]
    Cpu,
    /// A device of candle: a GPU, or candle's own CPU, which is slower than the SDK's.
    #[cfg(feature = "candle")]
    Candle(candle_core::Device),
}

/// The device that a configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceChoice {
    /// A GPU if this build and machine have one, otherwise the CPU.
    #[default]
    Auto,
    Cpu,
    /// The first NVIDIA GPU.
    Cuda,
    Metal,
}

/// Reasons the chosen device is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This build cannot use it.
    #[error("device `{device}` was asked for, but this build has no support for it: build with the feature `{device}`")]
    NotCompiledIn {
        /// Name of the device and of the feature.
        device: &'static str,
    },
    /// This machine does not have it.
    #[error("device `{device}` was asked for, but cannot be used on this machine: {reason}")]
    Unavailable {
        device: &'static str,
        /// The driver's message.
        reason: String,
    },
    /// The name is not a device.
    #[error("unknown device {0:?}; choose auto, cpu, cuda or metal")]
    Unknown(String),
}

impl std::str::FromStr for DeviceChoice {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        match name {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda),
            "metal" => Ok(Self::Metal),
            _ => Err(DeviceError::Unknown(name.to_owned())),
        }
    }
}

impl DeviceChoice {
    /// Opens the device.
    ///
    /// # Errors
    /// [`DeviceError`] if a GPU was chosen by name and is unavailable.
    pub fn open(self) -> Result<Device, DeviceError> {
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda => cuda(),
            Self::Metal => metal(),
            Self::Auto => Ok(cuda().or_else(|_| metal()).unwrap_or(Device::Cpu)),
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<Device, DeviceError> {
    open("cuda", candle_core::Device::new_cuda)
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Device, DeviceError> {
    Err(DeviceError::NotCompiledIn { device: "cuda" })
}

#[cfg(feature = "metal")]
fn metal() -> Result<Device, DeviceError> {
    open("metal", candle_core::Device::new_metal)
}

#[cfg(not(feature = "metal"))]
fn metal() -> Result<Device, DeviceError> {
    Err(DeviceError::NotCompiledIn { device: "metal" })
}

#[cfg(any(feature = "cuda", feature = "metal"))]
fn open(
    device: &'static str,
    open: fn(usize) -> candle_core::Result<candle_core::Device>,
) -> Result<Device, DeviceError> {
    match open(0) {
        Ok(device) => Ok(Device::Candle(device)),
        Err(error) => Err(DeviceError::Unavailable { device, reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_there_and_auto_always_finds_something() {
        assert!(matches!(DeviceChoice::Cpu.open(), Ok(Device::Cpu)));
        assert!(DeviceChoice::Auto.open().is_ok());
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        for (name, compiled_in) in [("cuda", cfg!(feature = "cuda")), ("metal", cfg!(feature = "metal"))] {
            let opened = name.parse::<DeviceChoice>().unwrap().open();
            if !compiled_in {
                assert!(opened.unwrap_err().to_string().contains(&format!("feature `{name}`")));
            }
        }
        assert!("tpu".parse::<DeviceChoice>().unwrap_err().to_string().contains("auto, cpu, cuda or metal"));
    }
}
