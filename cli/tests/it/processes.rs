//! Several processes with one coordinator get, bit for bit, the demo's model of one process.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
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
            let token = served.enrollment_token();
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
                .args(["--token", &token, "--index", &index.to_string(), "--task", "demo"])
                .args(["--min-cohort", "3", "--min-tolerated-colluders", "0"])
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

/// A victim and two participants that the coordinator made up.
#[test]
fn an_app_with_the_defaults_takes_no_part_with_two_others_and_is_said_to_at_creation() {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("task.toml");
    let spec = "name = \"three\"\n[model.architecture]\nkind = \"linear\"\ninputs = 784\nclasses = 10\n[rounds]\ncount = 1\n[selection]\n\
                cohort = { count = 3 }\n[secure_aggregation]\nmax_corrupt_fraction = 0.0\n";
    std::fs::write(&task, spec).unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let created = served.operate(&["task", "create", task.to_str().unwrap()]);
    let reasons = ["min_cohort is 3, and this participant takes part from 10 on", "tolerated_colluders is 0"];
    assert_eq!(created.data()["name"], "three");
    for reason in reasons {
        let note = format!("an app with the SDK's defaults takes no part in this task: {reason}");
        assert!(created.stderr.contains(&note), "{created}");
    }
    let token = served.enrollment_token();
    let mut child = tributary()
        .args([
            "--format",
            "json",
            "participant",
            "run",
            "--server",
            &served.url,
            "--ca",
            &served.ca,
            "--task",
            "three",
        ])
        .args(["--participants", "3", "--seed", "5", "--token", &token, "--max-staleness", "1"])
        .arg("--journal")
        .arg(folder.path().join("journal"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _ends_with_the_test = Background(child);
    let mut next = |name: &str| -> Value {
        let events = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        events.into_iter().find(|event| event["event"] == name).unwrap()
    };
    let lowered = next("lowered").to_string();
    assert!(lowered.contains("up to 1 versions behind, more than the default of 0"), "{lowered}");
    let others: Vec<_> = (1..3).map(|index| made_up(&served, folder.path(), index)).collect();
    let refused = next("refused").to_string();
    assert!(refused.contains(reasons[0]), "{refused}");
    drop(others);
}

/// A participant that takes part in anything.
fn made_up(served: &Served, folder: &Path, index: usize) -> Background {
    let token = served.enrollment_token();
    let child = tributary()
        .args(["participant", "run", "--server", &served.url, "--ca", &served.ca, "--task", "three", "--seed", "5"])
        .args(["--participants", "3", "--min-cohort", "3", "--min-tolerated-colluders", "0"])
        .args(["--token", &token, "--index", &index.to_string(), "--journal"])
        .arg(folder.join(format!("journal-{index}")))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Background(child)
}
