//! After `kill -9` a coordinator logs its findings and resumes, as text and as fields.

#![cfg(unix)]

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::killed::{rounds, three, wait_for_round};
use crate::restored::wait_for;
use crate::support::{Background, Served, run};

fn signal(process: &Background, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.0.id().to_string()]).status().unwrap().success());
}

/// Stops one participant while a round collects and others have reported: that round stays as it is.
fn stop_in_the_middle(served: &Served, process: &Background) -> Value {
    for _ in 0..300 {
        signal(process, "-STOP");
        // Messages of the others still arrive.
        let mut before = None;
        let round = loop {
            std::thread::sleep(Duration::from_millis(100));
            let round = rounds(served).remove(0);
            let now = ["number", "attempt", "state", "reported"].map(|key| round[key].clone());
            if before.as_ref() == Some(&now) {
                break round;
            }
            before = Some(now);
        };
        if round["state"] == "COLLECTING" && round["reported"].as_u64() >= Some(1) {
            return round;
        }
        signal(process, "-CONT");
        std::thread::sleep(Duration::from_millis(7));
    }
    panic!("no round was caught while it collected: {:?}", rounds(served).first());
}

#[test]
fn a_start_tells_what_it_found_and_goes_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let (data, task) = (folder.path().join("data"), folder.path().join("task.toml"));
    let demo = ["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", task.to_str().unwrap()];
    assert_eq!(run(&demo).code, 0);
    let text = std::fs::read_to_string(&task).unwrap();
    std::fs::write(&task, text.replacen("count = 1\n", "count = 500\n", 1)).unwrap();
    let served = Served::dev(&data);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 2);
    let open = stop_in_the_middle(&served, &participants[2]);

    let Served { process, url, token, .. } = served;
    drop(process);
    // An upload that the process was in the middle of.
    std::fs::write(data.join("blobs/tmp/7"), "half of it").unwrap();
    let log = folder.path().join("again.log");
    let served = Served::dev_logging(&url, &data, &log);
    let served = Served { token, ..served };
    let lines: Vec<Value> = std::fs::read_to_string(&log)
        .unwrap()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["level"] == "INFO")
        .map(|line| line["fields"].clone())
        .collect();
    let line = |part: &str| {
        let told = |line: &&Value| line["message"].as_str().is_some_and(|message| message.contains(part));
        lines.iter().find(told).unwrap_or_else(|| panic!("{part:?} is not told: {lines:#?}"))
    };
    let found = line("found tasks: 1 ACTIVE; 1 round is open");
    assert_eq!(
        (&found["tasks_active"], &found["tasks_paused"], &found["open_rounds"]),
        (&1.into(), &0.into(), &1.into())
    );
    assert_eq!(found["unfolded_inputs"], open["reported"], "none of so few is folded before the phase ends");
    assert!(found["leases_taken_over"].is_u64(), "{found}");
    let round = line("of task demo goes on: COLLECTING until 20");
    assert_eq!(
        (&round["name"], &round["round"], &round["phase"]),
        (&"demo".into(), &open["number"], &"COLLECTING".into())
    );
    assert_eq!(line("unfinished")["unfinished"], 1);
    assert!(!data.join("blobs/tmp/7").exists());

    signal(&participants[2], "-CONT");
    let number = open["number"].as_u64().unwrap();
    let closed = wait_for("the end of that round", folder.path(), || {
        rounds(&served).into_iter().find(|round| round["number"] == number && round["state"] == "COMPLETED")
    });
    assert_eq!(closed["reported"], 3, "{closed}");
    assert_eq!(closed["attempt"], open["attempt"], "the same attempt");
}
