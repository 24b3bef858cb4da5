//! Several processes against one coordinator learn, bit for bit, what the demo learns in one.

use std::process::Stdio;

use crate::support::{Background, Served, run, tributary};
use serde_json::Value;

#[test]
fn participants_in_processes_of_their_own_publish_what_the_demo_publishes() {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("task.toml");
    let demo = run(&[
        "--format",
        "json",
        "demo",
        "--participants",
        "3",
        "--rounds",
        "2",
        "--seed",
        "5",
        "--task-file",
        task.to_str().unwrap(),
    ]);
    assert_eq!(demo.code, 0, "{demo}");
    let published: Vec<Value> = demo
        .events()
        .into_iter()
        .filter(|event| event["event"] == "round")
        .map(|round| round["model"]["sha256"].clone())
        .collect();

    let served = Served::dev(&folder.path().join("data"));
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let mut participants: Vec<_> = (0..3)
        .map(|index| {
            let token = served.operate(&["token", "create", "--enrollment"]).data();
            let child = tributary()
                .args([
                    "participant",
                    "run",
                    "--server",
                    &served.url,
                    "--ca",
                    &served.ca,
                    "--participants",
                    "3",
                    "--seed",
                    "5",
                ])
                .args(["--token", token["token"].as_str().unwrap(), "--index", &index.to_string(), "--task", "demo"])
                .arg("--journal")
                .arg(folder.path().join(format!("journal-{index}")))
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            Background(child)
        })
        .collect();
    let watched = served.operate(&["round", "watch", "demo"]);
    assert_eq!(watched.code, 0, "{watched}");
    for participant in &mut participants {
        assert_eq!(participant.0.wait().unwrap().code(), Some(0), "the task is over");
    }
    let mut models = served.operate(&["model", "list", "demo"]).data();
    let models: Vec<Value> =
        models.as_array_mut().unwrap().iter().rev().skip(1).map(|model| model["sha256"].clone()).collect();
    assert_eq!(models, published);

    let listed = served.operate(&["participant", "list"]).data();
    assert_eq!(listed.as_array().unwrap().len(), 3);
    let shown = served.operate(&["participant", "show", "participant-001"]).data();
    assert_eq!(shown["participations"], 2);
    let revoked = served.operate(&["participant", "revoke", "participant-001"]).data();
    assert!(revoked["revoked_at"].is_number());
}
