//! `tributary backup`: copies a coordinator's essential data, while it serves.

use std::path::PathBuf;

use coordinator::backup::BackupReport;
use coordinator::{ApartFile, files_apart};

use crate::command::keeping::{DataSource, ProgressReporter, failure, parts};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, bytes, number, when};

/// Arguments of `tributary backup`.
#[derive(clap::Args)]
pub(crate) struct Backup {
    /// Folder of the backup; one that holds a backup is brought up to date
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    whose: DataSource,
    /// Copy blobs even where they could be linked (a link takes no room, but is lost with the disk)
    #[arg(long)]
    copy: bool,
}

#[derive(serde::Serialize)]
struct BackedUp<'a> {
    folder: &'a PathBuf,
    #[serde(flatten)]
    report: &'a BackupReport,
    /// Files that backups leave out.
    keep_apart: &'a [ApartFile],
}

impl Backup {
    pub(super) async fn run(self, output: Output) -> Outcome {
        let config = self.whose.config()?;
        let mut shown = ProgressReporter::new(output);
        let made = coordinator::back_up(&config, &parts()?, &self.folder, !self.copy, &mut |progress| {
            shown.show(progress);
        })
        .await;
        shown.end();
        let report = made.map_err(|error| failure(&error))?;
        let mut apart = files_apart(&config);
        apart.extend(self.whose.config_file().map(|path| ApartFile { path: path.clone(), why: "the configuration" }));
        output.event("backed_up", &BackedUp { folder: &self.folder, report: &report, keep_apart: &apart });
        output.line(told(&self.folder, &report, &apart));
        if report.lacks.is_empty() {
            return Ok(());
        }
        let lacks = report.lacks.join("\n");
        Err(Failure::new(
            Exit::Damaged,
            format!(
                "the backup was made, but lacks what is missing or damaged in the coordinator's store:\n{lacks}\n\
                 `tributary fsck` says what it means, and `tributary fsck --repair --from DIR` takes it from another backup"
            ),
        ))
    }
}

fn told(folder: &std::path::Path, report: &BackupReport, apart: &[ApartFile]) -> String {
    let BackupReport { made_at, rows_bytes, blobs, blobs_bytes, reused, linked, copied, removed, left_out, .. } =
        report;
    let mut text = format!(
        "Backup of {} in {}\nRows   {}\nBlobs  {} ({}): {} were there, {} linked, {} copied\n",
        when(*made_at),
        folder.display(),
        bytes(*rows_bytes),
        number(*blobs as u64),
        bytes(*blobs_bytes),
        number(*reused as u64),
        number(*linked as u64),
        number(*copied as u64),
    );
    if *removed > 0 {
        text += &format!("Files of the backup before that are needed no more: {removed} removed\n");
    }
    if *left_out > 0 {
        text += &format!(
            "Left out: {} inputs and partial sums of private tasks without masks; after a restore their rounds fail and are charged\n",
            number(*left_out as u64)
        );
    }
    if *linked > 0 {
        text += "Linked blobs are the coordinator's own files: copy the folder to another disk, or use --copy\n";
    }
    text += "\nNo key is in it. Keep these apart from it, and from each other where they can be:\n";
    for ApartFile { path, why } in apart {
        text += &format!("  {}  ({why})\n", path.display());
    }
    text + "Never copy seal.releases/: its files are destroyed so that noise cannot be taken off a release.\n"
}
