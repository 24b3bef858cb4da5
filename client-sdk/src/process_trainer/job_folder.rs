//! The folder of one job: the program's input and output files.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use learning::checkpoint::{self, CheckpointError, MAX_HEADER_BYTES, TensorFile};
use learning::parameters::TensorSpec;
use learning::{Layout, MetricValue, Parameters};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use task_spec::{Budget, TableSpec, TrainingPlan};
use wire::Timestamp;

use crate::trainer::TrainingJob;

/// Where a program that is started for one job finds its folder.
pub(super) const JOB_VARIABLE: &str = "TRIBUTARY_JOB";
/// Where a program that takes one job after the other finds the folder of all.
pub(super) const JOBS_VARIABLE: &str = "TRIBUTARY_JOBS";
/// In the folder of all jobs: the name of the one that waits for a result.
const CURRENT: &str = "current";
const SCHEMA: u32 = 1;
const JOB: &str = "job.json";
const MODEL: &str = "model.safetensors";
const TRAINED: &str = "trained.safetensors";
const RESULT: &str = "result.json";
/// Refuses the job, for a program whose exit status is not its own, for example under `torchrun`.
const REFUSED: &str = "refused";
const PROGRESS: &str = "progress.jsonl";
const CHECKPOINT: &str = "checkpoint";
/// The program ended with status 0.
const ENDED: &str = "ended";
/// Most bytes of `result.json`.
const RESULT_MAX_BYTES: u64 = 1 << 20;
/// Most bytes of `refused`.
const REFUSED_MAX_BYTES: u64 = 4096;
/// Most files of a folder that are counted.
const FILES_MAX: usize = 100_000;

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Train,
    Evaluate,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Train => "train-",
            Self::Evaluate => "evaluate-",
        }
    }
}

#[derive(Serialize)]
struct JobDocument<'a> {
    schema: u32,
    kind: Kind,
    task: &'a str,
    round: u32,
    seed: u64,
    /// When the round stops waiting, in milliseconds since 1970 by this machine's clock.
    deadline: Option<Timestamp>,
    /// The task's budget, limited to the remaining time.
    budget: Budget,
    plan: &'a TrainingPlan,
    architecture: Option<&'a serde_json::Value>,
    table: Option<&'a TableSpec>,
    metrics: &'a [String],
    tensors: &'a [TensorSpec],
}

/// `result.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobResult {
    /// Trained or evaluated on.
    pub(super) examples: Option<u64>,
    #[serde(default)]
    metrics: BTreeMap<String, Measured>,
    /// The distance that its steps covered: see [`REACH`](crate::REACH).
    pub(super) reach: Option<f64>,
    /// Steps taken.
    pub(super) steps: Option<u64>,
}

/// A mean over all examples, or over so many.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Measured {
    Mean(f64),
    Counted(MetricValue),
}

impl JobResult {
    /// Its metrics; a mean without a count is of so many examples.
    pub(super) fn metrics(&self, examples: u64) -> Vec<(String, MetricValue)> {
        let counted = |measured: &Measured| match *measured {
            Measured::Mean(value) => MetricValue { value, count: examples },
            Measured::Counted(value) => value,
        };
        self.metrics.iter().map(|(name, measured)| (name.clone(), counted(measured))).collect()
    }
}

/// The reason why a program ended with status 0 but without a valid result.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoResult {
    #[error("the program ended with status 0 and left no {0}; write it under another name, then rename it")]
    Missing(&'static str),
    #[error("{0} is a link, a folder or another thing than a file of its own; write a file, then rename it")]
    NoFile(&'static str),
    #[error("{name} has {bytes} bytes; for this job it has at most {limit}")]
    TooLarge { name: &'static str, bytes: u64, limit: u64 },
    #[error(
        "{RESULT} is not what a program writes, such as {{\"examples\": 640, \"metrics\": {{\"train_loss\": 0.4}}}}: {0}"
    )]
    Document(serde_json::Error),
    #[error("{TRAINED} is not the trained model: {0}")]
    Model(#[from] CheckpointError),
    #[error("{name} cannot be read: {source}")]
    Read { name: &'static str, source: io::Error },
}

/// A folder that belongs to one job.
pub(super) struct JobFolder {
    path: PathBuf,
    kind: Kind,
    model_bytes: u64,
}

impl JobFolder {
    /// Makes the folder and the program's input files; `now` is the time of the machine.
    pub(super) fn create(
        within: &Path,
        kind: Kind,
        model: &Parameters,
        job: &TrainingJob,
        now: Timestamp,
    ) -> io::Result<Self> {
        let path = new_folder(within, kind, job.round, now)?;
        private_folder().create(path.join(CHECKPOINT))?;
        let model_bytes = write_model(&path.join(MODEL), model)?;
        let folder = Self { path, kind, model_bytes };
        // Last, by a rename: a folder with a job is whole.
        folder.describe(model.layout(), job, now)?;
        Ok(folder)
    }

    /// Writes `job.json`: at first, and again if a later process goes on with the job, which may have less time.
    pub(super) fn describe(&self, layout: &Layout, job: &TrainingJob, now: Timestamp) -> io::Result<()> {
        let left = job.deadline.map(|deadline| u64::try_from(deadline.0.saturating_sub(now.0)).unwrap_or(0));
        let document = JobDocument {
            schema: SCHEMA,
            kind: self.kind,
            task: &job.task,
            round: job.round,
            seed: job.seed,
            deadline: job.deadline,
            budget: job.plan.budget.unwrap_or_default().tighter(Budget { steps: None, time_ms: left }),
            plan: &job.plan,
            architecture: job.architecture.as_ref(),
            table: job.table.as_ref(),
            metrics: &job.metrics,
            tensors: layout.tensors(),
        };
        replace(&self.path, JOB, &serde_json::to_vec_pretty(&document)?)
    }

    /// The folder of this name, if it was made wholly.
    pub(super) fn find(within: &Path, kind: Kind, name: &str) -> Option<Self> {
        let number = name.strip_prefix(kind.prefix())?;
        if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            return None;
        }
        let path = within.join(name);
        let model_bytes = fs::symlink_metadata(path.join(MODEL)).ok()?.len();
        path.join(JOB).is_file().then_some(Self { path, kind, model_bytes })
    }

    /// Below the trainer's folder.
    pub(super) fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn model_bytes(&self) -> u64 {
        self.model_bytes
    }

    /// Removes the folders of other jobs of this kind. A folder made undeletable by the program does not fail the job: each later job
    /// tries again.
    pub(super) fn remove_others(&self, within: &Path) {
        for folder in folders(within, self.kind).unwrap_or_default() {
            if folder != self.path {
                let _ = fs::remove_dir_all(folder);
            }
        }
    }

    pub(super) fn remove_all(within: &Path, kind: Kind) {
        for folder in folders(within, kind).unwrap_or_default() {
            let _ = fs::remove_dir_all(folder);
        }
    }

    pub(super) fn remove(self) {
        let _ = fs::remove_dir_all(self.path);
    }

    /// Whether the program ended with status 0, by this process's or an earlier one's account.
    pub(super) fn has_ended(&self) -> bool {
        self.path.join(ENDED).exists()
    }

    pub(super) fn note_end(&self) -> io::Result<()> {
        match File::create_new(self.path.join(ENDED)) {
            // The program has made it, or a link of this name, which is not followed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map(drop),
        }
    }

    /// Names this job to a program that takes one after the other.
    pub(super) fn offer(&self, within: &Path) -> io::Result<()> {
        replace(within, CURRENT, self.name().as_bytes())
    }

    /// Removes the name of the current job, so that programs wait for the next one.
    pub(super) fn withdraw(within: &Path) -> io::Result<()> {
        remove_file(&within.join(CURRENT))
    }

    /// Whether such a program has left a result or a refusal.
    pub(super) fn is_answered(&self) -> bool {
        [RESULT, REFUSED].iter().any(|name| fs::symlink_metadata(self.path.join(name)).is_ok())
    }

    /// Reads the program's description of its result.
    pub(super) fn result(&self) -> Result<JobResult, NoResult> {
        serde_json::from_slice(&self.read(RESULT, RESULT_MAX_BYTES)?).map_err(NoResult::Document)
    }

    /// The reason of a refusal, if the program wrote one to a file.
    pub(super) fn refusal(&self) -> Option<String> {
        let why = self.read(REFUSED, REFUSED_MAX_BYTES).ok()?;
        Some(String::from_utf8_lossy(&why).chars().filter(|c| !c.is_control()).collect())
    }

    /// Removes the refusal of an earlier start, so that it does not apply to the next one.
    pub(super) fn forget_refusal(&self) -> io::Result<()> {
        remove_file(&self.path.join(REFUSED))
    }

    /// Reads the trained model; every value is finite.
    pub(super) fn trained(&self, layout: &Arc<Layout>) -> Result<Parameters, NoResult> {
        let limit = self.model_bytes.saturating_add(MAX_HEADER_BYTES);
        // It may grow while it is read.
        let mut file = self.open(TRAINED, limit)?.take(limit);
        Ok(checkpoint::read_from(&mut file, layout).map_err(|source| NoResult::Read { name: TRAINED, source })??)
    }

    /// Reads a file that the program wrote.
    fn read(&self, name: &'static str, limit: u64) -> Result<Vec<u8>, NoResult> {
        let mut bytes = Vec::new();
        // It may grow while it is read.
        let read = self.open(name, limit)?.take(limit).read_to_end(&mut bytes);
        read.map_err(|source| NoResult::Read { name, source })?;
        Ok(bytes)
    }

    /// Opens a file of at most `limit` bytes written by the program. Rejects links and special files.
    fn open(&self, name: &'static str, limit: u64) -> Result<File, NoResult> {
        let read = |source| NoResult::Read { name, source };
        // Without waiting for the writer of a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(self.path.join(name), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Err(NoResult::Missing(name)),
            Err(rustix::io::Errno::LOOP) => return Err(NoResult::NoFile(name)),
            Err(error) => return Err(read(error.into())),
        };
        let about = file.metadata().map_err(read)?;
        if !about.is_file() || about.nlink() != 1 {
            return Err(NoResult::NoFile(name));
        }
        if about.len() > limit {
            return Err(NoResult::TooLarge { name, bytes: about.len(), limit });
        }
        Ok(file)
    }

    /// The lines of progress, opened anew.
    pub(super) fn progress(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(self.path.join(PROGRESS), flags, Mode::empty()).ok()?);
        file.metadata().is_ok_and(|about| about.is_file()).then_some(file)
    }

    /// A value that changes when the program writes to its checkpoint: number, bytes and times of the files. And the
    /// bytes of all.
    pub(super) fn usage(&self) -> (u64, impl PartialEq + use<>) {
        let mut bytes = 0_u64;
        let mut checkpoint = (0_usize, 0_u64, 0_i64);
        let mut left = vec![self.path.clone()];
        let mut files = 0;
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let Ok(about) = entry.metadata() else { continue };
                files += 1;
                if files > FILES_MAX {
                    return (u64::MAX, checkpoint);
                }
                bytes = bytes.saturating_add(about.blocks().saturating_mul(512));
                if about.is_dir() {
                    left.push(entry.path());
                } else if folder != self.path {
                    let changed = about.mtime().saturating_mul(1_000_000_000).saturating_add(about.mtime_nsec());
                    checkpoint =
                        (checkpoint.0 + 1, checkpoint.1.saturating_add(about.len()), checkpoint.2.max(changed));
                }
            }
        }
        (bytes, checkpoint)
    }
}

/// Writes a model, and returns how many bytes it has.
fn write_model(path: &Path, model: &Parameters) -> io::Result<u64> {
    let known = TensorFile::of_model(model.layout()).map_err(io::Error::other)?;
    let mut file = File::create_new(path)?;
    known.write(&mut file, model.values())?.map_err(io::Error::other)?;
    // In-place training fails immediately.
    file.set_permissions(fs::Permissions::from_mode(0o400))?;
    Ok(known.bytes())
}

/// Replaces the file of this name by one of these bytes.
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let draft = folder.join("draft");
    remove_file(&draft)?;
    // A new file, so that a program's link in its place is not followed.
    File::create_new(&draft)?.write_all(bytes)?;
    fs::rename(draft, folder.join(name))
}

/// Removes a file that may not be there.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn private_folder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Creates a folder with a name unused by any earlier job: an externally started program may still work for a removed job.
fn new_folder(within: &Path, kind: Kind, round: u32, now: Timestamp) -> io::Result<PathBuf> {
    let mut number = u64::try_from(now.0).unwrap_or_default();
    loop {
        let path = within.join(format!("{}{round}-{number}", kind.prefix()));
        match private_folder().create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The folders of all jobs of a kind.
fn folders(within: &Path, kind: Kind) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(within)? {
        let entry = entry?;
        let is_job = entry.file_name().to_str().is_some_and(|name| name.starts_with(kind.prefix()));
        if is_job && entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}
