//! `kill -9` at moments that a seed draws, of every process of a federation with a secure and private task: the models
//! and the privacy ledger are those of an undisturbed run, and all temporary files are removed.
//!
//! `TRIBUTARY_KILLS=200 TRIBUTARY_KILL_SEED=7 cargo nextest run --workspace --test it -E 'test(/kills::/)' --no-capture` kills more
//! often, at other moments.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "says which moments it drew, and how long it took")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime};

use recipe::repeatable_noise;
use serde_json::Value;
use test_servers::postgres::{Cluster, Options};
use test_servers::s3::S3Server;

use crate::killed::{logs, participant_of, rounds, wait_for_round};
use crate::replicas::{Balancer, Site, address};
use crate::support::{Background, Served, number, run, tributary_for_tests};

/// Rounds of an undisturbed run that take longer than the pauses between so many kills.
const ROUNDS_PER_KILL: u64 = 3;
/// Seed of every run's noise.
const NOISE_SEED: &str = "11";
/// Noise enough that so many rounds stay within every participant's budget.
const PRIVACY: [&str; 5] = [
    "privacy.mechanism=central_gaussian",
    "privacy.noise_multiplier=60",
    "privacy.delta=1e-5",
    "privacy.clip.fixed=1.0",
    "privacy.population=3",
];
/// Age from which on garbage collection may remove a blob.
const OLD: Duration = Duration::from_secs(2 * 3600);

/// The executable, whose noise follows from a seed.
fn repeatable() -> Command {
    let mut command = tributary_for_tests();
    command.env(repeatable_noise::VARIABLE, NOISE_SEED);
    command
}

/// Numbers that follow from a seed, by SplitMix64.
pub(crate) struct Moments(u64);

impl Moments {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Published models and charges of a task.
#[derive(Debug, PartialEq)]
struct Published {
    /// Version and SHA-256 of the newest hundred models.
    models: Vec<(Value, Value)>,
    /// Contents of the ledger: the budget, and every release with its round, attempt, participants, noise and cost.
    ledger: Value,
}

impl Published {
    fn by(front: &Served) -> Self {
        let models = front.operate(&["model", "list", "demo"]).data();
        let models = models.as_array().unwrap().iter();
        let mut ledger = front.operate(&["privacy", "show", "demo"]).data();
        for release in ledger["releases"].as_array_mut().unwrap() {
            release.as_object_mut().unwrap().remove("at");
        }
        Self { models: models.map(|model| (model["version"].clone(), model["sha256"].clone())).collect(), ledger }
    }
}

/// A secure and private task, and its models without kills.
struct Task {
    file: String,
    rounds: u64,
    expected: Published,
}

impl Task {
    fn new(folder: &Path, kills: u64) -> Self {
        let (file, rounds) = (folder.join("task.toml").display().to_string(), kills * ROUNDS_PER_KILL);
        let mut command = repeatable();
        command.args(["--format", "json", "demo", "--inspect", "--dir"]).arg(folder.join("undisturbed"));
        command.args(["--participants", "3", "--rounds", &rounds.to_string(), "--seed", "5", "--task-file", &file]);
        command.args(PRIVACY.iter().flat_map(|pair| ["--set", pair]));
        let expected = Published::by(&Served::until(command, "inspecting"));
        assert_eq!(expected.models[0].0, rounds);
        assert_eq!(expected.ledger["releases"].as_array().unwrap().len() as u64, rounds);
        Self { file, rounds, expected }
    }

    /// Runs it on the coordinator that `front` is, while `kill` kills one of `processes` or a participant.
    fn run(&self, folder: &Path, kills: u64, front: &Served, processes: u64, mut kill: impl FnMut(u64)) {
        let (seed, began) = (number("TRIBUTARY_KILL_SEED", 1), Instant::now());
        let mut moments = Moments::new(seed);
        front.operate(&["task", "create", &self.file]).data();
        let start = |index, token: Option<&str>| {
            Background(participant_of(repeatable(), front, folder, index, token).spawn().unwrap())
        };
        let mut participants: Vec<_> = (0..3).map(|index| start(index, Some(&front.enrollment_token()))).collect();
        // A token is valid once: a participant killed between enrolment and storage needs another.
        wait_for_round(front, folder, 2);
        let mut killed = [0, 0];
        for nth in 0..kills {
            std::thread::sleep(Duration::from_millis(20 + moments.below(400)));
            let ended = participants.iter_mut().all(|child| child.0.try_wait().unwrap().is_some());
            assert!(!ended, "the task was over after {nth} kills\n{}", logs(folder));
            match moments.below(processes + 3) {
                process if process < processes => {
                    kill(process);
                    killed[0] += 1;
                }
                process => {
                    let index = usize::try_from(process - processes).unwrap();
                    // Dropped first: its journal is locked.
                    participants[index] = Background(Command::new("true").spawn().unwrap());
                    participants[index] = start(index, None);
                    killed[1] += 1;
                }
            }
        }
        for child in &mut participants {
            let code = ended(&mut child.0, front);
            assert_eq!(code, Some(0), "{:?}\n{}", rounds(front).first(), logs(folder));
        }
        assert_eq!(Published::by(front), self.expected);
        for round in rounds(front).iter().filter(|round| round["state"] == "COMPLETED") {
            assert_eq!(round["reported"], 3, "{round}");
        }
        let [coordinators, participants] = killed;
        println!(
            "seed {seed}: {kills} kills ({coordinators} of coordinators and workers, {participants} of participants) in {} rounds, \
             {:.0} s; models and ledger equal the undisturbed run's, newest model {}",
            self.rounds,
            began.elapsed().as_secs_f64(),
            self.expected.models[0].1
        );
    }
}

/// The exit code of a participant, awaited while rounds go on; `None` after a minute without a new round.
fn ended(child: &mut Child, front: &Served) -> Option<i32> {
    let (mut newest, mut since) = (Value::Null, Instant::now());
    while since.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        let number = rounds(front).first().map_or(Value::Null, |round| round["number"].clone());
        if number != newest {
            (newest, since) = (number, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    None
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Sets a file's age back, so that the next collection of garbage need not wait for it.
fn age(file: &Path) {
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.set_modified(SystemTime::now() - OLD).unwrap();
}

/// Waits until `left` returns an empty list.
fn nothing_left(left: impl Fn() -> Vec<String>) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let left = left();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "left over: {left:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Files below a folder that only a process which works needs: unfinished blobs, and keys of releases.
fn unfinished(folder: &Path) -> Vec<String> {
    let within = files(folder).into_iter().map(|path| path.strip_prefix(folder).unwrap().to_owned());
    let is_unfinished = |path: &PathBuf| path.iter().any(|part| part == "tmp" || part == "seal.releases");
    within.filter(is_unfinished).map(|path| path.display().to_string()).collect()
}

#[test]
fn one_coordinator_and_its_participants() {
    let (kills, folder) = (number("TRIBUTARY_KILLS", 20), tempfile::tempdir().unwrap());
    let (task, data) = (Task::new(folder.path(), kills), folder.path().join("data"));
    let serve = |listen: &str| {
        let mut command = repeatable();
        command.args(["--format", "json", "serve", "--dev", "--listen", listen, "--data-dir"]).arg(&data);
        Served::until(command, "serving")
    };
    let mut served = Some(serve("127.0.0.1:0"));
    let front = Balancer::before(&[served.as_ref().unwrap()]).front(served.as_ref().unwrap());
    let mut again = || {
        let listen = served.as_ref().map(address).unwrap();
        drop(served.take());
        served = Some(serve(&listen));
    };
    task.run(folder.path(), kills, &front, 1, |_| again());
    let blobs =
        || files(&data.join("blobs")).into_iter().filter(|path| path.extension().is_none() && !path.ends_with("lock"));
    blobs().for_each(|blob| age(&blob));
    // It collects garbage when it starts.
    again();
    let checked = ["--format", "json", "fsck", "--data-dir", data.to_str().unwrap()];
    nothing_left(|| {
        let checked = run(&checked);
        assert_eq!(checked.code, 0, "{checked}");
        let report = checked.events().pop().unwrap();
        let stored = blobs().count() as u64;
        let unnamed = (report["blobs"] != stored || report["findings"] != serde_json::json!([]))
            .then(|| format!("{stored} blobs, {report}"));
        unfinished(&data).into_iter().chain(unnamed).collect()
    });
}

#[test]
fn three_coordinators_two_workers_and_their_participants() {
    let Some(cluster) = Cluster::start(Options { fsync: true, tcp: true, ..Options::default() }) else { return };
    let (database, blobs, folder) = (cluster.create_database(), S3Server::start(), tempfile::tempdir().unwrap());
    let kills = number("TRIBUTARY_KILLS", 20);
    let task = Task::new(folder.path(), kills);
    let site = Site::new(folder.path(), &cluster.url(&database), &blobs).with_repeatable_noise(NOISE_SEED);
    let mut serving: Vec<_> = (0..3).map(|index| Some(site.serve(index, "127.0.0.1:0"))).collect();
    let mut working: Vec<_> = (0..2).map(|index| Some(site.work(index))).collect();
    let behind: Vec<_> = serving.iter().flatten().collect();
    let front = Balancer::before(&behind).front(behind[0]);
    let mut again = |process: u64| {
        let index = usize::try_from(process).unwrap();
        if index < 3 {
            let listen = serving[index].as_ref().map(address).unwrap();
            drop(serving[index].take());
            serving[index] = Some(site.serve(index, &listen));
        } else {
            drop(working[index - 3].take());
            working[index - 3] = Some(site.work(index - 3));
        }
    };
    task.run(folder.path(), kills, &front, 5, &mut again);
    assert_eq!(cluster.sql(&database, "SELECT count(*) FROM session_message WHERE message IS NOT NULL"), "0");
    blobs.keys().iter().for_each(|key| age(&blobs.object(key)));
    (0..5).for_each(again);
    let named = "SELECT 'models/' || left(name, 2) || '/' || name
                 FROM (SELECT encode(sha256, 'hex') AS name FROM model_version WHERE removed_at IS NULL) AS kept";
    nothing_left(|| {
        let named = cluster.sql(&database, named);
        // The end of the task's ledger stays for as long as the task.
        let kept = |key: &str| key.starts_with("apart/ledgers/") || named.lines().any(|named| named == key);
        let unnamed = blobs.keys().into_iter().filter(|key| !kept(key));
        unfinished(folder.path()).into_iter().chain(unnamed).collect()
    });
    assert_eq!(blobs.unfinished_parts(), 0);
}
