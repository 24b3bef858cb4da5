//! Data that `tributary export` reads from a coordinator.

use std::time::{Duration, Instant};

use crate::operator::TASK;
use crate::support::Served;

#[test]
fn every_attempt_at_a_round_is_exported() {
    let folder = tempfile::tempdir().unwrap();
    // Deadlines are at least as long as a poll.
    let served = Served::dev_with(&folder.path().join("data"), &[("TRIBUTARY_HTTP_POLL_MAX_MS", "1000")]);
    let file = folder.path().join("task.toml");
    // Without participants two attempts fail, and the task is paused.
    std::fs::write(&file, TASK.replace("count = 2", "count = 2\nselect_deadline_ms = 1000\nmax_attempts = 2")).unwrap();
    served.operate(&["task", "create", file.to_str().unwrap()]).data();
    let end = Instant::now() + Duration::from_secs(120);
    while served.operate(&["task", "show", "digits"]).data()["status"] != "PAUSED" {
        assert!(Instant::now() < end, "the task goes on");
        std::thread::sleep(Duration::from_millis(100));
    }
    let out = folder.path().join("rounds.csv");
    let export = ["export", "digits", "--as", "csv", "--out", out.to_str().unwrap()];
    assert_eq!(served.operate(&export).data()["rounds"], 2);
    let text = std::fs::read_to_string(&out).unwrap();
    let rows: Vec<_> = text.lines().skip(1).map(|row| row.split(',').skip(2).take(3).collect::<Vec<_>>()).collect();
    assert_eq!(rows, [["1", "1", "FAILED"], ["1", "2", "FAILED"]], "{text}");
}
