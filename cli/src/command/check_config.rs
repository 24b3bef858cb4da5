//! `tributary check-config`: whether `serve` would take this configuration, and the effective one.

use std::path::PathBuf;

use coordinator::{DeviceReport, Verdict};

use crate::command::serve;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;

/// Arguments of `tributary check-config`.
#[derive(clap::Args)]
pub(crate) struct CheckConfig {
    /// TOML file, see docs/config/coordinator.toml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(serde::Serialize)]
struct Checked {
    /// The effective configuration, without secrets.
    config: toml::Table,
    /// The devices that this build knows, and the selected one.
    devices: Vec<String>,
}

impl CheckConfig {
    pub(super) fn run(self, output: Output) -> Outcome {
        let config = serve::load(&self.config)?;
        let devices = coordinator::devices(&config).map_err(|error| serve::start_failure(&error))?;
        let text = config.redacted();
        let checked = Checked {
            config: toml::from_str(&text).map_err(Failure::because(Exit::Internal, "the configuration as TOML"))?,
            devices: devices.iter().map(described).collect(),
        };
        output.document(&checked, || {
            let devices: String = checked.devices.iter().map(|device| format!("# device: {device}\n")).collect();
            format!(
                "# {} can be used. With all defaults and overrides it says:\n{devices}\n{text}",
                self.config.display()
            )
        });
        Ok(())
    }
}

fn described(report: &DeviceReport) -> String {
    match &report.verdict {
        Verdict::Chosen => format!("{}: chosen", report.device),
        Verdict::NotChosen(why) => format!("{}: not chosen, {why}", report.device),
    }
}
