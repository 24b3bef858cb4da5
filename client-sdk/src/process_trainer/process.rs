//! A running program with all its child processes.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid};

use super::job_folder::JOB_VARIABLE;
use super::program::shell;
use super::strays;
use super::tail::Tail;
use crate::clock::Clock;
use crate::trainer::Cancel;

/// Between two looks at a program that runs.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// For a line whose output is wanted.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the output of a command that ended in time with status 0, otherwise a description of the failure. `folder` as for
/// [`Process::start`].
pub(super) fn output(line: &str, folder: &Path, clock: &Arc<dyn Clock>, cancel: &Cancel) -> Result<String, String> {
    let not_run = |error: io::Error| format!("could not be run: {error}");
    let mut process = Process::start(line, JOB_VARIABLE, folder, Arc::clone(clock)).map_err(not_run)?;
    let begun = clock.now().elapsed;
    let status = loop {
        if let Some(status) = process.status().map_err(not_run)? {
            break status.exit_status();
        }
        let is_late = clock.now().elapsed.saturating_sub(begun) >= EXIT_TIMEOUT;
        if is_late || cancel.is_cancelled() {
            // A process that hangs in a driver does not end even when it is killed.
            std::thread::spawn(move || drop(process));
            let late = || format!("has not ended within {} s", EXIT_TIMEOUT.as_secs());
            return Err(if is_late { late() } else { "was ended, because nobody waits any more".to_owned() });
        }
        std::thread::sleep(LOOK);
    };
    process.end(Duration::ZERO).map_err(not_run)?;
    match status {
        Some(0) => Ok(process.output.text()),
        Some(status) => Err(format!("ended with status {status}")),
        None => Err("was killed by a signal".to_owned()),
    }
}

/// A program in a process group of its own.
pub(super) struct Process {
    child: Child,
    group: Pid,
    /// Its job folder, by which its descendants are recognized.
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    errors: Tail,
    output: Tail,
}

impl Process {
    /// Starts a line of the shell, which finds `folder` in `variable`.
    pub(super) fn start(line: &str, variable: &str, folder: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let mut command = shell(line);
        command.env(variable, folder).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let errors = child.stderr.take().map(Tail::of).unwrap_or_default();
        let output = child.stdout.take().map(Tail::of).unwrap_or_default();
        let group = Pid::from_child(&child);
        Ok(Self { child, group, folder: folder.to_owned(), clock, errors, output })
    }

    /// Its status, once it has ended. It stays a process until it is reaped, so that its group id is not reused.
    pub(super) fn status(&self) -> io::Result<Option<WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.group), options)?)
    }

    /// Ends it and its descendants: terminates, waits, kills.
    pub(super) fn end(&mut self, grace: Duration) -> io::Result<()> {
        let begun = self.clock.now().elapsed;
        if self.status()?.is_none() {
            // An empty group is fine: its last process has just ended.
            let _ = kill_process_group(self.group, Signal::TERM);
            // A shell or a launcher ends before its children, which may still write their checkpoint.
            while (self.status()?.is_none() || !strays::find(&self.folder).is_empty())
                && self.clock.now().elapsed.saturating_sub(begun) < grace
            {
                std::thread::sleep(LOOK);
            }
        }
        let _ = kill_process_group(self.group, Signal::KILL);
        self.child.wait()?;
        strays::end_all(&self.folder)
    }

    /// The end of the program's output, as a suffix for an error message.
    pub(super) fn said(&self) -> String {
        let (errors, output) = (self.errors.text(), self.output.text());
        let said = if errors.is_empty() { output } else { errors };
        if said.is_empty() { " and said nothing".to_owned() } else { format!("; it said last: {said}") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Only after a panic of the listener.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
