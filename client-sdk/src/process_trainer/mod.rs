//! Runs an external program as the trainer: in any language, on any number of processes and machines.
//!
//! One job is one folder, readable only by this user. The variable `TRIBUTARY_JOB` names it:
//!
//! | file | by | what |
//! |---|---|---|
//! | `job.json` | the SDK | the schema's number, the kind (`train` or `evaluate`), the task, its round, the plan, the remaining time and steps, a seed, names and shapes |
//! | `model.safetensors` | the SDK | the model to begin with, `F32` |
//! | `trained.safetensors` | the program | the trained model, with the same tensors |
//! | `result.json` | the program | the number of examples, and metrics |
//! | `refused` | the program | the reason for non-participation, in place of status 75 for a program without its own exit status |
//! | `progress.jsonl` | the program | optional: a line `{"step":120,"of":500,"loss":0.6}` now and then |
//! | `checkpoint/` | the program | its own state for resuming after a restart |
//!
//! Status 0 means that the result is there, 75 (`EX_TEMPFAIL`) that this site does not take part in this job. Any other
//! is a failure, after which the program is restarted, to resume from its checkpoint. Addresses, certificates, tokens
//! and keys are kept from it: clipping, weighing, noise, masks and ledgers stay in this process. Child processes are
//! ended with it, where they can be found.
//!
//! A program with a slow start may stay ([`Starts::Once`]), or be started externally ([`Starts::Elsewhere`]). The
//! variable `TRIBUTARY_JOBS` names the folder of all jobs. Its file `current` names the job that waits for a result, if
//! any does. An exit status does not end such a job: `result.json` or `refused` does.

mod event;
mod job_folder;
mod process;
mod program;
mod strays;
mod tail;
#[cfg(test)]
mod tests;
mod watch;

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use learning::{MetricValue, Parameters};

pub use self::event::{ProgramEvent, Progress};
use self::job_folder::{JOB_VARIABLE, JOBS_VARIABLE, JobFolder, Kind};
use self::process::{LOOK, Process};
pub use self::program::{Program, Starts, WrongProgram};
use self::watch::{End, Watch};
use crate::clock::{Clock, SystemClock};
use crate::journal::disk::make_private_folder;
use crate::journal::locked::LockedFile;
use crate::trainer::{REACH, Trained, Trainer, TrainerError, TrainingJob};

/// The program's exit status for a job without participation of its site.
const REFUSED: i32 = 75;
/// Before a program that failed is started again.
const BREAK: Duration = Duration::from_secs(1);

/// Trains by a program. One at a time works in a folder.
pub struct ProcessTrainer {
    program: Program,
    /// Of all jobs.
    folder: PathBuf,
    /// A program that waits for the next job.
    stays: Option<Process>,
    examples: u64,
    clock: Arc<dyn Clock>,
    tell: Box<dyn FnMut(&ProgramEvent) + Send>,
    /// The lock of the folder, released after all else has ended.
    _lock: LockedFile,
}

impl ProcessTrainer {
    /// Opens or creates the folder, and ends processes left there by an earlier trainer, unless the program is started externally.
    /// `examples` is reported to the coordinator until a job's result has another number.
    ///
    /// # Errors
    /// [`WrongProgram`]; errors of the disk; `WouldBlock` if another trainer works in the folder.
    pub fn open(program: Program, folder: &Path, examples: u64) -> io::Result<Self> {
        program.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        make_private_folder(folder)?;
        let folder = folder.canonicalize()?;
        let lock = LockedFile::lock(File::create(folder.join("lock"))?).map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::WouldBlock, format!("another trainer works in {}", folder.display()))
            }
            TryLockError::Error(error) => error,
        })?;
        if program.starts != Starts::Elsewhere {
            strays::end_all(&folder)?;
        }
        let clock = Arc::new(SystemClock::new());
        Ok(Self { program, folder, stays: None, examples, clock, tell: Box::new(|_| {}), _lock: lock })
    }

    /// Sets a callback for the program's events. Called on the trainer's thread.
    #[must_use]
    pub fn on_event(mut self, tell: impl FnMut(&ProgramEvent) + Send + 'static) -> Self {
        self.tell = Box::new(tell);
        self
    }

    /// The folder of a training: that of its checkpoint, if this process was killed or paused in the middle of it.
    fn folder_to_train(&self, model: &Parameters, job: &TrainingJob) -> Result<JobFolder, TrainerError> {
        let now = self.clock.now().wall;
        let kept = job.checkpoints.load().and_then(|name| String::from_utf8(name.to_vec()).ok());
        let kept = kept.and_then(|name| JobFolder::find(&self.folder, Kind::Train, &name));
        let folder = match kept {
            Some(folder) => {
                folder.describe(model.layout(), job, now).map_err(TrainerError::failed)?;
                folder
            }
            None => JobFolder::create(&self.folder, Kind::Train, model, job, now).map_err(TrainerError::failed)?,
        };
        folder.remove_others(&self.folder);
        // If this fails, a killed participant trains again from the beginning, without other effects.
        let _ = job.checkpoints.save_at_once(folder.name().as_bytes());
        Ok(folder)
    }

    /// Has the program work on a job until its result is there.
    fn run(&mut self, folder: &JobFolder, job: &TrainingJob) -> Result<(), TrainerError> {
        let limit = self.program.folder_limit(folder);
        let starts = self.program.most_starts();
        let mut failure = String::new();
        for start in 1..=starts {
            if start > 1 {
                (self.tell)(&ProgramEvent::Failed { reason: failure.clone() });
                self.rest(job);
            }
            folder.forget_refusal().map_err(TrainerError::failed)?;
            let process = self.give(folder, job, start)?;
            let watch = Watch { program: &self.program, folder, limit, job, clock: &*self.clock };
            let end = watch.until_end(process.as_ref(), &mut self.tell);
            let said = self.take_back(process, matches!(end, Ok(End::Answered))).map_err(TrainerError::failed)?;
            if let Some(why) = folder.refusal() {
                return Err(TrainerError::refused(format!("the program takes no part: {why}")));
            }
            failure = match end.map_err(TrainerError::failed)? {
                End::Answered => return Ok(()),
                End::Exited(Some(0)) if self.program.starts == Starts::EachJob => return Ok(()),
                End::Exited(Some(REFUSED)) => {
                    return Err(TrainerError::refused(format!("the program takes no part (status {REFUSED}){said}")));
                }
                End::Exited(Some(status)) => format!("the program ended with status {status}{said}"),
                End::Exited(None) => format!("the program was killed by a signal{said}"),
                End::Stalled(after) => {
                    format!("the program reported no progress for {} s{said}", after.as_secs())
                }
                End::Paused => {
                    let _ = job.checkpoints.save_at_once(folder.name().as_bytes());
                    return Err(TrainerError::Paused);
                }
                End::Cancelled => return Err(TrainerError::failed("nobody waits for the result any more")),
                End::FolderTooLarge(bytes) => {
                    return Err(TrainerError::failed(format!(
                        "the program filled its folder with {bytes} bytes, and the limit is {limit}"
                    )));
                }
            };
        }
        let again = match self.program.starts {
            Starts::EachJob | Starts::Once => format!("; it was started {starts} times"),
            Starts::Elsewhere => String::new(),
        };
        Err(TrainerError::failed(format!("{failure}{again}")))
    }

    /// Gives a job to the program: to a new process, to the running one, or to a program started elsewhere. `start` counts from 1 for each job.
    fn give(&mut self, folder: &JobFolder, job: &TrainingJob, start: u32) -> Result<Option<Process>, TrainerError> {
        let stays = self.stays.take();
        let (variable, told) = match self.program.starts {
            Starts::EachJob => (JOB_VARIABLE, folder.path()),
            Starts::Once | Starts::Elsewhere => {
                folder.offer(&self.folder).map_err(TrainerError::failed)?;
                (JOBS_VARIABLE, self.folder.as_path())
            }
        };
        if self.program.starts == Starts::Elsewhere {
            return Ok(None);
        }
        if let Some(mut process) = stays {
            if process.status().map_err(TrainerError::failed)?.is_none() {
                return Ok(Some(process));
            }
            // It ended between two jobs.
            process.end(Duration::ZERO).map_err(TrainerError::failed)?;
        }
        let ask = |line: &str| process::output(line, folder.path(), &self.clock, &job.cancel);
        let command = self.program.command_line(ask).map_err(TrainerError::failed)?;
        let process =
            Process::start(&command, variable, told, Arc::clone(&self.clock)).map_err(TrainerError::failed)?;
        (self.tell)(&ProgramEvent::Started { start });
        Ok(Some(process))
    }

    /// Ends the process, or lets it wait for the next job. Returns its last output.
    fn take_back(&mut self, process: Option<Process>, stays: bool) -> io::Result<String> {
        JobFolder::withdraw(&self.folder)?;
        let Some(mut process) = process else { return Ok(String::new()) };
        if stays {
            self.stays = Some(process);
            return Ok(String::new());
        }
        process.end(self.program.grace)?;
        Ok(process.said())
    }

    /// Waits a moment, unless the job is cancelled.
    fn rest(&self, job: &TrainingJob) {
        let until = self.clock.now().elapsed + BREAK;
        while self.clock.now().elapsed < until && !job.cancel.is_cancelled() {
            std::thread::sleep(LOOK);
        }
    }
}

impl Trainer for ProcessTrainer {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let folder = self.folder_to_train(model, job)?;
        // If the program has already ended before a crash of the participant, its result is used.
        if !folder.has_ended() {
            self.run(&folder, job)?;
            folder.note_end().map_err(TrainerError::failed)?;
        }
        let result = folder.result().map_err(TrainerError::failed)?;
        let parameters = folder.trained(model.layout()).map_err(TrainerError::failed)?;
        let examples = result.examples.filter(|&examples| examples > 0).ok_or_else(|| {
            TrainerError::failed("result.json says no number of examples above 0: {\"examples\": 640}")
        })?;
        self.examples = examples;
        let mut metrics = result.metrics(examples);
        if let Some(reach) = result.reach {
            metrics.push((REACH.to_owned(), MetricValue { value: reach, count: result.steps.unwrap_or(1) }));
        }
        Ok(Trained { parameters, examples, metrics })
    }

    /// The program's metrics; empty if it does not evaluate (status 75).
    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        let now = self.clock.now().wall;
        let folder = JobFolder::create(&self.folder, Kind::Evaluate, model, job, now).map_err(TrainerError::failed)?;
        folder.remove_others(&self.folder);
        let measured = match self.run(&folder, job) {
            Ok(()) => {
                let result = folder.result().map_err(TrainerError::failed)?;
                Ok(result.metrics(result.examples.unwrap_or(1)))
            }
            Err(TrainerError::Refused(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        folder.remove();
        measured
    }

    /// Returns an empty list: a program started elsewhere may have ended with the last round, and would not answer.
    fn evaluate_last(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        self.examples
    }

    fn pauses(&self) -> bool {
        true
    }
}

impl Drop for ProcessTrainer {
    fn drop(&mut self) {
        let _ = self.stays.take().map_or(Ok(()), |mut process| process.end(self.program.grace));
        // Removes the evaluation folders only: the next process may resume a training.
        JobFolder::remove_all(&self.folder, Kind::Evaluate);
    }
}
