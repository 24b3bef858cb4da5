//! `kill -9` in the middle of rounds, of the coordinator and of a participant: the published models stay the same.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Background, Served, run, tributary};

const ROUNDS: &str = "24";

/// Starts participant `index`; with a token it enrols, without one it goes on from its journal.
pub(crate) fn participant(served: &Served, folder: &Path, index: usize, token: Option<&str>) -> Background {
    participant_with(served, folder, index, token, &[])
}

/// Starts participants 0 to 2 with enrolment tokens.
pub(crate) fn three(served: &Served, folder: &Path) -> Vec<Background> {
    (0..3).map(|index| participant(served, folder, index, Some(&served.enrollment_token()))).collect()
}

/// Starts participant `index` with more flags.
pub(crate) fn participant_with(
    served: &Served,
    folder: &Path,
    index: usize,
    token: Option<&str>,
    flags: &[&str],
) -> Background {
    Background(participant_of(tributary(), served, folder, index, token).args(flags).spawn().unwrap())
}

/// Participant `index` as arguments of this command.
pub(crate) fn participant_of(
    mut command: Command,
    served: &Served,
    folder: &Path,
    index: usize,
    token: Option<&str>,
) -> Command {
    command
        .args(["participant", "run", "--server", &served.url, "--ca", &served.ca, "--participants", "3"])
        .args(["--seed", "5", "--index", &index.to_string(), "--task", "demo"])
        .args(["--min-cohort", "3", "--min-tolerated-colluders", "0"])
        .arg("--journal")
        .arg(folder.join(format!("journal-{index}")))
        .stdout(Stdio::null())
        .stderr(log(folder, index))
        .env("TRIBUTARY_LOG", "info,client_sdk=debug");
    if let Some(token) = token {
        command.args(["--token", token]);
    }
    command
}

/// File of a participant's stderr.
fn log(folder: &Path, index: usize) -> File {
    OpenOptions::new().create(true).append(true).open(folder.join(format!("participant-{index}.log"))).unwrap()
}

/// Output of all participants, for a test that fails.
pub(crate) fn logs(folder: &Path) -> String {
    (0..3).map(|i| std::fs::read_to_string(folder.join(format!("participant-{i}.log"))).unwrap_or_default()).collect()
}

pub(crate) fn rounds(served: &Served) -> Vec<Value> {
    let rounds = served.operate(&["round", "list", "demo"]).data();
    rounds.as_array().unwrap().clone()
}

pub(crate) fn wait_for_round(served: &Served, folder: &Path, number: u64) {
    let end = Instant::now() + Duration::from_secs(60);
    while rounds(served).first().is_none_or(|round| round["number"].as_u64().unwrap() < number) {
        let came = Instant::now() < end;
        assert!(came, "round {number} never came: {:?}\n{}", rounds(served).first(), logs(folder));
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    let end = Instant::now() + Duration::from_secs(120);
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

#[test]
fn nothing_is_lost_or_counted_twice_when_processes_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (data, task) = (folder.path().join("data"), folder.path().join("task.toml"));
    let undisturbed = run(&[
        "--format",
        "json",
        "demo",
        "--participants",
        "3",
        "--rounds",
        ROUNDS,
        "--seed",
        "5",
        "--task-file",
        task.to_str().unwrap(),
    ]);
    assert_eq!(undisturbed.code, 0, "{undisturbed}");
    let events = undisturbed.events();
    let expected: Vec<_> =
        events.iter().filter(|event| event["event"] == "round").map(|e| &e["model"]["sha256"]).collect();

    let mut served = Served::dev(&data);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let mut participants = three(&served, folder.path());
    for number in [3, 8, 13] {
        wait_for_round(&served, folder.path(), number);
        served = served.kill_and_restart(&data);
    }
    wait_for_round(&served, folder.path(), 17);
    drop(participants.remove(1));
    // A copy of a journal, as a backup takes it.
    copy(&folder.path().join("journal-1"), &folder.path().join("copy"));
    participants.push(participant(&served, folder.path(), 1, None));

    for child in &mut participants {
        assert_eq!(wait(&mut child.0), Some(0), "a participant did not get to the end: {:?}", rounds(&served).first());
    }
    let models = served.operate(&["model", "list", "demo"]).data();
    let published: Vec<_> = models.as_array().unwrap().iter().rev().skip(1).map(|model| &model["sha256"]).collect();
    assert_eq!(published, expected);
    for round in rounds(&served).iter().filter(|round| round["state"] == "COMPLETED") {
        assert_eq!(round["reported"], 3, "{round}");
    }

    // Continuing from the copy would send other inputs under used masks.
    drop(participants);
    std::fs::remove_dir_all(folder.path().join("journal-1")).unwrap();
    copy(&folder.path().join("copy"), &folder.path().join("journal-1"));
    let mut restored = participant(&served, folder.path(), 1, None);
    assert_eq!(wait(&mut restored.0), Some(12), "{}", logs(folder.path()));
    let said = logs(folder.path());
    assert!(said.contains("restored from a copy") && said.contains("enrol anew"), "{said}");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
