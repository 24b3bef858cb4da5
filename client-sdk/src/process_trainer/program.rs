//! The command to run, and its limits.

use std::process::Command;
use std::time::Duration;

use super::job_folder::JobFolder;

/// Most processes that `{processes}` may stand for.
const MOST_PROCESSES: u32 = 16;
const PROCESSES: &str = "{processes}";
/// A folder may hold so many models, and so much more.
const MODELS: u64 = 16;
const MORE: u64 = 1 << 30;

/// The component that starts a program, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Starts {
    /// The trainer, anew for each job, which the program finds in `TRIBUTARY_JOB`.
    #[default]
    EachJob,
    /// The trainer, once, for a program with a slow start: it takes the jobs of the folder in `TRIBUTARY_JOBS`, one after the other.
    Once,
    /// An external scheduler such as Slurm. Its program takes jobs one after the other. The trainer leaves processes to
    /// it.
    Elsewhere,
}

/// A program that trains, and its limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Program {
    /// A line for the shell; `{processes}` stands for their number. Empty if something else starts the program.
    pub command: String,
    /// The component that starts the program: the trainer, for each job, by default.
    pub starts: Starts,
    /// Number of processes of the program, 1 to 16: a number, or a shell command that prints one, which runs before
    /// each start. 1 by default.
    pub processes: String,
    /// Restarts the program after this time without a line of progress or a change of its checkpoint. By default a
    /// silent program may run until its round's deadline.
    pub stall: Option<Duration>,
    /// Between the request to end (`SIGTERM`) and the end (`SIGKILL`); 10 s by default.
    pub grace: Duration,
    /// Maximum number of restarts after failures in one job. Default: 3. An externally started program is not restarted.
    pub restarts: u32,
    /// Most bytes in a job's folder; 16 models and 1 GiB by default.
    pub folder_max_bytes: Option<u64>,
}

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrongProgram {
    /// The command is empty.
    #[error("the program's command is empty; for example: python train.py")]
    Empty,
    /// It is not known how many processes to start.
    #[error("the number of processes must be 1 to {MOST_PROCESSES}, or a command that prints it; {command:?} {got}")]
    Processes {
        /// The command that determines the number of processes.
        command: String,
        /// The result of it.
        got: String,
    },
}

impl Program {
    /// A program by its command, with the usual limits.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            starts: Starts::EachJob,
            processes: "1".to_owned(),
            stall: None,
            grace: Duration::from_secs(10),
            restarts: 3,
            folder_max_bytes: None,
        }
    }

    /// A program that something else starts, with the usual limits.
    pub fn attached() -> Self {
        Self { starts: Starts::Elsewhere, ..Self::new("") }
    }

    /// How often it is started for one job, at most; 1 where something else starts it: it is waited for once.
    pub(super) fn most_starts(&self) -> u32 {
        match self.starts {
            Starts::EachJob | Starts::Once => self.restarts.saturating_add(1),
            Starts::Elsewhere => 1,
        }
    }

    /// Whether it can be run at all.
    pub(super) fn check(&self) -> Result<(), WrongProgram> {
        if self.starts == Starts::Elsewhere {
            return Ok(());
        }
        if self.command.trim().is_empty() {
            return Err(WrongProgram::Empty);
        }
        self.processes.trim().parse::<u64>().map_or(Ok(()), |_| self.count(&self.processes).map(drop))
    }

    /// The shell command line. `ask` runs another command, and returns its output, or a description of its failure.
    pub(super) fn command_line(
        &self,
        ask: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<String, WrongProgram> {
        if !self.command.contains(PROCESSES) {
            return Ok(self.command.clone());
        }
        Ok(self.command.replace(PROCESSES, &self.processes(ask)?.to_string()))
    }

    fn processes(&self, ask: impl FnOnce(&str) -> Result<String, String>) -> Result<u32, WrongProgram> {
        if self.processes.trim().parse::<u64>().is_ok() {
            return self.count(&self.processes);
        }
        let said = ask(&self.processes);
        said.map_err(|got| WrongProgram::Processes { command: self.processes.clone(), got })
            .and_then(|said| self.count(&said))
    }

    fn count(&self, text: &str) -> Result<u32, WrongProgram> {
        let count = text.trim().parse().ok().filter(|count| (1..=MOST_PROCESSES).contains(count));
        let short: String = text.trim().chars().take(40).collect();
        count.ok_or_else(|| WrongProgram::Processes { command: self.processes.clone(), got: format!("says {short:?}") })
    }

    pub(super) fn folder_limit(&self, folder: &JobFolder) -> u64 {
        self.folder_max_bytes.unwrap_or_else(|| folder.model_bytes().saturating_mul(MODELS).saturating_add(MORE))
    }
}

/// A shell with a command line, without this process's `TRIBUTARY_` variables, which may contain tokens.
pub(super) fn shell(line: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"TRIBUTARY_") {
            shell.env_remove(name);
        }
    }
    shell
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &str, processes: &str) -> Result<String, String> {
        let program = Program { processes: processes.to_owned(), ..Program::new(command) };
        let ask = |line: &str| line.strip_prefix("echo").map(str::to_owned).ok_or_else(|| "ended badly".to_owned());
        program.check().and_then(|()| program.command_line(ask)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_number_of_processes_is_the_sites() {
        assert_eq!(line("train", "no command"), Ok("train".to_owned()), "nobody asks");
        assert_eq!(line("torchrun -n {processes} x.py", "4"), Ok("torchrun -n 4 x.py".to_owned()));
        assert_eq!(line("run {processes} {processes}", "echo 2"), Ok("run 2 2".to_owned()));
        for (processes, said) in [
            ("0", "says \"0\""),
            ("17", "says \"17\""),
            ("echo many", "says \"many\""),
            ("echo", "says \"\""),
            ("exit 3", "ended badly"),
        ] {
            let error = line("run {processes}", processes).unwrap_err();
            assert!(error.contains(said) && error.contains("1 to 16"), "{error}");
        }
        assert!(line(" ", "1").unwrap_err().contains("python train.py"));
    }
}
