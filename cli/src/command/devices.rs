//! `tributary devices`: the devices that a coordinator could sum on here, and its choice.

use coordinator::{DeviceReport, Verdict, config::Config};

use crate::command::serve;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::output::{Cells, Table};

/// Arguments of `tributary devices`.
#[derive(clap::Args)]
pub(crate) struct Devices {
    /// Device setting to check: auto, cpu, cuda[:N] or wgpu[:NAME]
    #[arg(long, default_value = "auto")]
    device: String,
}

#[derive(serde::Serialize)]
struct Row {
    device: String,
    chosen: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<DeviceReport> for Row {
    fn from(report: DeviceReport) -> Self {
        let reason = match report.verdict {
            Verdict::Chosen => None,
            Verdict::NotChosen(reason) => Some(reason),
        };
        Self { device: report.device, chosen: reason.is_none(), reason }
    }
}

impl Devices {
    pub(super) fn run(self, output: Output) -> Outcome {
        let mut config = Config::default();
        config.aggregation.device = self.device;
        config.check().map_err(|error| Failure::new(Exit::Usage, format!("--device: {error}")))?;
        let reports = coordinator::devices(&config).map_err(|error| serve::start_failure(&error))?;
        let rows: Vec<Row> = reports.into_iter().map(Row::from).collect();
        output.answer(&rows, || {
            let mut table = Table::new(&[("DEVICE", Cells::Text), ("CHOSEN", Cells::Text), ("WHY NOT", Cells::Words)]);
            for row in &rows {
                let chosen = if row.chosen { "yes" } else { "no" };
                table.row(vec![row.device.clone(), chosen.to_owned(), row.reason.clone().unwrap_or_default()]);
            }
            table.render(output.width(), "none")
        });
        Ok(())
    }
}
