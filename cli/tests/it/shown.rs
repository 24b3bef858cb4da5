//! Output of `round show`: everything that the coordinator knows of a round, without empty entries.

use std::path::Path;
use std::process::Stdio;

use crate::support::{Background, Served, tributary};
use serde_json::Value;

/// A round as programs see it, and as people do.
fn shown(served: &Served, task: &str, round: &str) -> (Value, String) {
    let show = ["round", "show", task, round];
    (served.operate(&show).data(), served.read(&show))
}

/// The words of each row below this heading.
fn rows<'a>(shown: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let lines = shown.lines().skip_while(|line| line.split_whitespace().next() != Some(heading)).skip(1);
    lines.take_while(|line| !line.is_empty()).map(|line| line.split_whitespace().collect()).collect()
}

fn score(of: &Value) -> Option<String> {
    of["anomaly"].as_f64().map(|score| format!("{score:.2}"))
}

#[test]
fn groups_are_shown_with_their_sizes_and_scores() {
    let folder = tempfile::tempdir().unwrap();
    let args = "--participants 9 --rounds 1 --robust median,attackers=0.05,group_size=3 --attack 0.1";
    let served = Served::demo(&folder.path().join("demo"), &args.split(' ').collect::<Vec<_>>());
    let (round, words) = shown(&served, "demo", "1");
    let expected: Vec<Vec<_>> = (0..3)
        .map(|group: usize| {
            let score = score(&round["groups"][group]).expect("its mean was compared");
            vec![group.to_string(), "3".to_owned(), "3".to_owned(), score]
        })
        .collect();
    assert_eq!(rows(&words, "GROUP"), expected, "{words}");
    assert!(words.contains("Secrecy     of 3 in each group: 2 shares open a sum"), "{words}");
    let cohort = rows(&words, "PARTICIPANT");
    assert_eq!(cohort.len(), 9, "{words}");
    for one in round["assignments"].as_array().unwrap() {
        let row = cohort.iter().find(|row| *row[0] == one["name"]).unwrap();
        let (group, score) = (one["group"].to_string(), score(one).unwrap());
        assert!(row.ends_with(&[&group, &score, "U1", "U2", "U3", "U4", "U5"]), "{row:?}: {words}");
    }
}

#[test]
fn who_is_unusual_is_seen_where_updates_are_open() {
    let folder = tempfile::tempdir().unwrap();
    let args = "--participants 5 --rounds 1 --insecure-aggregation --robust median --attack 0.2";
    let served = Served::demo(&folder.path().join("demo"), &args.split(' ').collect::<Vec<_>>());
    let (round, words) = shown(&served, "demo", "1");
    assert!(!words.contains("GROUP"), "there are none: {words}");
    let scores: Vec<f64> = rows(&words, "PARTICIPANT").iter().map(|row| row.last().unwrap().parse().unwrap()).collect();
    let expected = round["assignments"].as_array().unwrap().iter().map(|one| one["anomaly"].as_f64().unwrap());
    assert!(scores.iter().zip(expected).all(|(shown, score)| (shown - score).abs() < 0.006), "{words}");
    assert_eq!(scores.iter().filter(|score| **score > 5.0).count(), 1, "one of the five is hostile: {words}");
}

#[test]
fn updates_of_devices_that_train_ahead_are_shown_with_their_versions() {
    let folder = tempfile::tempdir().unwrap();
    let args = "--participants 9 --rounds 4 --mode buffered --seed 1";
    let served = Served::demo(&folder.path().join("demo"), &args.split(' ').collect::<Vec<_>>());
    let (round, words) = shown(&served, "demo", "4");
    let buffer = &round["buffer"];
    let [updates, oldest, newest, most] =
        ["updates", "oldest_version", "newest_version", "max_staleness"].map(|key| &buffer[key]);
    let [behind, weight] = ["mean_staleness", "mean_weight"].map(|key| buffer[key].as_f64().unwrap());
    let expected = format!(
        "Buffer      {updates} updates trained ahead of the round (buffered), from versions {oldest} to {newest}: {behind:.2} \
         versions behind on average, {most} at most; an update counts for {weight:.3}"
    );
    assert!(words.contains(&expected), "no {expected:?}: {words}");
    rounds_are_compared_by_what_each_is_shown_with(&served, [&shown(&served, "demo", "1").0, &round]);
}

fn rounds_are_compared_by_what_each_is_shown_with(served: &Served, rounds: [&Value; 2]) {
    let [first, last] = rounds.map(|round| format!("{}/{}", round["number"], round["attempt"]));
    let compare = ["round", "compare", "demo", &first, &last];
    let compared = served.operate(&compare).data();
    assert_eq!(compared["names"], serde_json::json!([format!("demo/{first}"), format!("demo/{last}")]));
    let lines = compared["last"].as_array().unwrap();
    for name in ["cohort", "reported", "bytes_up", "seconds"] {
        let line = lines.iter().find(|line| line["name"] == name).unwrap();
        let expected: Vec<_> = rounds.map(|round| round[name].as_f64()).into();
        let found: Vec<_> = line["values"].as_array().unwrap().iter().map(Value::as_f64).collect();
        assert_eq!(found, expected, "{name}");
    }
    let words = served.read(&compare);
    let collecting = rows(&words, "Numbers").into_iter().find(|row| row[0] == "phases.COLLECTING.seconds").unwrap();
    assert!(collecting.len() == 5 && collecting[2] == "s" && collecting[4] == "s", "{words}");
}

/// A rate at which every step makes the model worse, and a gate that sees it.
const RUINOUS: &str = r#"
name = "ruinous"
metrics = ["loss"]
[model.architecture]
kind = "linear"
inputs = 60
classes = 10
[training]
batch_size = 10
learning_rate = 50.0
[rounds]
count = 2
[selection]
cohort = { count = 3 }
[aggregation]
clip_range = 4.0
gate = { metric = "loss", max_fall = 0.5, better = "lower" }
"#;

fn participant(served: &Served, folder: &Path, index: usize) -> Background {
    let token = served.enrollment_token();
    let index = index.to_string();
    let mut command = tributary();
    command.args(["participant", "run", "--server", &served.url, "--ca", &served.ca, "--participants", "3"]);
    // Steps that are drawn at random may happen to make the model better.
    command.args(["--seed", "3", "--min-cohort", "3", "--min-tolerated-colluders", "0"]);
    command.args(["--token", &token, "--index", &index, "--task", "ruinous", "--journal"]);
    Background(command.arg(folder.join(&index)).stdout(Stdio::null()).spawn().unwrap())
}

#[test]
fn early_end_names_the_best_version_which_is_promoted() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let file = folder.path().join("task.toml");
    let rounds = "count = 9\nkeep_best = { metric = \"loss\", better = \"lower\" }\nstop_after = 1";
    let gate = "gate = { metric = \"loss\", max_fall = 0.5, better = \"lower\" }\n";
    std::fs::write(&file, RUINOUS.replace("count = 2", rounds).replace(gate, "")).unwrap();
    served.operate(&["task", "create", file.to_str().unwrap()]).data();
    let participants: Vec<_> = (0..3).map(|index| participant(&served, folder.path(), index)).collect();
    let watched = served.operate(&["round", "watch", "ruinous"]);
    drop(participants);
    assert!(watched.code == 0 && watched.events().iter().any(|event| event["event"] == "task_stopped"), "{watched}");

    let task = served.operate(&["task", "show", "ruinous"]).data();
    assert_eq!((&task["status"], &task["rounds_completed"]), (&"COMPLETED".into(), &2.into()), "{task}");
    assert_eq!(task["promoted_version"], 0, "the loss of version 1 is worse");
    let words = served.read(&["task", "show", "ruinous"]);
    assert!(words.contains("stop_after = 1 is reached: version 0 has the best loss"), "{words}");
    let fetched = folder.path().join("best.safetensors");
    served.operate(&["model", "fetch", "ruinous", "--promoted", "--out", fetched.to_str().unwrap()]).data();
    assert!(std::fs::metadata(fetched).unwrap().len() > 0);
}

#[test]
fn a_version_that_the_gate_took_back_is_said_and_what_a_round_has_not_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let file = folder.path().join("task.toml");
    std::fs::write(&file, RUINOUS).unwrap();
    served.operate(&["task", "create", file.to_str().unwrap()]).data();
    let participants: Vec<_> = (0..3).map(|index| participant(&served, folder.path(), index)).collect();
    let watched = served.operate(&["round", "watch", "ruinous"]);
    assert_eq!(watched.code, 0, "{watched}");
    drop(participants);

    let (round, words) = shown(&served, "ruinous", "2");
    assert_eq!(round["rolled_back_to"], 0, "{round}");
    let expected = "Rolled back to version 0, made once more: version 1 did not pass the task's gate";
    assert!(words.contains(expected), "{words}");

    let (round, words) = shown(&served, "ruinous", "1");
    assert_eq!(round["state"], "COMPLETED");
    for absent in ["Rolled back", "Buffer", "GROUP", "ANOMALY", "Spread", "Uploads", "Privacy"] {
        assert!(!words.contains(absent), "{absent}: {words}");
    }
}
