//! `participant run --once`: batch jobs that take part in one round each.

use std::path::Path;
use std::process::Command;

use crate::killed::{logs, participant_of, rounds, wait};
use crate::support::{Background, Served, run, tributary};

fn serve(folder: &Path) -> Served {
    Served::dev(&folder.join("data"))
}

/// Creates the task `demo` with this many rounds of three participants.
fn create(served: &Served, folder: &Path, count: &str) {
    let task = folder.join("task.toml");
    let args = ["--participants", "3", "--rounds", count, "--seed", "5", "--task-file", task.to_str().unwrap()];
    let demo = run(&[&["--format", "json", "demo"][..], &args].concat());
    assert_eq!(demo.code, 0, "{demo}");
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
}

fn job(served: &Served, folder: &Path, index: usize, token: Option<&str>, within: &str) -> Command {
    let mut command = participant_of(tributary(), served, folder, index, token);
    command.args(["--once", "--once-within", within]);
    command
}

/// Exit codes of three jobs that run at the same time.
fn jobs(served: &Served, folder: &Path, tokens: Option<&[String; 3]>) -> Vec<Option<i32>> {
    let start = |index: usize| {
        let token = tokens.map(|tokens| tokens[index].as_str());
        Background(job(served, folder, index, token, "100").spawn().unwrap())
    };
    let mut running: Vec<_> = (0..3).map(start).collect();
    running.iter_mut().map(|job| wait(&mut job.0)).collect()
}

#[test]
fn each_job_takes_part_in_one_round() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let served = serve(folder);
    create(&served, folder, "2");
    let tokens = [(); 3].map(|()| served.enrollment_token());
    assert_eq!(jobs(&served, folder, Some(&tokens)), [Some(0); 3], "{}", logs(folder));
    assert_eq!(jobs(&served, folder, None), [Some(0); 3], "{}", logs(folder));
    let all = rounds(&served);
    let reported: Vec<_> = all.iter().map(|round| (round["number"].as_u64(), round["reported"].as_u64())).collect();
    assert_eq!(reported, [(Some(2), Some(3)), (Some(1), Some(3))], "{all:?}\n{}", logs(folder));
    // The task is over.
    assert_eq!(jobs(&served, folder, None), [Some(19); 3], "{}", logs(folder));
    assert!(logs(folder).contains("There was nothing to do"), "{}", logs(folder));
}

#[test]
fn a_job_without_a_round_ends_with_19() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let served = serve(folder);
    let token = served.enrollment_token();
    let ends = |token: Option<&str>, within: &str, code: i32, words: &str| {
        let mut running = Background(job(&served, folder, 0, token, within).spawn().unwrap());
        assert_eq!(wait(&mut running.0), Some(code), "{}", logs(folder));
        assert!(logs(folder).contains(words), "{words}: {}", logs(folder));
    };
    // At once: nobody has created the task.
    ends(Some(&token), "100", 19, "there is no task called \"demo\"");
    // Two more participants are missing.
    create(&served, folder, "1");
    ends(None, "2", 19, "no round took this participant within 2 s");
    drop(served.process);
    let mut running = participant_of(tributary(), &named(&served.url, &served.ca), folder, 0, None);
    let mut running = Background(running.args(["--once", "--once-within", "1"]).spawn().unwrap());
    assert_eq!(wait(&mut running.0), Some(5), "{}", logs(folder));
}

/// The address of a coordinator that is gone.
fn named(url: &str, ca: &str) -> Served {
    Served {
        process: Background(Command::new("true").spawn().unwrap()),
        url: url.to_owned(),
        ca: ca.to_owned(),
        token: String::new(),
        signed: String::new(),
        health: String::new(),
    }
}

#[test]
fn once_within_needs_once_and_a_time() {
    let fails = |flags: &[&str]| {
        let args = ["participant", "run", "--server", "https://localhost:1", "--ca", "ca.pem", "--journal", "journal"];
        let ran = run(&[&args[..], flags].concat());
        assert_eq!(ran.code, 2, "{ran}");
    };
    fails(&["--once-within", "5"]);
    fails(&["--once", "--once-within", "0"]);
}
