//! The audit log of a coordinator: exported, verified offline, with tampering located.

use std::path::Path;

use serde_json::Value;

use crate::operator::TASK;
use crate::support::{Ran, Served, run};

fn offline(args: &[&str]) -> Ran {
    run(&[&["--format", "json"], args].concat())
}

/// The log once it is signed up to the end of all actions.
fn head(served: &Served, kind: &str) -> Value {
    for _ in 0..400 {
        let newest = served.operate(&["audit", "list", "--kind", kind]).data()[0]["position"].as_u64();
        let view = served.operate(&["audit", "head"]).data();
        if newest.is_some() && view["head"]["position"].as_u64() >= newest {
            return view;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("no head was signed for {kind}");
}

fn replace(file: &Path, from: &[u8], to: &[u8]) -> usize {
    let mut bytes = std::fs::read(file).unwrap();
    let places: Vec<_> =
        (0..bytes.len().saturating_sub(from.len())).filter(|at| bytes[*at..].starts_with(from)).collect();
    for at in &places {
        bytes[*at..*at + to.len()].copy_from_slice(to);
    }
    std::fs::write(file, bytes).unwrap();
    places.len()
}

#[test]
fn a_log_is_exported_and_whatever_was_changed_in_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let data = folder.path().join("data");
    let served = Served::dev(&data);
    std::fs::write(path("task.toml"), TASK).unwrap();
    served.operate(&["task", "create", &path("task.toml")]).data();
    served.operate(&["task", "pause", "digits"]).data();
    let kept = head(&served, "task_paused");
    let key = kept["key"].as_str().unwrap().to_owned();
    std::fs::write(path("head.json"), kept["head"].to_string()).unwrap();
    served.operate(&["task", "resume", "digits"]).data();
    head(&served, "task_resumed");

    let log = path("audit.ndjson");
    served.operate(&["audit", "export", &log]).data();
    assert_eq!(served.operate(&["audit", "export", &log]).code, 15, "nothing is overwritten");
    let verified = offline(&["audit", "verify", &log, "--key", &key, "--head", &path("head.json")]).data();
    let text = std::fs::read_to_string(&log).unwrap();
    assert_eq!(verified["entries"].as_u64(), Some(text.lines().count() as u64 - 2));
    assert_eq!(verified["key_was_given"], true);
    assert_eq!(offline(&["audit", "verify", &log]).data()["key_was_given"], false);

    let listed = served.operate(&["audit", "list", "--task", "digits", "--kind", "task_paused"]).data();
    let position = listed[0]["position"].as_u64().unwrap();
    let verify = |name: &str, text: &str, args: &[&str]| {
        std::fs::write(path(name), text).unwrap();
        offline(&[&["audit", "verify", &path(name)], args].concat())
    };
    let changed = verify("changed", &text.replace("task_paused", "task_resumed"), &[]);
    assert!(changed.code == 17 && changed.stderr.contains(&format!("position {position} was changed")), "{changed}");
    let short: String = text.lines().take(4).map(|line| line.to_owned() + "\n").collect();
    let cut = verify("cut", &short, &[]);
    assert!(cut.code == 17 && cut.stderr.contains("cut off"), "{cut}");
    let other = verify("other", &text, &["--key", &"ab".repeat(32)]);
    assert!(other.code == 17 && other.stderr.contains(&key), "{other}");
    assert_eq!(verify("none", "hello\n", &[]).code, 17);
    assert_eq!(offline(&["audit", "verify", &path("absent")]).code, 4);
    assert_eq!(offline(&["audit", "verify", &log, "--key", "ab"]).code, 2);
    assert_eq!(offline(&["audit", "verify", &log, "--head", &path("task.toml")]).code, 4);

    // In the database itself, all of it in one file.
    drop(served);
    let keep = |args: &[&str]| offline(&[args, &["--data-dir", data.to_str().unwrap()]].concat());
    assert_eq!(keep(&["backup", &path("backup")]).code, 0);
    assert_eq!(keep(&["restore", &path("backup"), "--replace"]).code, 0);
    let whole = keep(&["fsck"]);
    assert_eq!(whole.code, 0, "{whole}");
    let events = whole.events().into_iter().find(|event| event["event"] == "checked").unwrap()["events"].as_u64();
    assert!(events >= verified["entries"].as_u64(), "{whole}");
    assert!(replace(&data.join("coordinator.db"), br#"{"name":"digits"}"#, br#"{"name":"dogots"}"#) > 0);
    let found = keep(&["fsck"]);
    assert!(found.code == 17 && found.stdout.contains("\"audit\"") && found.stdout.contains("was changed"), "{found}");
}
