//! `tributary fsck`: looks for damage in a coordinator's stored data, and repairs it where possible.

use std::path::PathBuf;

use coordinator::fsck::{Finding, FsckReport, Repair};

use crate::command::keeping::{DataSource, ProgressReporter, failure, parts};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, number};

/// Arguments of `tributary fsck`.
#[derive(clap::Args)]
pub(crate) struct Fsck {
    #[command(flatten)]
    whose: DataSource,
    /// Put good copies into the place of missing and damaged blobs
    #[arg(long)]
    repair: bool,
    /// Take the copies from this backup, too
    #[arg(long, value_name = "DIR", requires = "repair")]
    from: Option<PathBuf>,
}

impl Fsck {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let config = self.whose.config()?;
        let repair = match (self.repair, &self.from) {
            (false, _) => Repair::No,
            (true, None) => Repair::Yes,
            (true, Some(folder)) => Repair::From(folder),
        };
        let mut shown = ProgressReporter::new(output);
        let checked = coordinator::check(&config, &parts()?, repair, &mut |progress| shown.show(progress)).await;
        shown.end();
        let report = checked.map_err(|error| failure(&error))?;
        output.event("checked", &report);
        output.line(told(&report));
        match report.damage() {
            0 => Ok(()),
            damage => {
                Err(Failure::new(Exit::Damaged, format!("{damage} of the findings are damage that is not repaired")))
            }
        }
    }
}

fn told(report: &FsckReport) -> String {
    let FsckReport { blobs, ledgers, events, findings } = report;
    let mut text = String::new();
    for Finding { what, meaning, remedy, repaired, .. } in findings {
        text += what;
        if let Some(source) = repaired {
            text += &format!("\n  repaired  from {source}");
        }
        text += &format!("\n  meaning   {meaning}\n  to do     {remedy}\n");
    }
    let words = if findings.is_empty() { "Nothing is wrong" } else { "That is all" };
    text + &format!(
        "{words}: {} blobs, {} privacy ledgers and {} entries of the audit log were checked.",
        number(*blobs as u64),
        number(*ledgers as u64),
        number(*events)
    )
}
