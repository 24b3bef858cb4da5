//! An older database lacks rounds that participants have taken part in. They refuse rounds with numbers that they have sent
//! an input for, the coordinator reports that, and one command moves the task past them, with the same cohort.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::killed::{logs, rounds, three, wait_for_round};
use crate::support::{Served, run};

/// Copies the files of the database from one folder to another, and replaces those there.
fn copy_database(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in ["coordinator.db", "coordinator.db-wal", "coordinator.db-shm"] {
        let _ = std::fs::remove_file(to.join(name));
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

pub(crate) fn wait_for<T>(what: &str, folder: &Path, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(90);
    while Instant::now() < end {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what} never came: {}", logs(folder));
}

/// How a test stops its coordinator, changes its rows, and starts it again at the same address.
pub(crate) struct Rows<'a> {
    pub(crate) restart: &'a dyn Fn(Served, &dyn Fn()) -> Served,
    /// Done early in the task, while the coordinator is stopped.
    pub(crate) keep: &'a dyn Fn(),
    /// Runs some rounds later: the rows forget the changes in between.
    pub(crate) forget: &'a dyn Fn(),
}

/// Writes a task of 200 rounds whose cohort is all three participants.
pub(crate) fn task_of_three(folder: &Path) -> String {
    let task = folder.join("task.toml").display().to_string();
    let ran = run(&["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", &task]);
    assert_eq!(ran.code, 0, "{ran}");
    let text = std::fs::read_to_string(&task).unwrap();
    assert!(text.contains("count = 1\n"), "{text}");
    std::fs::write(&task, text.replacen("count = 1\n", "count = 200\n", 1)).unwrap();
    task
}

/// The rows lack rounds that all three members of the cohort were in. After `task rebase` the same three continue with their journals.
pub(crate) fn the_same_cohort_goes_on(folder: &Path, mut served: Served, rows: &Rows<'_>) {
    served.operate(&["task", "create", &task_of_three(folder)]).data();
    let _participants = three(&served, folder);
    wait_for_round(&served, folder, 3);
    served = (rows.restart)(served, rows.keep);
    wait_for_round(&served, folder, 9);
    // All three have sent an input for a round that is completed; the newest may only select.
    let completed = |round: &&Value| round["state"] == "COMPLETED";
    let last = rounds(&served).iter().find(completed).and_then(|round| round["number"].as_u64());
    assert!(last.is_some());
    served = (rows.restart)(served, rows.forget);

    let show = |served: &Served| served.operate(&["task", "show", "demo"]).data();
    let behind = wait_for("what they say", folder, || {
        let shown = show(&served)["behind"].clone();
        (shown["participants"] == 3).then_some(shown)
    });
    // Rounds may have ended between the look at them and the stop.
    let (next, seen) = (behind["next_round"].as_u64(), behind["seen_round"].as_u64());
    assert!(next.is_some() && next <= seen && seen >= last, "{behind}, {last:?}");
    let text = served.read(&["task", "show", "demo"]);
    assert!(text.contains("tributary task rebase"), "{text}");

    let completed = wait_for("a round beyond", folder, || {
        // Again for a participant that was a round ahead of the others, which may report it while the command runs.
        let behind = show(&served)["behind"].clone();
        if !behind.is_null() {
            let still = served.operate(&["task", "rebase", "demo"]).data()["behind"].clone();
            assert!(
                still.is_null() || still["seen_round"].as_u64() > behind["seen_round"].as_u64(),
                "{behind}, {still}"
            );
        }
        rounds(&served).into_iter().find(|round| round["state"] == "COMPLETED" && round["number"].as_u64() > seen)
    });
    assert_eq!((&completed["reported"], &completed["dropped"]), (&Value::from(3), &Value::from(0)), "{completed}");
}

#[test]
fn after_an_older_database_the_same_cohort_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let rows = Rows {
        restart: &|served, act| served.kill_and_restart_after(&data, act),
        keep: &|| copy_database(&data, &backup),
        forget: &|| copy_database(&backup, &data),
    };
    the_same_cohort_goes_on(folder.path(), Served::dev(&data), &rows);
}

/// Number of frames of the log that belong to it, and the length of one: <https://www.sqlite.org/fileformat2.html#walformat>.
fn frames(log: &[u8]) -> (usize, usize) {
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap());
    let frame = 24 + usize::try_from(page).unwrap();
    let salts = &log[16..24];
    (log[32..].chunks_exact(frame).take_while(|frame| frame[8..16] == *salts).count(), frame)
}

#[test]
fn after_half_a_write_ahead_log_the_same_cohort_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let log = data.join("coordinator.db-wal");
    let rows = Rows {
        restart: &|served, act| {
            // Long enough for some rounds, and not so long that it starts again (at 1,000) before the kill.
            wait_for("a log of some rounds", folder.path(), || {
                (400..=800).contains(&frames(&std::fs::read(&log).unwrap()).0).then_some(())
            });
            served.kill_and_restart_after(&data, act)
        },
        keep: &|| (),
        forget: &|| {
            let bytes = std::fs::read(&log).unwrap();
            let (count, frame) = frames(&bytes);
            std::fs::write(&log, &bytes[..32 + count / 2 * frame]).unwrap();
            std::fs::remove_file(data.join("coordinator.db-shm")).unwrap();
        },
    };
    the_same_cohort_goes_on(folder.path(), Served::dev(&data), &rows);
}
