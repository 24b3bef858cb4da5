//! `tributary manual`: manual pages of this command line.

use std::path::PathBuf;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;

/// Arguments of `tributary manual`.
#[derive(clap::Args)]
pub(crate) struct Manual {
    /// Output folder, created if missing, for one page per subcommand, for example ~/.local/share/man/man1
    folder: PathBuf,
}

#[derive(serde::Serialize)]
struct Pages {
    folder: PathBuf,
}

impl Manual {
    pub(super) fn run(self, cli: clap::Command, output: Output) -> Outcome {
        let cannot = || Failure::because(Exit::Io, format!("cannot write to {}", self.folder.display()));
        std::fs::create_dir_all(&self.folder).map_err(cannot())?;
        clap_mangen::generate_to(cli, &self.folder).map_err(cannot())?;
        let pages = Pages { folder: self.folder };
        output
            .answer(&pages, || format!("The pages are in {}; `man tributary` shows the first", pages.folder.display()));
        Ok(())
    }
}
