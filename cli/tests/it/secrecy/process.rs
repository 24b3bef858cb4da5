//! A participant in a process of its own, with its log at TRACE, its metrics and its spans. This test is its trainer, and so
//! knows the secret update.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use client_sdk::journal::{Journal as _, JournalFiles};
use serde_json::{Value, json};

use super::participants::{Secrets, VALUES};
use crate::collector::Collector;
use crate::program::metrics;
use crate::support::{Background, Served, tributary};

/// The training loss that it reports.
const LOSS: f32 = 0.9 / 3.1;

/// The participant's process, and the folder with its journal, jobs, output and log.
pub(super) struct Alone {
    process: Background,
    folder: PathBuf,
    token: String,
}

impl Alone {
    /// Starts a participant that takes part in this task and sends its spans to the collector.
    pub(super) fn start(served: &Served, folder: &Path, task: &str, collector: &Collector) -> Self {
        let token = served.enrollment_token();
        fs::create_dir(folder).unwrap();
        let mut command = tributary();
        command.args(["--format", "json", "participant", "run", "--server", &served.url, "--ca", &served.ca]);
        command.args(["--task", task, "--min-cohort", "3", "--min-tolerated-colluders", "0", "--name", "alone"]);
        command.args(["--metrics", "127.0.0.1:0", "--traces-endpoint", &collector.endpoint]);
        command.arg("--journal").arg(folder.join("journal")).arg("--trainer-attach").arg(folder.join("jobs"));
        command.env("TRIBUTARY_ENROLLMENT_TOKEN", &token).env("TRIBUTARY_LOG", "trace");
        command.stdout(File::create(folder.join("said")).unwrap()).stderr(File::create(folder.join("log")).unwrap());
        Self { process: Background(command.spawn().unwrap()), folder: folder.to_owned(), token }
    }

    /// Trains for it until the task is over. Returns its secrets, and everything that it writes or serves, each with its place.
    pub(super) fn run(mut self) -> (Secrets, Vec<(String, Vec<u8>)>) {
        let mut secrets = Secrets::default();
        secrets.add("an enrolment token", self.token.as_bytes());
        secrets.add_values("an update", &moves());
        secrets.add_text("a participant's loss", LOSS);
        let (mut done, mut places) = (HashSet::<PathBuf>::new(), Vec::new());
        let ended = loop {
            if let Some(ended) = self.process.0.try_wait().unwrap() {
                break ended;
            }
            let Some(job) = self.waiting().filter(|job| !done.contains(job)) else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let about: Value = serde_json::from_slice(&fs::read(job.join("job.json")).unwrap()).unwrap();
            if about["kind"] == "train" {
                self.read_journal(&mut secrets);
                let measured = metrics(&self.folder.join("said"));
                // Its first update is counted once it was acknowledged.
                let counts = measured.contains("tributary_participant_updates_total 1");
                assert_eq!(counts, !places.is_empty(), "{measured}");
                let place = format!("a participant's metrics before training {}", places.len());
                places.push((place, measured.into_bytes()));
                train(&job, &mut secrets);
            } else {
                fs::write(job.join("refused"), "it only trains").unwrap();
            }
            done.insert(job);
        };
        let log = fs::read(self.folder.join("log")).unwrap();
        assert!(ended.success(), "{}", String::from_utf8_lossy(&log[log.len().saturating_sub(4096)..]));
        assert!(places.len() >= 2, "it trained in {} rounds", places.len());
        let has = |text: &str| log.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("TRACE") && has("h2::") && has("rustls::"), "what it is built from logs, too");
        places.push(("a participant's log".to_owned(), log));
        (secrets, places)
    }

    /// The folder of a job that waits for a result, if there is one.
    fn waiting(&self) -> Option<PathBuf> {
        let jobs = self.folder.join("jobs");
        let job = jobs.join(fs::read_to_string(jobs.join("current")).ok()?.trim());
        job.join("job.json").is_file().then_some(job)
    }

    /// Adds the secrets in its journal: its key, and the keys and seeds of the session of this round.
    fn read_journal(&self, secrets: &mut Secrets) {
        let before = secrets.len();
        secrets.add("the key of a journal", &fs::read(self.folder.join("journal.key")).unwrap());
        // It may be writing while the folder is copied.
        let records = (0..100).find_map(|_| {
            self.records().or_else(|| {
                std::thread::sleep(Duration::from_millis(20));
                None
            })
        });
        records.expect("its journal cannot be read").iter().for_each(|record| secrets.add_record(record));
        assert!(secrets.len() > before + 3, "a key, and of a session seeds and keys: {}", secrets.len() - before);
    }

    /// Records of a copy of its journal, since the process has locked the journal itself.
    fn records(&self) -> Option<Vec<Vec<u8>>> {
        let copy = tempfile::tempdir().unwrap();
        let files = JournalFiles::beside(copy.path().join("journal"));
        fs::create_dir(&files.folder).unwrap();
        for entry in fs::read_dir(self.folder.join("journal")).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, files.folder.join(path.file_name().unwrap())).ok()?;
        }
        fs::copy(self.folder.join("journal.key"), &files.key).unwrap();
        fs::copy(self.folder.join("journal.generation"), &files.generation).unwrap();
        let journal = files.open().ok()?;
        let record = |name| journal.load(name).ok().flatten().map(|record| record.to_vec());
        ["identity", "round"].into_iter().map(record).collect()
    }
}

/// The update: the change of each value of the model.
fn moves() -> Vec<f32> {
    (0..VALUES).map(|at| (0.4 + f32::from(u8::try_from(at).unwrap()) / 30.0) / 3.1).collect()
}

/// Answers a job with the model that the update makes, which is secret, too.
fn train(job: &Path, secrets: &mut Secrets) {
    let file = fs::read(job.join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(*file.first_chunk::<8>().unwrap());
    let (head, values) = file.split_at(8 + usize::try_from(header).unwrap());
    let values = values.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
    let trained: Vec<f32> = values.zip(moves()).map(|(value, by)| value + by).collect();
    secrets.add_numbers("a trained model", &trained);
    let bytes: Vec<u8> = trained.iter().flat_map(|value| value.to_le_bytes()).collect();
    answer(job, "trained.safetensors", &[head, &bytes].concat());
    let result = json!({ "examples": 10, "metrics": { "secret_loss": f64::from(LOSS) } });
    answer(job, "result.json", result.to_string().as_bytes());
}

/// Writes a file under another name and renames it, so that a reader sees only the whole file.
fn answer(job: &Path, name: &str, bytes: &[u8]) {
    fs::write(job.join("draft"), bytes).unwrap();
    fs::rename(job.join("draft"), job.join(name)).unwrap();
}
