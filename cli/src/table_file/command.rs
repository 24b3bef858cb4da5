//! The output of a shell command, which ends with its reader.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Runs the command `$1`, and kills its process group when standard input closes: when this process ends, however it ends.
const GUARDED: &str = "exec 3<&0 </dev/null; (cat <&3; kill -KILL 0) >/dev/null 2>&1 & exec 3<&-; exec sh -c \"$1\"";
/// Bytes that are kept of the end of standard error.
const KEPT: usize = 4096;
/// How long to wait for the end of standard error after the command has ended: another process may hold it open.
const END: Duration = Duration::from_secs(1);

/// How a command failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{ended}, so none of its rows are used; {said}")]
pub(crate) struct CommandFailed {
    ended: String,
    said: String,
}

/// Standard output of a command. Its end is an error unless the command ended with status 0. The whole process group ends when this is
/// dropped.
pub(super) struct CommandOutput {
    child: Child,
    group: Pid,
    output: ChildStdout,
    errors: Receiver<Vec<u8>>,
    has_ended: bool,
}

impl CommandOutput {
    /// Starts a line of the shell, without this process's `TRIBUTARY_` variables, which may contain tokens.
    pub(super) fn start(line: &str) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARDED, "sh", line]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"TRIBUTARY_") {
                command.env_remove(name);
            }
        }
        let mut child = command.spawn()?;
        let group = Pid::from_child(&child);
        let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Self { child, group, output, errors: tail(errors), has_ended: false })
    }

    /// Waits for the end of the command.
    fn end(&mut self) -> io::Result<()> {
        if self.has_ended {
            return Ok(());
        }
        // The command stays a process until it is reaped, so that its group id is not reused.
        waitid(WaitId::Pid(self.group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let _ = kill_process_group(self.group, Signal::KILL);
        let status = self.child.wait()?;
        self.has_ended = true;
        if status.success() { Ok(()) } else { Err(io::Error::other(self.failure(status))) }
    }

    fn failure(&self, status: ExitStatus) -> CommandFailed {
        let ended = match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with status {code}"),
            (None, signal) => format!("was killed by signal {}", signal.unwrap_or_default()),
        };
        let said = self.errors.recv_timeout(END).unwrap_or_default();
        let said: String =
            String::from_utf8_lossy(&said).trim().chars().filter(|c| *c == '\n' || !c.is_control()).collect();
        let said = if said.is_empty() {
            "its standard error is empty".to_owned()
        } else {
            format!("its standard error ends with: {said}")
        };
        CommandFailed { ended, said }
    }
}

impl Read for CommandOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.output.read(buffer)?;
        if count == 0 && !buffer.is_empty() {
            self.end()?;
        }
        Ok(count)
    }
}

impl Drop for CommandOutput {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// The last bytes of a stream, which a thread reads to its end.
fn tail(mut stream: ChildStderr) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut kept, mut buffer) = (VecDeque::new(), [0; KEPT]);
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            kept.extend(&buffer[..read]);
            kept.drain(..kept.len().saturating_sub(KEPT));
        }
        // The receiver may have gone.
        let _ = sender.send(kept.into());
    });
    receiver
}
