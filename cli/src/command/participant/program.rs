//! A participant whose trainer is a program.

use std::path::PathBuf;
use std::time::Duration;

use client_sdk::Participant;
use client_sdk::process_trainer::{ProcessTrainer, Program, ProgramEvent, Starts};

use super::meters::ProgramMeters;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::silo::report::PROGRESS;

/// The program that trains, in place of the ready models.
#[derive(clap::Args)]
pub(crate) struct ProgramArgs {
    /// Train by this program, a line for the shell, instead of on --data; `{processes}` stands for --trainer-processes
    #[arg(long, value_name = "COMMAND", requires = "trainer_dir", conflicts_with = "data", help_heading = "Trainer")]
    trainer: Option<String>,
    /// Folder for the program's jobs, for this participant alone
    #[arg(long, value_name = "DIR", requires = "trainer", help_heading = "Trainer")]
    trainer_dir: Option<PathBuf>,
    /// How many processes the program shall have, 1 to 16: a number, or a command that prints one, asked before each start
    #[arg(long, value_name = "N|COMMAND", default_value = "1", help_heading = "Trainer")]
    trainer_processes: String,
    /// Start the program once, for the jobs of all rounds: it takes them from the folder in TRIBUTARY_JOBS
    #[arg(long, requires = "trainer", help_heading = "Trainer")]
    trainer_keep: bool,
    /// Train by a program that something else starts, Slurm for example: it takes the jobs of this folder, for this participant alone
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["trainer", "trainer_dir", "trainer_processes", "data"],
        help_heading = "Trainer"
    )]
    trainer_attach: Option<PathBuf>,
    /// Start the program again after so many seconds without progress; one that something else starts is no longer waited for
    /// [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Trainer")]
    trainer_stall: Option<u64>,
    /// Number of training examples that the coordinator is told until the program has said it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Trainer")]
    trainer_examples: u64,
}

/// Longer than a program has between being asked to end and being killed.
const ENDING: Duration = Duration::from_secs(15);

impl ProgramArgs {
    /// Waits until what the participant has started has ended with it.
    pub(super) async fn end(&self, participant: &Participant) {
        if self.trainer.is_some() {
            let _ = tokio::time::timeout(ENDING, participant.trainer_rests()).await;
        }
    }

    /// The trainer, if a program was named.
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
        let mut meters = ProgramMeters::default();
        Ok(Some(trainer.on_event(move |event| {
            meters.note(event);
            tell(output, event);
        })))
    }
}

fn tell(output: Output, event: &ProgramEvent) {
    match event {
        ProgramEvent::Started { start } => {
            output.event("program_started", &serde_json::json!({ "start": start }));
            if *start > 1 {
                output.line(format!("the program is started again (start {start})"));
            }
        }
        ProgramEvent::Progress(progress) => {
            let (step, of) = (progress.step, progress.of);
            let (loss, rate) = (progress.loss, progress.samples_per_s);
            output.event(PROGRESS, progress);
            let of = of.map_or_else(String::new, |of| format!(" of {of}"));
            let loss = loss.map_or_else(String::new, |loss| format!(", loss {loss:.4}"));
            let rate = rate.map_or_else(String::new, |rate| format!(", {rate:.0} examples/s"));
            output.line(format!("step {step}{of}{loss}{rate}"));
        }
        ProgramEvent::Failed { reason } => {
            output.event("program_failed", &serde_json::json!({ "reason": reason }));
            output.note(reason);
        }
        // Later versions of the SDK may tell more.
        _ => {}
    }
}
