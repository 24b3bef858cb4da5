//! Participants whose trainer is a program that needs only Python's standard library.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use learning::checkpoint;

use crate::support::{Background, Served, tributary};

/// The example of docs/PROGRAMS.md.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/silo");

/// Adds a quarter, a half or three quarters to every parameter, by the participant's index; reports 1, 2 or 3 examples. Of the one
/// with index 0 the first start waits for ever. All that the program can see lies in its checkpoint afterwards.
const TRAIN: &str = r#"
import json, os, struct, sys, time
index = int(sys.argv[1])
job = os.environ["TRIBUTARY_JOB"]
about = json.load(open(f"{job}/job.json"))
assert about["schema"] == 1 and about["task"] == "shift", about
if about["kind"] == "evaluate":
    sys.exit(75)
seen = open("/proc/self/environ").read() + open("/proc/self/cmdline").read()
seen += "".join(os.readlink(f"/proc/self/fd/{fd}") if os.path.islink(f"/proc/self/fd/{fd}") else "" for fd in os.listdir("/proc/self/fd"))
open(sys.argv[2] + f"/seen-{index}", "a").write(seen)
first = f"{sys.argv[2]}/first"
if index == 0 and not os.path.exists(first):
    open(first + ".new", "w").write(f"{os.getpid()}")
    os.rename(first + ".new", first)
    time.sleep(1000)
raw = open(f"{job}/model.safetensors", "rb").read()
start = 8 + struct.unpack("<Q", raw[:8])[0]
values = struct.unpack(f"<{(len(raw) - start) // 4}f", raw[start:])
trained = struct.pack(f"<{len(values)}f", *(value + (index + 1) / 4 for value in values))
open(f"{job}/draft", "wb").write(raw[:start] + trained)
os.rename(f"{job}/draft", f"{job}/trained.safetensors")
open(f"{job}/progress.jsonl", "a").write('{"step": 1, "of": 1, "loss": 0.5}\n')
open(f"{job}/draft", "w").write(json.dumps({"examples": index + 1, "metrics": {"train_loss": 0.5}}))
os.rename(f"{job}/draft", f"{job}/result.json")
"#;

const TASK: &str = r#"
name = "shift"
metrics = ["train_loss"]
[model]
tensors = [{ name = "w", shape = [2, 3], init = "zeros" }]
[rounds]
count = 2
[selection]
cohort = { count = 3 }
[aggregation]
max_weight = 10
[secure_aggregation]
max_corrupt_fraction = 0.0
"#;

/// Adds as the program above does, in every round; returns the number of starts.
const STAYS: &str = r#"
import sys
sys.path.insert(0, sys.argv[3])
import tributary
index = int(sys.argv[1])
open(f"{sys.argv[2]}/starts-{index}", "a").write("x")
for job in tributary.jobs():
    if job.kind == "evaluate":
        job.refuse("it only trains")
        continue
    trained = {name: [value + (index + 1) / 4 for value in values] for name, values in job.model().items()}
    job.progress(1, of=1, samples_per_s=100, step_s=0.5, communication_s=0.1, utilisation=0.75)
    job.done(trained, examples=index + 1, metrics={"train_loss": 0.5})
"#;

const SKIPPED: &str = "no python3, so no program trained for a participant";

fn has_python() -> bool {
    let version = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// The values of a task's newest model.
fn newest(served: &Served, folder: &Path, task: &str) -> learning::Parameters {
    let out = folder.join("model.safetensors");
    served.operate(&["model", "fetch", task, "--out", out.to_str().unwrap()]).data();
    let bytes = std::fs::read(&out).unwrap();
    let layout = std::sync::Arc::new(checkpoint::read_layout(&bytes).unwrap());
    checkpoint::read(&bytes, &layout).unwrap()
}

/// A coordinator with the task.
fn shift(folder: &Path) -> Served {
    let task = folder.join("task.toml");
    std::fs::write(&task, TASK).unwrap();
    let served = Served::dev(&folder.join("data"));
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    served
}

fn participant(served: &Served, folder: &Path, task: &str, index: usize, token: &str, trainer: &[&str]) -> Background {
    let child = tributary()
        .args(["--format", "json", "participant", "run", "--server", &served.url, "--ca", &served.ca, "--task", task])
        .args(["--min-cohort", "3", "--min-tolerated-colluders", "0"])
        .args(trainer)
        .arg(if trainer.is_empty() { "--trainer-attach" } else { "--trainer-dir" })
        .arg(folder.join(format!("jobs-{index}")))
        .arg("--name")
        .arg(format!("silo-{index}"))
        .arg("--journal")
        .arg(folder.join(format!("journal-{index}")))
        .env("TRIBUTARY_ENROLLMENT_TOKEN", token)
        .stdout(Stdio::from(std::fs::File::create(folder.join(format!("said-{index}"))).unwrap()))
        .spawn()
        .unwrap();
    Background(child)
}

/// Checks that the model is the result of two rounds of the three programs above, from zeros.
fn assert_trained(model: &learning::Parameters) {
    let mean = (1.0 * 0.25 + 2.0 * 0.5 + 3.0 * 0.75) / 6.0;
    for value in model.values() {
        assert!((value - 2.0 * mean).abs() < 1e-3, "{value} is not twice {mean}");
    }
}

/// Whether the process runs the program. Its number alone does not tell: one that was killed keeps it, without a command line,
/// until its new parent reaps it.
fn trains(pid: &str) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.contains("train.py")
}

#[test]
fn programs_train_in_secret_and_one_is_left_alone_by_its_participant() {
    if !has_python() {
        test_servers::skipped(SKIPPED);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("train.py"), TRAIN).unwrap();
    let served = shift(folder.path());
    let tokens: Vec<_> = (0..3).map(|_| served.enrollment_token()).collect();
    let start = |index: usize, token: &str| {
        let (script, at) = (path("train.py"), folder.path());
        let program = format!("exec python3 {} {index} {}", script.display(), at.display());
        participant(&served, at, "shift", index, token, &["--trainer", &program])
    };
    let mut silos: Vec<_> = (0..3).map(|index| start(index, &tokens[index])).collect();

    // The participant is killed, its program is not; the next one ends it, and trains.
    let pid = loop {
        if let Ok(pid) = std::fs::read_to_string(path("first")) {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    drop(silos.remove(0));
    assert!(trains(&pid), "nobody told it");
    silos.push(start(0, ""));
    let watched = served.operate(&["round", "watch", "shift"]);
    assert_eq!(watched.code, 0, "{watched}");
    for silo in &mut silos {
        assert_eq!(silo.0.wait().unwrap().code(), Some(0), "the task is over");
    }
    assert!(!trains(&pid), "nothing is left running");

    assert_trained(&newest(&served, folder.path(), "shift"));
    let said = std::fs::read_to_string(path("said-1")).unwrap();
    assert!(said.contains("\"program_progress\"") && said.contains("\"loss\":0.5"), "{said}");
    for (index, token) in tokens.iter().enumerate() {
        let seen = std::fs::read_to_string(path(&format!("seen-{index}"))).unwrap();
        assert!(seen.contains("TRIBUTARY_JOB="), "{seen}");
        for secret in [token.as_str(), &served.token, "TRIBUTARY_ENROLLMENT", "journal-", &served.url] {
            assert!(!seen.contains(secret), "the program can see {secret}");
        }
    }
}

/// A participant's Prometheus metrics, from the address that it prints.
pub(crate) fn metrics(said: &Path) -> String {
    let lines = std::fs::read_to_string(said).unwrap_or_default();
    let events = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let Some(told) = events.into_iter().find(|event| event["event"] == "metrics") else { return String::new() };
    let mut stream = TcpStream::connect(told["address"].as_str().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn programs_that_stay_are_started_once_for_all_rounds() {
    if !has_python() {
        test_servers::skipped(SKIPPED);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("stays.py"), STAYS).unwrap();
    let served = shift(folder.path());
    let line = |index: usize| format!("{} {index} {} {EXAMPLE}", path("stays.py").display(), folder.path().display());
    let start = |index: usize, trainer: &[&str]| {
        participant(&served, folder.path(), "shift", index, &served.enrollment_token(), trainer)
    };
    let (kept, each) = (format!("exec python3 {}", line(0)), format!("exec python3 {}", path("train.py").display()));
    std::fs::write(path("train.py"), TRAIN).unwrap();
    // The second one is not left alone in its first round.
    std::fs::write(path("first"), "").unwrap();
    let each = format!("{each} 1 {}", folder.path().display());
    let mut silos = vec![
        start(0, &["--trainer", &kept, "--trainer-keep", "--metrics", "127.0.0.1:0"]),
        start(1, &["--trainer", &each]),
        start(2, &[]),
    ];
    // The round waits for the third program, so that the first participant is still running.
    let told = loop {
        let told = metrics(&path("said-0"));
        if told.contains("tributary_program_samples_per_second 100") {
            break told;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    for line in ["tributary_program_starts_total 1", "tributary_program_utilisation 0.75"] {
        assert!(told.contains(line), "{told}");
    }
    let elsewhere = Command::new("python3").args(line(2).split(' ')).env("TRIBUTARY_JOBS", path("jobs-2")).spawn();
    let mut elsewhere = Background(elsewhere.unwrap());
    let watched = served.operate(&["round", "watch", "shift"]);
    assert_eq!(watched.code, 0, "{watched}");
    for silo in &mut silos {
        assert_eq!(silo.0.wait().unwrap().code(), Some(0), "the task is over");
    }
    assert_trained(&newest(&served, folder.path(), "shift"));
    for index in [0, 2] {
        assert_eq!(std::fs::read_to_string(path(&format!("starts-{index}"))).unwrap(), "x", "one start of {index}");
    }
    assert!(elsewhere.0.try_wait().unwrap().is_none(), "it was left alone");
}

/// Trains until it gets SIGTERM, and then ends slowly.
const SLOW: &str = r#"cd "$TRIBUTARY_JOB"; grep -q '"evaluate"' job.json && exit 75
trap 'sleep 1; : >checkpoint/ended; exit 1' TERM; : >checkpoint/begun; while :; do sleep 0.05; done"#;

#[test]
fn a_participant_that_is_stopped_ends_its_program_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let served = shift(folder.path());
    let start = |index: usize| {
        participant(&served, folder.path(), "shift", index, &served.enrollment_token(), &["--trainer", SLOW])
    };
    let silos: Vec<_> = (0..3).map(start).collect();
    let is_there = |index: usize, file: &str| {
        let jobs = std::fs::read_dir(path(&format!("jobs-{index}"))).into_iter().flatten().flatten();
        jobs.into_iter().any(|job| job.path().join("checkpoint").join(file).exists())
    };
    for index in 0..3 {
        while !is_there(index, "begun") {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    for (index, mut silo) in silos.into_iter().enumerate() {
        assert!(Command::new("kill").arg(silo.0.id().to_string()).status().unwrap().success());
        assert_eq!(silo.0.wait().unwrap().code(), Some(0), "it was stopped");
        assert!(is_there(index, "ended"), "the program of {index} had ended before");
    }
}

#[test]
fn the_example_fits_a_line_to_the_rows_of_three_sites() {
    if !has_python() {
        test_servers::skipped(SKIPPED);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    served.operate(&["task", "create", &format!("{EXAMPLE}/line.toml")]).data();
    let mut sites: Vec<_> = (0..3)
        .map(|index| {
            let rows = folder.path().join(format!("rows-{index}.csv"));
            let x = |row: u32| f64::from(row * 3 + index) / 15.0 - 1.0;
            let lines: String = (0..10).map(|row| format!("{},{}\n", x(row), 2.0 * x(row) + 1.0)).collect();
            std::fs::write(&rows, lines).unwrap();
            let program = format!("python3 {EXAMPLE}/line.py {}", rows.display());
            let trainer = ["--trainer", &program];
            participant(&served, folder.path(), "line", index as usize, &served.enrollment_token(), &trainer)
        })
        .collect();
    let watched = served.operate(&["round", "watch", "line"]);
    assert_eq!(watched.code, 0, "{watched}");
    for site in &mut sites {
        assert_eq!(site.0.wait().unwrap().code(), Some(0), "the task is over");
    }
    let line = newest(&served, folder.path(), "line");
    let value = |name: &str| line.tensor(line.layout().find(name).unwrap())[0];
    assert!((value("a") - 2.0).abs() < 0.05 && (value("b") - 1.0).abs() < 0.05, "{:?}", line.values());
    let shown = served.operate(&["round", "show", "line", "5"]).data();
    assert!(shown["metrics"]["loss"]["value"].as_f64().unwrap() < 0.01, "{shown}");
}
