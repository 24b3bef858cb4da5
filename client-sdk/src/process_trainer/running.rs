//! A program that runs, with all that it started.

use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::event::{ProgramEvent, Progress};
use super::job_folder::{JobFolder, VARIABLE};
use super::program::{Program, shell};
use super::strays;
use super::tail::Tail;
use crate::clock::Clock;
use crate::trainer::TrainingJob;

/// Between two looks at a program that runs.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Between two looks at what is in the folder.
const FOLDER_LOOK: Duration = Duration::from_secs(1);
/// Most bytes of progress that are read at once; older ones are skipped.
const PROGRESS_BYTES: u64 = 1 << 16;

/// Why it is no longer waited for.
pub(super) enum End {
    /// By itself, with this status; `None` if a signal killed it.
    Exited(Option<i32>),
    /// It showed no progress for so long.
    Stalled(Duration),
    /// The device's conditions no longer hold.
    Paused,
    /// Nobody waits for the result.
    Cancelled,
    /// It holds so many bytes.
    FolderTooLarge(u64),
}

/// A program in a process group of its own.
pub(super) struct Running<'f> {
    child: Child,
    group: Pid,
    folder: &'f JobFolder,
    clock: Arc<dyn Clock>,
    errors: Tail,
    output: Tail,
}

impl<'f> Running<'f> {
    pub(super) fn start(line: &str, folder: &'f JobFolder, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let mut command = shell(line);
        command.env(VARIABLE, folder.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let errors = child.stderr.take().map(Tail::of).unwrap_or_default();
        let output = child.stdout.take().map(Tail::of).unwrap_or_default();
        let group = Pid::from_child(&child);
        Ok(Self { child, group, folder, clock, errors, output })
    }

    /// Waits until it ends, or must be ended.
    pub(super) fn watch(
        &mut self,
        program: &Program,
        limit: u64,
        job: &TrainingJob,
        tell: &mut (dyn FnMut(&ProgramEvent) + Send),
    ) -> io::Result<End> {
        let mut progress = ProgressLines::default();
        let (_, mut checkpoint) = self.folder.usage();
        let mut changed_at = self.clock.now().elapsed;
        let mut looked_at = changed_at;
        loop {
            // It stays a process until it is reaped, so that its group is nobody else's.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            if let Some(status) = waitid(WaitId::Pid(self.group), options)? {
                progress.tell(self.folder, tell);
                return Ok(End::Exited(status.exit_status()));
            }
            if job.cancel.is_cancelled() {
                return Ok(End::Cancelled);
            }
            if job.checkpoints.should_pause() {
                return Ok(End::Paused);
            }
            let now = self.clock.now().elapsed;
            if now.saturating_sub(looked_at) >= FOLDER_LOOK {
                looked_at = now;
                let (bytes, latest) = self.folder.usage();
                if bytes > limit {
                    return Ok(End::FolderTooLarge(bytes));
                }
                if progress.tell(self.folder, tell) || latest != checkpoint {
                    changed_at = now;
                }
                checkpoint = latest;
                if let Some(stall) = program.stall.filter(|stall| now.saturating_sub(changed_at) > *stall) {
                    return Ok(End::Stalled(stall));
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Ends it and all that it started: asks, waits, kills.
    pub(super) fn end(&mut self, grace: Duration) -> io::Result<()> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let begun = self.clock.now().elapsed;
        if waitid(WaitId::Pid(self.group), options)?.is_none() {
            // A group without a process is no error: it has just ended.
            let _ = kill_process_group(self.group, Signal::TERM);
            while waitid(WaitId::Pid(self.group), options)?.is_none()
                && self.clock.now().elapsed.saturating_sub(begun) < grace
            {
                std::thread::sleep(LOOK);
            }
        }
        let _ = kill_process_group(self.group, Signal::KILL);
        self.child.wait()?;
        strays::end_all(self.folder.path())
    }

    /// What it said last, to be put behind what became of it.
    pub(super) fn said(&self) -> String {
        let (errors, output) = (self.errors.text(), self.output.text());
        let said = if errors.is_empty() { output } else { errors };
        if said.is_empty() { " and said nothing".to_owned() } else { format!("; it said last: {said}") }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // After a panic of whoever listens; otherwise nothing is left.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// The lines of `progress.jsonl` that were told.
#[derive(Default)]
struct ProgressLines {
    read: u64,
}

impl ProgressLines {
    /// Tells the newest line, if there is a new one.
    fn tell(&mut self, folder: &JobFolder, tell: &mut (dyn FnMut(&ProgramEvent) + Send)) -> bool {
        let Some(lines) = self.new_lines(folder) else { return false };
        let progress = lines.lines().rev().find_map(|line| serde_json::from_str::<Progress>(line).ok());
        if let Some(progress) = progress {
            tell(&ProgramEvent::Progress(progress));
        }
        true
    }

    /// Whole lines that were not read before.
    fn new_lines(&mut self, folder: &JobFolder) -> Option<String> {
        let mut file = folder.progress()?;
        let length = file.metadata().ok()?.len();
        // One that became shorter was begun anew.
        let from = if length < self.read { 0 } else { self.read.max(length.saturating_sub(PROGRESS_BYTES)) };
        file.seek(SeekFrom::Start(from)).ok()?;
        let mut bytes = Vec::new();
        file.take(PROGRESS_BYTES).read_to_end(&mut bytes).ok()?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n')? + 1;
        self.read = from + end as u64;
        bytes.truncate(end);
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}
