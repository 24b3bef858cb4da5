//! `privacy audit`: made-up participants of a copy test a task's noise.

use std::path::Path;

use crate::support::{Ran, run};

fn task(folder: &Path, mechanism: &str) -> String {
    let path = folder.join(format!("{mechanism}.toml"));
    let text = format!(
        "name = \"digits\"\n[model]\ntensors = [{{ name = \"w\", shape = [30, 40] }}]\n[rounds]\ncount = 4\n\
         [selection]\ncohort = {{ count = 40 }}\nrequire = {{ max_participations = 1 }}\n\
         [privacy]\nmechanism = \"{mechanism}\"\nepsilon = 4.0\ndelta = 1e-5\nclip = {{ fixed = 1.0 }}\n"
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn audit(format: &str, task: &str) -> Ran {
    run(&["--format", format, "privacy", "audit", task, "--participants", "30", "--seed", "2"])
}

#[test]
fn honest_tasks_pass_their_audit() {
    let folder = tempfile::tempdir().unwrap();
    for mechanism in ["central_gaussian", "distributed_skellam"] {
        let task = task(folder.path(), mechanism);
        let ran = audit("json", &task);
        assert_eq!(ran.code, 0, "{ran}");
        let found = ran.events().pop().unwrap();
        let ratio = found["noise"]["ratio"].as_f64().unwrap();
        assert!((0.9..1.2).contains(&ratio), "{found}");
        assert_eq!((&found["design"]["canaries"], &found["findings"]), (&30.into(), &serde_json::json!([])), "{found}");
        let words = audit("text", &task).to_string();
        for part in ["passes with a probability of at least 99 %", "Nothing contradicts the ledger.", "round 3 of 3"] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }
    // An analysis has the same noise.
    let ages = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config/private-statistics.toml");
    assert_eq!(audit("json", ages).events().pop().unwrap()["task"], "ages");
}

#[test]
fn tasks_without_noise_to_test_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    for (mechanism, words) in
        [("none", "so no budget can be kept"), ("tree", "of other rounds"), ("gauss", "unknown variant")]
    {
        let ran = audit("json", &task(folder.path(), mechanism));
        assert!(ran.code == 3 && ran.to_string().contains(words), "{words}: {ran}");
    }
}
