//! Common parts of backup, restore and check: the choice of the coordinator's data, progress, and failures.

use std::path::PathBuf;

use coordinator::Parts;
use coordinator::backup::{BackupError, Progress};
use coordinator::config::Config;
use indicatif::{ProgressBar, ProgressStyle};

use crate::command::serve;
use crate::failure::{Exit, Failure, Outcome, chain};
use crate::output::Output;

/// The data of which coordinator. Without a flag: what the defaults and the environment say, as for `serve`.
#[derive(clap::Args)]
pub(super) struct DataSource {
    /// The coordinator's TOML file, see docs/config/coordinator.toml [default: the defaults and the environment]
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    config: Option<PathBuf>,
    /// The folder of a coordinator that was started with --dev
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl DataSource {
    pub(super) fn config(&self) -> Outcome<Config> {
        match (&self.config, &self.data_dir) {
            (_, Some(folder)) => serve::dev_config(folder),
            (Some(file), None) => serve::load(file),
            (None, None) => {
                Config::load(None, serve::environment()?).map_err(|error| Failure::new(Exit::Configuration, error))
            }
        }
    }

    /// The file that such a coordinator is configured by, if there is one.
    pub(super) fn config_file(&self) -> Option<&PathBuf> {
        self.config.as_ref()
    }
}

/// The parts of these commands. Called before they read keys: a core dump would hold them.
pub(super) fn parts() -> Outcome<Parts> {
    coordinator::forbid_core_dumps();
    Parts::system().map_err(|error| serve::start_failure(&error))
}

/// Progress of a command: a bar on a terminal, an event for each percent for programs, otherwise silent.
pub(super) struct ProgressReporter {
    output: Output,
    bar: ProgressBar,
    last: Option<(&'static str, u64)>,
}

#[derive(serde::Serialize)]
struct ProgressEvent {
    stage: &'static str,
    done: u64,
    of: u64,
}

impl ProgressReporter {
    pub(super) fn new(output: Output) -> Self {
        let bar = if output.is_live() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{msg:6} {bar:40} {human_pos} of {human_len}");
        Self { output, bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())), last: None }
    }

    pub(super) fn show(&mut self, Progress { stage, done, of }: Progress) {
        self.bar.set_message(stage.as_str());
        self.bar.set_length(of);
        self.bar.set_position(done);
        let percent = (stage.as_str(), done * 100 / of.max(1));
        if self.last != Some(percent) {
            self.last = Some(percent);
            self.output.event("progress", &ProgressEvent { stage: stage.as_str(), done, of });
        }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The failure of a backup, a restore or a check.
pub(super) fn failure(error: &BackupError) -> Failure {
    let exit = match error {
        stored if stored.is_damage() => Exit::Damaged,
        BackupError::OtherTools => Exit::Elsewhere,
        BackupError::Database(_) | BackupError::InMemory(_) | BackupError::Seal(_) | BackupError::NoKey(_) => {
            Exit::Configuration
        }
        BackupError::NoDatabase(_) => Exit::NotFound,
        BackupError::NoBackup { .. } => Exit::Data,
        BackupError::Occupied(_) => Exit::Conflict,
        BackupError::Restless(_) => Exit::Unavailable,
        BackupError::Damaged(_) | BackupError::Unauthenticated { .. } => Exit::Damaged,
        BackupError::Locked(_) | BackupError::Store(_) | BackupError::Io { .. } => Exit::Io,
    };
    Failure::new(exit, chain(error))
}
