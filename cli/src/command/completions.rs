//! `tributary completions`: scripts with which a shell completes this command line.

use std::io;

use clap_complete::{Shell, generate};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;

/// Arguments of `tributary completions`.
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// Target shell, for example bash: tributary completions bash > /etc/bash_completion.d/tributary
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(serde::Serialize)]
struct Script {
    shell: String,
    script: String,
}

impl Completions {
    pub(super) fn run(self, mut cli: clap::Command, output: Output) -> Outcome {
        let mut script = Vec::new();
        generate(self.shell, &mut cli, "tributary", &mut script);
        let script = String::from_utf8(script).map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
        let script = Script { shell: self.shell.to_string(), script };
        output.must_answer(&script, || script.script.clone()).map_err(not_printed)
    }
}

fn not_printed(error: io::Error) -> Failure {
    Failure::caused(Exit::Io, "the script cannot be printed", &error)
}
