//! `kill -9` at moments that a seed draws, of every process of a federation: the models are those of an undisturbed run.
//!
//! `TRIBUTARY_KILLS=200 TRIBUTARY_KILL_SEED=7 cargo nextest run --workspace --test it -E 'test(/kills::/)' --no-capture` kills more
//! often, at other moments.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "says which moments it drew")]

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use test_servers::postgres::{Cluster, Options};
use test_servers::s3::S3Server;

use crate::killed::{logs, participant, rounds, wait, wait_for_round};
use crate::replicas::{Balancer, Site, address};
use crate::support::{Background, Served, run};

/// Rounds of an undisturbed run that take longer than the pauses between so many kills.
const ROUNDS_PER_KILL: u64 = 3;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

/// Numbers that follow from a seed, by SplitMix64.
struct Moments(u64);

impl Moments {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A task and the models that it publishes if nobody is killed.
struct Task {
    file: String,
    expected: Vec<Value>,
}

impl Task {
    fn new(folder: &Path, kills: u64) -> Self {
        let (file, rounds) = (folder.join("task.toml").display().to_string(), (kills * ROUNDS_PER_KILL).to_string());
        let args = ["--participants", "3", "--rounds", &rounds, "--seed", "5", "--task-file", &file];
        let undisturbed = run(&[&["--format", "json", "demo"][..], &args].concat());
        assert_eq!(undisturbed.code, 0, "{undisturbed}");
        let models = undisturbed.events().into_iter().filter(|event| event["event"] == "round");
        let expected = models.map(|event| event["model"]["sha256"].clone()).collect();
        Self { file, expected }
    }

    /// Runs it on the coordinator that `front` is, while `kill` kills one of `processes` beside the participants.
    fn run(&self, folder: &Path, kills: u64, front: &Served, processes: u64, mut kill: impl FnMut(u64)) {
        let seed = number("TRIBUTARY_KILL_SEED", 1);
        println!("{kills} kills, seed {seed}");
        let mut moments = Moments(seed);
        front.operate(&["task", "create", &self.file]).data();
        let mut participants: Vec<_> = (0..3)
            .map(|index| {
                let token = front.operate(&["token", "create", "--enrollment"]).data();
                participant(front, folder, index, token["token"].as_str())
            })
            .collect();
        // A token enrols once: whoever is killed between using it and storing what it got needs another.
        wait_for_round(front, folder, 2);
        for nth in 0..kills {
            std::thread::sleep(Duration::from_millis(20 + moments.below(400)));
            let ended = participants.iter_mut().all(|child| child.0.try_wait().unwrap().is_some());
            assert!(!ended, "the task was over after {nth} kills\n{}", logs(folder));
            match moments.below(processes + 3) {
                process if process < processes => kill(process),
                process => {
                    let index = usize::try_from(process - processes).unwrap();
                    // Dropped first: its journal is locked.
                    participants[index] = Background(std::process::Command::new("true").spawn().unwrap());
                    participants[index] = participant(front, folder, index, None);
                }
            }
        }
        for child in &mut participants {
            assert_eq!(wait(&mut child.0), Some(0), "{:?}\n{}", rounds(front).first(), logs(folder));
        }
        let models = front.operate(&["model", "list", "demo"]).data();
        let newest = models.as_array().unwrap();
        assert_eq!(newest[0]["version"], self.expected.len());
        // The list is of the newest hundred, the last of which may be the initial model.
        for (model, expected) in newest.iter().zip(self.expected.iter().rev()) {
            assert_eq!(model["sha256"], *expected, "{model}");
        }
        for round in rounds(front).iter().filter(|round| round["state"] == "COMPLETED") {
            assert_eq!(round["reported"], 3, "{round}");
        }
    }
}

#[test]
fn one_coordinator_and_its_participants() {
    let (kills, folder) = (number("TRIBUTARY_KILLS", 20), tempfile::tempdir().unwrap());
    let (task, data) = (Task::new(folder.path(), kills), folder.path().join("data"));
    let mut served = Some(Served::dev(&data));
    let front = Balancer::before(&[served.as_ref().unwrap()]).front(served.as_ref().unwrap());
    task.run(folder.path(), kills, &front, 1, |_| served = served.take().map(|served| served.kill_and_restart(&data)));
}

#[test]
fn two_coordinators_two_workers_and_their_participants() {
    let Some(cluster) = Cluster::start(Options { fsync: true, tcp: true, ..Options::default() }) else { return };
    let (database, blobs, folder) = (cluster.create_database(), S3Server::start(), tempfile::tempdir().unwrap());
    let kills = number("TRIBUTARY_KILLS", 20);
    let task = Task::new(folder.path(), kills);
    let site = Site::new(folder.path(), &cluster.url(&database), &blobs);
    let mut serving: Vec<_> = (0..2).map(|index| Some(site.serve(index, "127.0.0.1:0"))).collect();
    let mut working: Vec<_> = (0..2).map(|index| Some(site.work(index))).collect();
    let behind: Vec<_> = serving.iter().flatten().collect();
    let front = Balancer::before(&behind).front(behind[0]);
    task.run(folder.path(), kills, &front, 4, |process| {
        let index = usize::try_from(process % 2).unwrap();
        if process < 2 {
            let listen = serving[index].as_ref().map(address).unwrap();
            drop(serving[index].take());
            serving[index] = Some(site.serve(index, &listen));
        } else {
            drop(working[index].take());
            working[index] = Some(site.work(index));
        }
    });
    assert_eq!(cluster.sql(&database, "SELECT count(*) FROM session_message WHERE message IS NOT NULL"), "0");
}
