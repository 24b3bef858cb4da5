//! A thief of the whole data folder cannot remove the noise from a release: the files lack the needed secrets, both
//! while the coordinator runs and after SIGTERM and a restart.

use std::path::{Path, PathBuf};
use std::process::Command;

use coordinator::random::Random;
use coordinator::seal::{OF_A_RELEASE, Sealer};
use serde_json::Value;

use crate::support::Served;

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                // A temporary file may go while this looks.
                files.extend(std::fs::read(&path).map(|bytes| (path, bytes)));
            }
        }
    }
    files
}

/// Where a seed of noise lies that `seal.key` opens: every place of every file is tried, with every round's name.
fn stolen_seeds(folder: &Path, task: &str, rounds: u32) -> Vec<(PathBuf, u32)> {
    let sealer = Sealer::open(&folder.join("seal.key"), &Random::from_seed(1)).unwrap();
    let task: Vec<u8> = (0..32).step_by(2).map(|at| u8::from_str_radix(&task[at..at + 2], 16).unwrap()).collect();
    let places: Vec<_> = (1..=rounds)
        .map(|number| {
            let [number, attempt] = [number, 1].map(u32::to_be_bytes);
            (u32::from_be_bytes(number), [b"noise seed ", &task[..], &number, &attempt, b"noise"].concat())
        })
        .collect();
    let mut stolen = Vec::new();
    for (path, bytes) in files(folder).into_iter().filter(|(path, _)| !path.to_string_lossy().contains("/blobs/")) {
        for window in bytes.windows(12 + 32 + 16) {
            let opened = places.iter().find(|(_, place)| sealer.open_sealed(place, window).is_ok());
            stolen.extend(opened.map(|(number, _)| (path.clone(), *number)));
        }
    }
    stolen
}

fn assert_nothing_is_left(folder: &Path, task: &str, when: &str) {
    assert_eq!(stolen_seeds(folder, task, 2), [], "{when}");
    let sealed = |bytes: &[u8]| bytes.windows(OF_A_RELEASE.len()).any(|window| window == OF_A_RELEASE);
    let left: Vec<_> = files(folder).into_iter().filter(|(_, bytes)| sealed(bytes)).map(|(path, _)| path).collect();
    assert!(left.is_empty(), "{when}: sealed for a release: {left:?}");
    let keys = files(&folder.join("seal.releases"));
    assert!(keys.is_empty(), "{when}: {:?}", keys.into_iter().map(|(path, _)| path).collect::<Vec<_>>());
}

#[cfg(unix)]
#[test]
fn the_whole_data_folder_does_not_take_the_noise_off() {
    let folder = tempfile::tempdir().unwrap();
    for (name, more) in [("masked", None), ("clear", Some("--insecure-aggregation"))] {
        let folder = folder.path().join(name);
        let privacy = ["--privacy", "noise=2,delta=1e-5,mechanism=central_gaussian,sampling=none"];
        let usual = ["--participants", "6", "--rounds", "2"];
        let args: Vec<_> = usual.into_iter().chain(privacy).chain(more).collect();
        let mut served = Served::demo(&folder, &args);
        let task = served.operate(&["task", "show", "demo"]).data();
        let id = task["id"].as_str().unwrap().replace('-', "");
        assert_eq!(task["rounds_completed"], 2, "{task}");
        assert!(folder.join("seal.releases").is_dir(), "keys were there");
        assert_nothing_is_left(&folder, &id, "while it runs");

        let pid = served.process.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(served.process.0.wait().unwrap().code(), Some(0), "ended by SIGTERM");
        assert_nothing_is_left(&folder, &id, "after SIGTERM");

        let again = Served::dev(&folder);
        let served = Served { token: served.token.clone(), ..again };
        assert_eq!(served.operate(&["task", "show", "demo"]).data()["status"], Value::from("COMPLETED"));
        assert_nothing_is_left(&folder, &id, "after a restart");
    }
}
