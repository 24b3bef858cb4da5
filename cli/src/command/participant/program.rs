//! A participant whose trainer is a program.

use std::path::PathBuf;
use std::time::Duration;

use client_sdk::Participant;
use client_sdk::process_trainer::{ProcessTrainer, Program, ProgramEvent, Progress, Starts};
use indicatif::{ProgressBar, ProgressStyle};

use super::meters::ProgramMeters;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::silo::report::PROGRESS;

/// The training program, which replaces the ready models.
#[derive(clap::Args)]
pub(crate) struct ProgramArgs {
    /// Shell command that trains, instead of a ready model on --data; `{processes}` expands to --trainer-processes
    #[arg(long, value_name = "COMMAND", requires = "trainer_dir", conflicts_with = "data", help_heading = "Trainer")]
    trainer: Option<String>,
    /// Folder for the program's jobs; must not be shared with other participants
    #[arg(long, value_name = "DIR", requires = "trainer", help_heading = "Trainer")]
    trainer_dir: Option<PathBuf>,
    /// Number of processes of the program, 1 to 16: a number, or a command that prints one before each start
    #[arg(long, value_name = "N|COMMAND", default_value = "1", help_heading = "Trainer")]
    trainer_processes: String,
    /// Start the program once for all rounds; it reads jobs from the folder in TRIBUTARY_JOBS
    #[arg(long, requires = "trainer", help_heading = "Trainer")]
    trainer_keep: bool,
    /// Job folder of a program started elsewhere, for example by Slurm; must not be shared with other participants
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["trainer", "trainer_dir", "trainer_processes", "data"],
        help_heading = "Trainer"
    )]
    trainer_attach: Option<PathBuf>,
    /// Restart the program after this many seconds without progress, or stop waiting for one started elsewhere
    /// [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Trainer")]
    trainer_stall: Option<u64>,
    /// Number of training examples to report until the program reports it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Trainer")]
    trainer_examples: u64,
}

/// Exceeds the time between a program's termination signal and its kill.
const ENDING: Duration = Duration::from_secs(15);

impl ProgramArgs {
    /// Waits until the participant's trainer has ended with it, and jobs are no longer offered.
    pub(super) async fn end(&self, participant: &Participant) {
        if self.trainer.is_some() || self.trainer_attach.is_some() {
            let _ = tokio::time::timeout(ENDING, participant.trainer_rests()).await;
        }
    }

    /// The trainer, if a program is configured.
    pub(super) fn open(&self, output: Output) -> Outcome<Option<ProcessTrainer>> {
        let (mut program, folder) = match (&self.trainer, &self.trainer_dir, &self.trainer_attach) {
            (Some(command), Some(folder), _) => (Program::new(command), folder),
            (_, _, Some(folder)) => (Program::attached(), folder),
            _ => return Ok(None),
        };
        if self.trainer_keep {
            program.starts = Starts::Once;
        }
        program.processes.clone_from(&self.trainer_processes);
        program.stall = self.trainer_stall.map(Duration::from_secs);
        let trainer = ProcessTrainer::open(program, folder, self.trainer_examples).map_err(|error| {
            let exit = if error.kind() == std::io::ErrorKind::InvalidInput { Exit::Usage } else { Exit::Io };
            Failure::new(exit, format!("{}: {error}", folder.display()))
        })?;
        let (mut meters, mut shown) = (ProgramMeters::default(), Shown { output, bar: ProgressBar::hidden() });
        Ok(Some(trainer.on_event(move |event| {
            meters.note(event);
            shown.tell(event);
        })))
    }
}

/// Output about a program.
struct Shown {
    output: Output,
    /// Shown on a terminal while the program reports its number of steps.
    bar: ProgressBar,
}

impl Shown {
    fn tell(&mut self, event: &ProgramEvent) {
        let output = self.output;
        match event {
            ProgramEvent::Started { start } => {
                self.clear();
                output.event("program_started", &serde_json::json!({ "start": start }));
                if *start > 1 {
                    output.line(format!("the program was restarted (start {start})"));
                }
            }
            ProgramEvent::Progress(progress) => {
                output.event(PROGRESS, progress);
                self.progress(progress);
            }
            ProgramEvent::Failed { reason } => {
                self.clear();
                output.event("program_failed", &serde_json::json!({ "reason": reason }));
                output.note(reason);
            }
            // Later versions of the SDK may tell more.
            _ => {}
        }
    }

    fn progress(&mut self, progress: &Progress) {
        let loss = progress.loss.map_or_else(String::new, |loss| format!(", loss {loss:.4}"));
        let rate = progress.samples_per_s.map_or_else(String::new, |rate| format!(", {rate:.0} examples/s"));
        match progress.of.filter(|of| self.output.is_live() && progress.step < *of) {
            Some(of) => {
                if self.bar.is_hidden() {
                    let style = ProgressStyle::with_template("{bar:40} step {pos} of {len}{msg}");
                    self.bar = ProgressBar::new(of).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                }
                self.bar.set_length(of);
                self.bar.set_position(progress.step);
                self.bar.set_message(format!("{loss}{rate}"));
            }
            None => {
                self.clear();
                let of = progress.of.map_or_else(String::new, |of| format!(" of {of}"));
                self.output.line(format!("step {}{of}{loss}{rate}", progress.step));
            }
        }
    }

    fn clear(&mut self) {
        std::mem::replace(&mut self.bar, ProgressBar::hidden()).finish_and_clear();
    }
}
