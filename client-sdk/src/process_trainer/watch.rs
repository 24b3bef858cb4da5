//! Waiting for a job's result.

use std::io::{self, Read, Seek, SeekFrom};
use std::time::Duration;

use super::event::{ProgramEvent, Progress};
use super::job_folder::JobFolder;
use super::process::{LOOK, Process};
use super::program::{Program, Starts};
use crate::clock::Clock;
use crate::trainer::TrainingJob;

/// Time between two checks of the folder.
const FOLDER_LOOK: Duration = Duration::from_secs(1);
/// Most bytes of progress that are read at once; older ones are skipped.
const PROGRESS_BYTES: u64 = 1 << 16;

/// Reasons why the trainer stops waiting for a job's program.
pub(super) enum End {
    /// The process ended by itself, with this status; `None` if a signal killed it.
    Exited(Option<i32>),
    /// A program that takes one job after the other left a result or a refusal.
    Answered,
    /// The program was silent for this time.
    Stalled(Duration),
    /// The device's conditions have ceased to hold.
    Paused,
    /// The job was cancelled.
    Cancelled,
    /// The folder holds so many bytes.
    FolderTooLarge(u64),
}

/// A job that a program works on.
pub(super) struct Watch<'a> {
    pub(super) program: &'a Program,
    pub(super) folder: &'a JobFolder,
    pub(super) limit: u64,
    pub(super) job: &'a TrainingJob,
    pub(super) clock: &'a dyn Clock,
}

impl Watch<'_> {
    /// Waits until the job has ended, or must be ended. `process` is the program's, where this trainer has started it.
    pub(super) fn until_end(
        &self,
        process: Option<&Process>,
        tell: &mut (dyn FnMut(&ProgramEvent) + Send),
    ) -> io::Result<End> {
        let mut progress = ProgressLines::default();
        let (_, mut checkpoint) = self.folder.usage();
        let mut changed_at = self.clock.now().elapsed;
        let mut looked_at = changed_at;
        loop {
            let status = process.map_or(Ok(None), Process::status)?;
            // After the status: it may have answered just before it ended.
            if self.program.starts != Starts::EachJob && self.folder.is_answered() {
                progress.tell(self.folder, tell);
                return Ok(End::Answered);
            }
            if let Some(status) = status {
                progress.tell(self.folder, tell);
                return Ok(End::Exited(status.exit_status()));
            }
            if self.job.cancel.is_cancelled() {
                return Ok(End::Cancelled);
            }
            if self.job.checkpoints.should_pause() {
                return Ok(End::Paused);
            }
            let now = self.clock.now().elapsed;
            if now.saturating_sub(looked_at) >= FOLDER_LOOK {
                looked_at = now;
                let (bytes, latest) = self.folder.usage();
                if bytes > self.limit {
                    return Ok(End::FolderTooLarge(bytes));
                }
                if progress.tell(self.folder, tell) || latest != checkpoint {
                    changed_at = now;
                }
                checkpoint = latest;
                let waited = now.saturating_sub(changed_at);
                if let Some(stall) = self.program.stall.filter(|stall| waited > *stall) {
                    return Ok(End::Stalled(stall));
                }
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Number of reported lines of `progress.jsonl`.
#[derive(Default)]
struct ProgressLines {
    read: u64,
}

impl ProgressLines {
    /// Reports the newest line, if there is a new one.
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
