//! Which device sums: what the operator asked for, what exists here, what was taken and why the others were not.
//!
//! A device is trusted only after its self-test. One that was asked for by name and is missing or fails is an error at
//! start; `auto` takes the best that passes, and the CPU is always there.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::cpu::CpuAggregator;
use crate::{AggregationError, Aggregator, self_test};

/// What the operator asked for: `auto` or `cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The best device that passes its self-test.
    #[default]
    Auto,
    /// The processor.
    Cpu,
}

/// Why a device's name is not a choice here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeviceChoiceError {
    /// The device is known, but this program was built without it.
    #[error("device \"{name}\" needs a program built with the feature \"{feature}\"; this one offers auto and cpu")]
    NotBuiltIn {
        /// What was asked for.
        name: String,
        /// The cargo feature that would bring it.
        feature: &'static str,
    },
    /// No such device.
    #[error("there is no device \"{name}\"; this program offers auto and cpu")]
    Unknown {
        /// What was asked for.
        name: String,
    },
}

impl FromStr for DeviceChoice {
    type Err = DeviceChoiceError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let kind = name.split(':').next().unwrap_or(name);
        match (name, kind) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            (_, "cuda") => Err(DeviceChoiceError::NotBuiltIn { name: name.to_owned(), feature: "cuda" }),
            (_, "wgpu") => Err(DeviceChoiceError::NotBuiltIn { name: name.to_owned(), feature: "wgpu" }),
            _ => Err(DeviceChoiceError::Unknown { name: name.to_owned() }),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
        })
    }
}

/// One line of the table of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReport {
    /// The device, as an operator would ask for it, or in full where it exists.
    pub device: String,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of a device when one was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It sums.
    Chosen,
    /// It does not, for this reason.
    NotChosen(String),
}

/// The device that sums, and the table that says why.
pub struct Selected {
    /// What sums.
    pub aggregator: Arc<dyn Aggregator>,
    /// Every known device, the chosen one first.
    pub report: Vec<DeviceReport>,
}

impl fmt::Debug for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected").field("aggregator", &self.aggregator.name()).field("report", &self.report).finish()
    }
}

/// Chooses a device, tests it and logs the choice.
///
/// `threads` is how many threads the CPU may use, 0 for as many as there are cores.
///
/// # Errors
/// [`AggregationError::Device`] when no device that may be chosen passes its self-test.
pub fn select(choice: DeviceChoice, threads: usize) -> Result<Selected, AggregationError> {
    let aggregator: Arc<dyn Aggregator> = match choice {
        DeviceChoice::Auto | DeviceChoice::Cpu => Arc::new(CpuAggregator::new(threads)?),
    };
    self_test::run(&*aggregator)?;
    let mut report = vec![DeviceReport { device: aggregator.name().to_owned(), verdict: Verdict::Chosen }];
    for device in ["cuda", "wgpu"] {
        let reason = format!("this program was built without the feature \"{device}\"");
        report.push(DeviceReport { device: device.to_owned(), verdict: Verdict::NotChosen(reason) });
    }
    tracing::info!(device = aggregator.name(), asked = %choice, "aggregation device chosen");
    Ok(Selected { aggregator, report })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_printed() {
        for name in ["auto", "cpu"] {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn a_device_that_is_not_built_in_names_its_feature() {
        for name in ["cuda", "cuda:1", "wgpu:llvmpipe"] {
            let message = name.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(message.contains("built with the feature") && message.contains(name), "{message}");
        }
        let message = "tpu".parse::<DeviceChoice>().unwrap_err().to_string();
        assert_eq!(message, "there is no device \"tpu\"; this program offers auto and cpu");
    }

    #[test]
    fn the_cpu_passes_its_self_test_and_leads_the_table() {
        let selected = select(DeviceChoice::Auto, 2).unwrap();
        assert!(selected.aggregator.name().starts_with("cpu ("));
        assert_eq!(selected.report[0].verdict, Verdict::Chosen);
        assert!(selected.report[1..].iter().all(|line| matches!(line.verdict, Verdict::NotChosen(_))));
    }
}
