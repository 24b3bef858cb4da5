//! Tasks from layers: short flags, files, presets and `--set` make the task that a file of the same keys makes.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::support::{Served, run};

/// The task that the demo writes for these words.
fn written(folder: &Path, name: &str, words: &[&str]) -> String {
    let file = folder.join(format!("{name}.toml"));
    let ran =
        run(&[&["demo", "--rounds", "1", "--threads", "1", "--task-file", file.to_str().unwrap()], words].concat());
    assert_eq!(ran.code, 0, "{words:?}: {ran}");
    std::fs::read_to_string(file).unwrap()
}

fn demo(words: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "task", &words.split(' ').collect::<Vec<_>>())
}

#[test]
fn short_flags_make_the_task_files_that_they_always_made() {
    let lines: Vec<_> = include_str!("task_files.txt").lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() >= 40, "{}", lines.len());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (expected, flags) = line.split_once(' ').unwrap();
                    let task = demo(flags);
                    assert_eq!(hex(digest(&SHA256, task.as_bytes()).as_ref()), expected, "{flags}\n{task}");
                }
            });
        }
    });
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_short_flag_is_what_set_says_and_what_a_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    for (flags, sets, text) in [
        (
            "--codec top_k,k=50,feedback=no --insecure-aggregation",
            "--set compression.codec=top_k --set compression.k=50 --set compression.error_feedback=false --set \
             secure_aggregation.enabled=false",
            "compression = { codec = \"top_k\", k = 50, error_feedback = false }\nsecure_aggregation = { enabled = false }",
        ),
        (
            "--server-optimizer fed_adam --server-lr 0.1 --lr 0.02 --solver fed_nova,steps=7",
            "--set aggregation.optimizer={name=\"fed_adam\",learning_rate=0.1} --set training.learning_rate=2e-2 --set \
             training.solver.name=fed_nova --set training.solver.steps=7",
            "[aggregation.optimizer]\nname = \"fed_adam\"\nlearning_rate = 0.1\n[training]\nlearning_rate = 0.02\n\
             solver = { name = \"fed_nova\", steps = 7 }",
        ),
        (
            "--mode semi-sync --period 1 --max-staleness 3",
            "--set schedule.mode=semi_sync --set schedule.period_ms=1000 --set schedule.max_staleness=3",
            "[schedule]\nmode = \"semi_sync\"\nperiod_ms = 1000\nmax_staleness = 3",
        ),
    ] {
        let short = demo(&format!("--participants 6 {flags}"));
        assert_eq!(short, demo(&format!("--participants 6 {sets}")), "{sets}");
        std::fs::write(&file, text).unwrap();
        assert_eq!(short, demo(&format!("--participants 6 --task {}", file.display())), "{text}");
    }
}

#[test]
fn later_layers_come_above_earlier_ones() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "name = \"mine\"\n[training]\nepochs = 3\nbatch_size = 7\n[rounds]\ncount = 4\n").unwrap();
    let words =
        ["--participants", "3", "--task", file.to_str().unwrap(), "--epochs", "2", "--set", "training.epochs=1"];
    let task: toml::Table = toml::from_str(&written(folder.path(), "all", &words)).unwrap();
    assert_eq!(task["name"].as_str(), Some("mine"));
    let training = &task["training"];
    assert_eq!((training["epochs"].as_integer(), training["batch_size"].as_integer()), (Some(1), Some(7)));
    // `--rounds 1` is a short flag, and defaults depend on the data.
    assert_eq!(task["rounds"]["count"].as_integer(), Some(1));
    assert_eq!(
        (&training["learning_rate"].as_float(), task["rounds"]["select_max"].as_integer()),
        (&Some(0.01), Some(3))
    );
    // A cohort that is given by the flag comes between the file's and the one that is set.
    std::fs::write(&file, "[selection]\ncohort = { fraction = 0.5 }\n").unwrap();
    let words =
        ["--participants", "8", "--task", file.to_str().unwrap(), "--cohort", "6", "--set", "selection.cohort.count=5"];
    for (words, cohort, most) in
        [(&words[..4], "fraction = 0.5", 4), (&words[..6], "count = 6", 6), (&words, "count = 5", 5)]
    {
        let text = written(folder.path(), "cohort", words);
        assert!(text.contains(&format!("[selection.cohort]\n{cohort}\n")), "{text}");
        assert!(text.contains(&format!("collect_max = {most}\n")), "{text}");
    }
    std::fs::write(&file, "[training]\nepochs = 3\n").unwrap();
    let words = ["--participants", "3", "--task", file.to_str().unwrap(), "--epochs", "2"];
    let untouched: toml::Table = toml::from_str(&written(folder.path(), "few", &words)).unwrap();
    assert_eq!(untouched["training"]["epochs"].as_integer(), Some(2));
}

#[test]
fn a_task_that_the_demo_wrote_is_the_same_task_again() {
    let folder = tempfile::tempdir().unwrap();
    for (name, words) in [
        ("plain", "--participants 4 --cohort 3 --seed 7"),
        ("coded", "--participants 5 --codec rotated,bits=3 --model mlp"),
        ("ahead", "--participants 9 --mode semi-sync --period 1"),
        ("private", "--participants 10 --privacy epsilon=8,delta=1e-5"),
        ("drawn", "--participants 12 --privacy noise=2 --insecure-aggregation --cohort 6"),
        ("own", "--participants 4 --personalize lora:rank=2"),
    ] {
        let first = written(folder.path(), name, &words.split(' ').collect::<Vec<_>>());
        let file = folder.path().join(format!("{name}.toml"));
        let participants: Vec<_> = words.split(' ').take(2).chain(["--seed", "7"]).collect();
        let again = written(folder.path(), "again", &[&["--task", file.to_str().unwrap()], &participants[..]].concat());
        let text = |task: &str| {
            let mut task: toml::Table = toml::from_str(task).unwrap();
            // The seed is of the data as well, whose description would be another's.
            for section in ["selection", "model"] {
                task[section].as_table_mut().unwrap().remove("seed");
            }
            toml::to_string(&task).unwrap()
        };
        assert_eq!(text(&first), text(&again), "{name}");
    }
}

#[test]
fn presets_are_played_and_simulated() {
    for preset in ["asynchronous", "compressed", "heterogeneous", "personalized", "private", "robust"] {
        let ran = run(&["--format", "json", "demo", "--participants", "12", "--rounds", "1", "--task", preset]);
        assert_eq!(ran.code, 0, "{preset}: {ran}");
        let simulated = ["simulate", "--population", "30", "--cohort", "9", "--rounds", "1", "--trace", "always"];
        let ran = run(&[&simulated[..], &["--over-selection", "0", "--dropout", "0", "--task", preset]].concat());
        assert_eq!(ran.code, 0, "{preset}: {ran}");
    }
    for command in ["demo", "simulate"] {
        let statistics = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config/statistics.toml");
        let ran = run(&[command, "--task", statistics]);
        assert!(ran.code == 2 && ran.stderr.contains("the task is an analysis"), "{ran}");
    }
    let ran = run(&["demo", "--task", "privat"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.stderr.contains("presets are asynchronous, compressed,"), "{ran}");
}

#[test]
fn a_task_is_created_from_a_preset_or_a_file_with_changes() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let create = |words: &[&str]| served.operate(&[&["task", "create"], words].concat());
    let model = "model.architecture.kind=mlp";
    let private =
        create(&["private", "--set", model, "--set", "privacy.epsilon=4", "--set", "selection.cohort.count=20"]).data();
    assert_eq!((&private["name"], &private["spec"]["privacy"]["epsilon"]), (&"private".into(), &4.0.into()));
    assert_eq!(private["spec"]["model"]["tensors"].as_array().unwrap().len(), 4);

    // The printed keys form a valid task file.
    let file = folder.path().join("keys.toml");
    std::fs::write(&file, run(&["task", "keys"]).stdout).unwrap();
    assert_eq!(create(&[file.to_str().unwrap()]).data()["name"], "digits");

    let file = folder.path().join("task.toml");
    std::fs::write(&file, "name = \"mine\"\nmodel = { architecture = { kind = \"mlp\" } }\n").unwrap();
    let file = file.to_str().unwrap();
    let compressed = ["--set", "secure_aggregation.enabled=false", "--set", "compression={codec=\"top_k\",k=\"1%\"}"];
    let mine = create(&[&[file], &compressed[..]].concat()).data();
    assert_eq!(mine["spec"]["compression"]["k"], 1590, "of 159010 parameters: {mine}");

    for (words, code, key, reason) in [
        (&["--set", "training.epohcs=2"][..], 2, "training.epohcs", "unknown field `epohcs`, expected one of `epochs`"),
        (&["--set", "rounds.count=ten"], 2, "rounds.count", "invalid type: string \"ten\""),
        // A coordinator's error for a file is the error here, in the same words.
        (&["--set", "name=other", "--set", "rounds.count=0"], 9, "rounds.count", "must be between 1 and 1000000"),
    ] {
        let refused = create(&[&[file], words].concat());
        assert_eq!(refused.code, code, "{refused}");
        let errors = refused.envelope()["data"]["errors"].clone();
        let found: &Value = &errors[0];
        assert_eq!(found["field"], key, "{refused}");
        assert!(found["detail"].as_str().unwrap().contains(reason), "{refused}");
    }
}
