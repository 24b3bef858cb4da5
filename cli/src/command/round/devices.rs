//! `tributary round devices`: which devices of which coordinators summed rounds, how many, and why it was these.

use wire::inspect::DeviceView;
use wire::{Timestamp, route};

use super::words::because;
use crate::failure::Outcome;
use crate::output::{Cells, Output, Table, when};
use crate::server::{PartArgs, given, none_of};

/// Arguments of `tributary round devices`.
#[derive(clap::Args)]
pub(crate) struct Devices {
    /// Only the rounds of this task, by id or name
    #[arg(long)]
    task: Option<String>,
    /// Only sums released at or after this time: RFC 3339 or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = coordinator::parse_time)]
    since: Option<Timestamp>,
    #[command(flatten)]
    part: PartArgs,
}

impl Devices {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let narrow = given([("task", self.task), ("since", self.since.map(|since| since.0.to_string()))]);
        let part = self.part.server.client()?.part::<DeviceView>(route::DEVICES, &narrow, self.part).await?;
        let nothing = none_of(&narrow, "No round was summed yet.");
        output.answer_list(&part, |devices, terminal| table(devices, terminal, nothing));
        Ok(())
    }
}

fn table(devices: &[DeviceView], terminal: Option<usize>, nothing: &str) -> String {
    let mut table = Table::new(&[
        ("DEVICE", Cells::Text),
        ("COORDINATOR", Cells::Text),
        ("SUMS", Cells::Number),
        ("LAST", Cells::Text),
        ("ROUND", Cells::Number),
        ("TASK", Cells::Text),
        ("REASON", Cells::Words),
    ])
    .dispensable(&["TASK", "ROUND", "LAST"]);
    for device in devices {
        table.row(vec![
            device.device.clone(),
            device.coordinator.clone().unwrap_or_default(),
            device.sums.to_string(),
            when(device.last.at),
            device.last.round.to_string(),
            device.last.task.to_string(),
            why(device),
        ]);
    }
    table.render(terminal, nothing)
}

/// How often a device added or unmasked, for each reason, and which failure was the last.
fn why(device: &DeviceView) -> String {
    let mut words = Vec::new();
    for (did, counts) in [("added", &device.summed_because), ("unmasked", &device.unmasked_because)] {
        words.extend(counts.iter().map(|(reason, count)| format!("{did} {count}: {}", because(*reason))));
    }
    words.extend(device.last_failure.iter().map(|failure| format!("failed last: {failure}")));
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::fits_eighty;

    #[test]
    fn a_device_says_what_it_did_for_whom_and_why() {
        let last = json!({ "task": "01934c2e-7d3a-7b1c-9f00-0123456789ab", "round": 12, "attempt": 1, "at": 0 });
        let told = |device: serde_json::Value| -> DeviceView { serde_json::from_value(device).unwrap() };
        let devices = [
            told(json!({
                "device": "cpu (avx512, 2 threads)", "coordinator": "tributary-7f9c6d5b4-x2x9q", "sums": 1234,
                "summed_because": { "transfer_costs_more": 1234 }, "unmasked_because": { "chosen_failed": 2 },
                "last": last, "last_failure": "cuda:0 NVIDIA H200: it gave a wrong answer",
            })),
            told(json!({
                "device": "cuda:0 NVIDIA H200", "sums": 1, "summed_because": {}, "unmasked_because": {}, "last": last,
            })),
        ];
        let (whole, narrow) = (table(&devices, None, ""), table(&devices, Some(80), ""));
        assert!(fits_eighty(&narrow), "{narrow}");
        for words in ["added 1234", "the way to the GPU costs more", "unmasked 2", "it gave a wrong answer"] {
            assert!(whole.contains(words), "{words}: {whole}");
        }
        assert!(whole.contains("tributary-7f9c6d5b4-x2x9q") && whole.contains("01934c2e-7d3a"), "{whole}");
        assert!(narrow.contains("unmasked 2"), "{narrow}");
        assert_eq!(why(&devices[1]), "");
        assert_eq!(table(&[], None, "No round was summed yet."), "No round was summed yet.");
    }
}
