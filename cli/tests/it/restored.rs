//! An older database is restored under participants that have gone on: they take no part in rounds whose numbers they have sent
//! for, the coordinator says so, and one command goes on beyond.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::killed::{logs, participant, rounds, three, wait_for_round};
use crate::support::{Served, run};

/// The files of the database, from one folder to another, where none is left.
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

#[test]
fn after_an_older_database_everybody_is_told_and_a_rebase_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (data, task) = (folder.path().join("data"), folder.path().join("task.toml"));
    let demo = ["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", task.to_str().unwrap()];
    let ran = run(&demo);
    assert_eq!(ran.code, 0, "{ran}");
    let text = std::fs::read_to_string(&task).unwrap();
    assert!(text.contains("count = 1\n"), "{text}");
    std::fs::write(&task, text.replacen("count = 1\n", "count = 200\n", 1)).unwrap();

    let mut served = Served::dev(&data);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let _participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 3);
    let backup = folder.path().join("backup");
    served = served.kill_and_restart_after(&data, || copy_database(&data, &backup));
    wait_for_round(&served, folder.path(), 9);
    served = served.kill_and_restart_after(&data, || copy_database(&backup, &data));

    let show = |served: &Served| served.operate(&["task", "show", "demo"]).data();
    let behind = wait_for("what they say", folder.path(), || {
        let shown = show(&served)["behind"].clone();
        (shown["participants"] == 3).then_some(shown)
    });
    let (next, seen) = (behind["next_round"].as_u64().unwrap(), behind["seen_round"].as_u64().unwrap());
    assert!(next < 9 && (8..=12).contains(&seen), "{behind}");
    let text = served.read(&["task", "show", "demo"]);
    assert!(text.contains("tributary task rebase"), "{text}");

    let rebased = served.operate(&["task", "rebase", "demo"]).data();
    assert_eq!(rebased["behind"], Value::Null);
    // The three have answered from the restored model and give nothing more from it; whoever has not goes on.
    let elsewhere = folder.path().join("newcomers");
    std::fs::create_dir(&elsewhere).unwrap();
    let _newcomers: Vec<_> = (0..3)
        .map(|index| {
            let name = format!("newcomer-{index}");
            let token = served.operate(&["token", "create", "--enrollment", "--name", &name]).data();
            participant(&served, &elsewhere, index, token["token"].as_str())
        })
        .collect();
    let completed = wait_for("a round beyond", &elsewhere, || {
        rounds(&served).into_iter().find(|round| round["state"] == "COMPLETED" && round["number"].as_u64() > Some(seen))
    });
    // An old one that is drawn beside newcomers steps back, and the round goes on with them.
    let number = completed["number"].to_string();
    let round = served.operate(&["round", "show", "demo", &number]).data();
    let drawn = round["assignments"].as_array().unwrap();
    assert_eq!(drawn.len(), 3, "{round}");
    for one in drawn {
        let newcomer = one["name"].as_str().unwrap().starts_with("newcomer-");
        assert_eq!(one["state"], if newcomer { "REPORTED" } else { "ABANDONED" }, "{one}");
    }
    assert!(completed["reported"].as_u64() >= Some(2), "{completed}");
}
