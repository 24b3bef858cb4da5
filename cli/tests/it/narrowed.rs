//! Commands that list have the API's filters, under the same names.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::operator::TASK;
use crate::support::{Background, Served, tributary};

/// A coordinator with these tasks, created in this order.
fn with_tasks(folder: &std::path::Path, names: &[&str]) -> Served {
    let served = Served::dev(&folder.join("data"));
    let file = folder.join("task.toml");
    for name in names {
        std::fs::write(&file, TASK.replace("digits", name)).unwrap();
        served.operate(&["task", "create", file.to_str().unwrap()]).data();
    }
    served
}

/// The values of a field of all items of a list.
fn listed(served: &Served, args: &[&str], field: &str) -> Vec<String> {
    let items = served.operate(args).data();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    items.as_array().unwrap().iter().map(|item| text(&item[field])).collect()
}

/// Repeats a list command until the list is not empty.
fn awaited(served: &Served, args: &[&str], field: &str) -> Vec<String> {
    loop {
        let found = listed(served, args, field);
        if !found.is_empty() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn tasks_rounds_and_events_are_found_by_state_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let served = with_tasks(folder.path(), &["a", "b", "c"]);
    served.operate(&["task", "pause", "a"]).data();
    served.operate(&["task", "cancel", "b"]).data();
    let tasks = |args: &[&str]| listed(&served, &[&["task", "list"], args].concat(), "name");
    assert_eq!(tasks(&["--state", "PAUSED"]), ["a"]);
    assert_eq!(tasks(&["--state", "PAUSED,CANCELLED"]), ["b", "a"]);
    assert_eq!(tasks(&["--state", "PAUSED", "--state", "ACTIVE"]), ["c", "a"]);
    assert_eq!(served.read(&["task", "list", "--state", "COMPLETED"]), "None is like that.\n");

    let all = served.operate(&["task", "list"]).data();
    let all: Vec<(i64, &str)> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|task| (task["created_at"].as_i64().unwrap(), task["name"].as_str().unwrap()))
        .collect();
    for (since, _) in &all {
        let expected: Vec<_> = all.iter().filter(|(at, _)| at >= since).map(|(_, name)| *name).collect();
        assert_eq!(tasks(&["--since", &since.to_string()]), expected);
        let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(*since) * 1_000_000).unwrap();
        assert_eq!(tasks(&["--since", &time.format(&Rfc3339).unwrap()]), expected, "{time}");
    }
    assert_eq!(tasks(&["--since", "9999-01-01T00:00:00Z"]), [""; 0]);

    assert_eq!(awaited(&served, &["round", "list", "c", "--state", "SELECTING,FAILED"], "number"), ["1"]);
    assert_eq!(listed(&served, &["round", "list", "c", "--state", "COMPLETED"], "number"), [""; 0]);
    assert_eq!(listed(&served, &["round", "list", "c", "--since", "9999-01-01T00:00:00Z"], "number"), [""; 0]);

    let events = ["audit", "list", "--kind", "task_cancelled,task_rebased", "--since", "1970-01-01T00:00:00Z"];
    assert_eq!(awaited(&served, &events, "kind"), ["task_cancelled"]);
    let later = ["audit", "list", "--kind", "task_cancelled", "--since", "9999-01-01T00:00:00Z"];
    assert_eq!(listed(&served, &later, "kind"), [""; 0]);
    let by = |options: &[&'static str]| {
        let made = ["audit", "list", "--kind", "task_paused,task_created", "--task", "a"];
        listed(&served, &[&made[..], options].concat(), "kind")
    };
    let actor = served.operate(&["audit", "list", "--kind", "task_paused"]).data()[0]["actor"].clone();
    let actor = actor["token"].as_str().unwrap().to_owned();
    let made = ["audit", "list", "--kind", "task_paused", "--actor", &actor];
    assert_eq!(listed(&served, &made, "kind"), ["task_paused"]);
    assert_eq!(by(&["--actor", "coordinator"]), [""; 0]);
    assert_eq!(by(&["--until", "9999-01-01T00:00:00Z"]), ["task_paused", "task_created"]);
    assert_eq!(by(&["--until", "1970-01-01T00:00:00Z"]), [""; 0]);
    assert_eq!(served.read(&["round", "devices", "--since", "9999-01-01T00:00:00Z"]), "None is like that.\n");
    assert_eq!(served.read(&["round", "devices"]), "No round was summed yet.\n");
}

#[test]
fn participants_are_found_by_labels_and_state() {
    let folder = tempfile::tempdir().unwrap();
    let served = with_tasks(folder.path(), &["digits"]);
    let _running = [("ward-1", "eu"), ("ward-2", "us")].map(|(name, region)| {
        let label = format!("region={region}");
        let create = ["token", "create", "--enrollment", "--name", name, "--label", &label, "--label", "kind=ward"];
        let token = served.operate(&create).data()["token"].as_str().unwrap().to_owned();
        let mut command = tributary();
        command.args(["participant", "run", "--server", &served.url, "--ca", &served.ca, "--token", &token]);
        command.args(["--task", "digits", "--participants", "3", "--journal"]).arg(folder.path().join(name));
        Background(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    });
    let list = |args: &[&'static str]| [&["participant", "list"], args].concat();
    assert_eq!(awaited(&served, &list(&["--label", "region=eu"]), "name"), ["ward-1"]);
    assert_eq!(awaited(&served, &list(&["--label", "region=us", "--label", "kind=ward"]), "name"), ["ward-2"]);
    assert_eq!(listed(&served, &list(&["--label", "region=eu", "--label", "kind=icu"]), "name"), [""; 0]);
    assert_eq!(
        listed(&served, &list(&["--label", "region=eu", "--since", "1970-01-01T00:00:00Z"]), "name"),
        ["ward-1"]
    );
    assert_eq!(listed(&served, &list(&["--since", "9999-01-01T00:00:00Z"]), "name"), [""; 0]);
    let seen = served.operate(&["participant", "show", "ward-1"]).envelope()["etag"].as_str().unwrap().to_owned();
    assert!(served.read(&["participant", "show", "ward-1"]).contains("\nETag         \""));
    assert_eq!(served.operate(&["participant", "revoke", "ward-1", "--if-match", "0-0"]).code, 8, "another one");
    assert_eq!(listed(&served, &list(&["--state", "revoked"]), "name"), [""; 0]);
    served.operate(&["participant", "revoke", "ward-1", "--if-match", &seen]).data();
    assert_eq!(listed(&served, &list(&["--state", "revoked"]), "name"), ["ward-1"]);
    assert_eq!(listed(&served, &list(&["--state", "active", "--label", "kind=ward"]), "name"), ["ward-2"]);
    assert_eq!(served.read(&list(&["--state", "active", "--label", "region=eu"])), "None is like that.\n");
}
