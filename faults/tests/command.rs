//! The executable, as it is called.

use std::process::{Command, Output};

fn faults(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_faults")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn two_seeds_run_without_a_violation() {
    let run = faults(&["--seeds", "2", "--threads", "1"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let said = text(&run.stdout);
    assert!(said.starts_with("2 seeds from 0 on, ") && said.ends_with(" rounds: 0 violations\n"), "{said}");
}

#[test]
fn a_seed_of_one_profile_runs_without_a_violation() {
    let run = faults(&["--seeds", "1", "--first-seed", "5000", "--profile", "crashy"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert!(text(&run.stdout).starts_with("1 seeds from 5000 on, "), "{}", text(&run.stdout));
}

#[test]
fn replay_prints_each_event() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions/a-draw-that-nobody-is-told-of.json");
    let run = faults(&["--replay", file]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let said = text(&run.stdout);
    assert!(said.lines().count() > 10 && said.ends_with(" rounds\n"), "{said}");
}

#[test]
fn replay_names_a_file_that_is_missing() {
    let run = faults(&["--replay", "nosuch.json"]);
    assert_eq!(run.status.code(), Some(1));
    assert!(text(&run.stderr).contains("cannot read the schedule nosuch.json"), "{}", text(&run.stderr));
}
