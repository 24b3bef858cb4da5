//! One bit of the newest model version is flipped on the disk: it is not used, the damage is reported, and a copy restores it.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::killed::{rounds, three, wait_for_round};
use crate::ready::{readyz, serve};
use crate::restored::wait_for;
use crate::support::{Served, run};

fn show(served: &Served) -> Value {
    served.operate(&["task", "show", "demo"]).data()
}

/// The newest model version's digest, and its file.
fn newest(served: &Served, data: &Path) -> (String, PathBuf) {
    let versions = served.operate(&["model", "list", "demo"]).data();
    let newest = versions.as_array().unwrap().iter().max_by_key(|version| version["version"].as_u64()).unwrap();
    assert!(newest["version"].as_u64() >= Some(3), "{newest}");
    let digest = newest["sha256"].as_str().unwrap().to_owned();
    let file = data.join("blobs").join(&digest[..2]).join(&digest);
    (digest, file)
}

#[test]
fn a_flipped_bit_of_the_newest_model_is_told_and_a_copy_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (data, task) = (folder.path().join("data"), folder.path().join("task.toml"));
    let ran =
        run(&["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", task.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    let text = std::fs::read_to_string(&task).unwrap();
    std::fs::write(&task, text.replacen("count = 1\n", "count = 200\n", 1)).unwrap();
    let served = serve(&["env"], ":", &data);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let _participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 4);
    served.operate(&["task", "pause", "demo"]).data();
    let last = wait_for("the end of the last round", folder.path(), || {
        let rounds = rounds(&served);
        rounds.iter().all(|round| round["state"] == "COMPLETED").then_some(rounds.len())
    });
    assert_eq!(readyz(&served).0, 200);

    let (digest, file) = newest(&served, &data);
    let whole = std::fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    std::fs::write(&file, &flipped).unwrap();
    served.operate(&["task", "resume", "demo"]).data();
    let paused = wait_for("the pause", folder.path(), || {
        let shown = show(&served);
        (shown["status"] == "PAUSED").then_some(shown)
    });
    let why = paused["history"].as_array().unwrap().iter().filter_map(|change| change["detail"].as_str()).next_back();
    assert!(why.is_some_and(|why| why.contains(&digest)), "{paused}");
    wait_for("what is wrong", folder.path(), || {
        let (_, text) = readyz(&served);
        (text.contains("degraded") && text.contains(&digest)).then_some(())
    });
    // The task pauses before a round that could not complete.
    let rounds_then = rounds(&served);
    assert!(
        rounds_then.len() <= last + 1 && rounds_then.iter().all(|round| round["failure"].is_null()),
        "{rounds_then:?}"
    );

    // Resuming alone does not help; a copy in its place does.
    served.operate(&["task", "resume", "demo"]).data();
    wait_for("the second pause", folder.path(), || (show(&served)["status"] == "PAUSED").then_some(()));
    std::fs::write(&file, &whole).unwrap();
    served.operate(&["task", "resume", "demo"]).data();
    wait_for("two more rounds", folder.path(), || {
        let rounds = rounds(&served);
        (rounds.iter().filter(|round| round["state"] == "COMPLETED").count() >= last + 2).then_some(())
    });
    assert_eq!(readyz(&served).0, 200);
}
