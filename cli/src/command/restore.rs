//! `tributary restore`: puts a backup into the place of a coordinator that does not run.

use std::path::PathBuf;

use coordinator::RestoreOptions;
use coordinator::backup::RestoreReport;

use crate::command::keeping::{DataSource, ProgressReporter, failure, parts};
use crate::failure::Outcome;
use crate::output::{Output, number, when};

/// Arguments of `tributary restore`.
#[derive(clap::Args)]
pub(crate) struct Restore {
    /// Folder that `tributary backup` wrote
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    whose: DataSource,
    /// Put it into the place of a database that is there; that one is kept under another name
    #[arg(long)]
    replace: bool,
    /// Restore a backup that was not made with this coordinator's seal.key, by an earlier program, or that was changed
    #[arg(long)]
    unauthenticated: bool,
}

impl Restore {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let config = self.whose.config()?;
        let mut shown = ProgressReporter::new(output);
        let options = RestoreOptions { replace: self.replace, unauthenticated: self.unauthenticated };
        let restored = coordinator::restore(&config, &parts()?, &self.folder, options, &mut |progress| {
            shown.show(progress);
        })
        .await;
        shown.end();
        let report = restored.map_err(|error| failure(&error))?;
        output.event("restored", &report);
        output.line(told(&report));
        Ok(())
    }
}

fn told(report: &RestoreReport) -> String {
    let RestoreReport { made_at, blobs, copied, replaced, lacks, paused } = report;
    let mut text = format!(
        "Restored the backup of {}: the rows, and {} blobs, {} of which were not there\n",
        when(*made_at),
        number(*blobs as u64),
        number(*copied as u64)
    );
    if let Some(replaced) = replaced {
        text +=
            &format!("The database that was there is now {}: remove it when it is not needed\n", replaced.display());
    }
    for lack in lacks {
        text += &format!("The backup lacks {lack}\n");
    }
    text += "\nBefore `tributary serve`, see that seal.key, seal.ledgers/ and the authority's files are in their places. Then\n\
             - what was revoked since the backup (participants, tokens) has to be revoked again, and tokens used since are unused;\n\
             - participants that have gone on since take no part in rounds that they have seen: `tributary task show` says so, and\n  \
             `tributary task rebase` goes on beyond;\n\
             - a private task pauses where its ledger outside the database (seal.ledgers/) has releases that this one lacks: cancel it\n";
    for task in paused {
        text += &format!("Paused: task {} ({}): {}\n", task.name, task.task, task.why);
    }
    text
}
