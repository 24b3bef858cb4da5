//! The executable: parses the command line and runs the subcommand.
//!
//! One file per subcommand in `command/`; their output goes through `output`, their failures through `failure`. This
//! crate composes and presents, and leaves SQL and tensors to others.

mod allocator;
mod arguments;
mod command;
mod data;
mod device;
mod failure;
mod output;
mod parse;
mod privacy_input;
mod privacy_notes;
mod server;
mod signal;
mod silo;
mod table_file;
mod task_file;
mod task_input;
mod trainer;

use std::process::ExitCode;

use crate::command::Command;
use crate::failure::{Exit, Failure};
use crate::output::{Format, Output, Reporting};

/// Training on the CPU allocates and frees buffers all the time; this allocator keeps them (see docs/decisions).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match parse::cli() {
        Ok(cli) => cli,
        Err(error) => return misunderstood(&error),
    };
    if let Some(options) = cli.command.allocator() {
        allocator::start(options);
    }
    let output = Output::new(cli.format);
    let reporting = if cli.command.is_stream() { Reporting::Events } else { Reporting::Envelope };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if matches!(cli.command, Command::Serve(_) | Command::Work(_)) {
        runtime.max_blocking_threads(allocator::BLOCKING_THREADS);
    }
    let outcome = match runtime.enable_all().build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(cli.command.run(cli.log.as_deref(), output));
            // Training in progress is not waited for.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(Failure::caused(Exit::Internal, "cannot start the threads", &error)),
    };
    match outcome.and_then(|()| output::written(reporting)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure, reporting);
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Reports an invalid command line, or prints `--help` and `--version`.
fn misunderstood(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if !error.use_stderr() {
        return match printed {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let failure = Failure::caused(Exit::Io, "stdout cannot be written", &error);
                Output::new(Format::Text).failure(&failure, Reporting::Envelope);
                ExitCode::from(Exit::Io as u8)
            }
        };
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    let is_json = arguments.iter().any(|argument| argument == "--format=json")
        || arguments.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json");
    if is_json {
        let failure = Failure::new(Exit::Usage, error.to_string().trim_end());
        Output::new(Format::Json).failure_for_programs(&failure, Reporting::Envelope);
    }
    ExitCode::from(Exit::Usage as u8)
}
