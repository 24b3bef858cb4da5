//! Versions of a real coordinator: they come by themselves, and stay when it is gone or the disk is full.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Models;
use crate::kept::pause;
use crate::killed::{three, wait_for_round};
use crate::restored::wait_for;
use crate::support::{Served, run, tributary};

fn flags(served: &Served) -> Vec<&str> {
    vec!["--from", &served.url, "--ca", &served.ca, "--token", &served.token, "--task", "demo"]
}

async fn version(models: &Models) -> Option<String> {
    let body = super::asked(&[0.25; 60]);
    let (status, answer) = models.post("/v2/models/demo/infer", &body, None).await;
    (status == 200).then(|| answer["model_version"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn published_versions_are_fetched_verified_and_answer_when_the_coordinator_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let served = Served::demo(&data, &["--rounds", "2", "--participants", "3"]);
    let place = folder.path().join("models");
    let models = Models::serve(&place, &flags(&served));
    models.until_answers(2).await;
    assert_eq!(version(&models).await.as_deref(), Some("2"));
    let record = std::fs::read_to_string(place.join("demo/2/record.json")).unwrap();
    assert!(record.contains("signature"), "the record of its origin is kept: {record}");
    let state = std::fs::read_to_string(place.join("demo/state.json")).unwrap();
    assert!(state.contains(r#""stable":2"#) && !state.contains(r#""key":null"#), "{state}");

    drop(models);
    let damage = || {
        let mut file = std::fs::read(place.join("demo/2/model.safetensors")).unwrap();
        *file.last_mut().unwrap() ^= 1;
        std::fs::write(place.join("demo/2/model.safetensors"), file).unwrap();
    };
    damage();
    let models = Models::serve(&place, &flags(&served));
    models.until_answers(2).await;
    assert_eq!(version(&models).await.as_deref(), Some("2"), "a damaged one is fetched again");

    let (url, ca, token) = (served.url.clone(), served.ca.clone(), served.token.clone());
    let kept_ca = folder.path().join("ca.pem");
    std::fs::copy(&ca, &kept_ca).unwrap();
    drop(served);
    models
        .wait("a failure to reach it", async || {
            models.metric("tributary_infer_fetch_failures_total", "reason=\"away\"").await > 0.0
        })
        .await;
    assert_eq!(version(&models).await.as_deref(), Some("2"), "it goes on without");
    drop(models);
    let ca = kept_ca.to_str().unwrap();
    let from = ["--from", &url, "--ca", ca, "--token", &token, "--task", "demo"];
    let models = Models::serve(&place, &from);
    assert_eq!(version(&models).await.as_deref(), Some("2"), "and starts without");
    drop(models);
    damage();
    let models = Models::serve(&place, &from);
    assert_eq!(version(&models).await, None, "a file that is another than its record says is not used");
}

/// Number of the newest version that the coordinator has published.
fn newest(served: &Served) -> u32 {
    number(&served.operate(&["model", "list", "demo", "--limit", "1"]).data()[0])
}

fn number(model: &serde_json::Value) -> u32 {
    model["version"].as_u64().unwrap().try_into().unwrap()
}

#[tokio::test]
async fn what_was_restored_while_the_server_was_down_is_used_and_the_next_is_tried_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("task.toml");
    let file = task.to_str().unwrap();
    let ran = run(&["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", file]);
    assert_eq!(ran.code, 0, "{ran}");
    let text = std::fs::read_to_string(&task).unwrap();
    assert!(text.contains("count = 1\n"), "{text}");
    std::fs::write(&task, text.replacen("count = 1\n", "count = 200\n", 1)).unwrap();
    let served = Served::dev(&folder.path().join("data"));
    served.operate(&["task", "create", file]).data();
    let _participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 3);
    pause(&served, folder.path());
    let place = folder.path().join("models");
    let flags = [&flags(&served)[..], &["--canary-percent", "20", "--hold-s", "3600"]].concat();
    let models = Models::serve(&place, &flags);
    let bad = newest(&served);
    models.until_answers(bad).await;
    drop(models);

    let restored = number(&served.operate(&["model", "restore", "demo", &(bad - 1).to_string()]).data());
    assert_eq!(restored, bad + 1);
    served.operate(&["task", "resume", "demo"]).data();
    wait_for("a version that was trained from it", folder.path(), || (newest(&served) > restored).then_some(()));
    pause(&served, folder.path());
    let trained = newest(&served);
    let models = Models::serve(&place, &flags);
    models.until_answers(restored).await;
    models
        .wait("the trial of the newest", async || {
            models.metric("tributary_infer_version{", "side=\"canary\"").await == f64::from(trained)
        })
        .await;
}

/// The models are on a small disk of their own, which is full until the test makes room.
const FULL: &str = r#"
mount -t tmpfs -o size=256k none "$MODELS" && mkdir -p "$MODELS/demo/1" && cp "$FIRST" "$MODELS/demo/1/model.safetensors"
dd if=/dev/zero bs=4k of="$MODELS/filler" 2>/dev/null
( for _ in $(seq 6000); do [ -e "$MODELS.go" ] && break; sleep 0.01; done; rm "$MODELS/filler" ) >/dev/null 2>&1 &
exec "$@"
"#;

#[tokio::test]
async fn a_full_disk_stops_new_versions_and_not_the_one_that_answers() {
    let mut mount = Command::new("unshare");
    let mount = mount.args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).stderr(Stdio::null());
    if !mount.status().is_ok_and(|status| status.success()) {
        test_servers::skipped("nothing can be mounted here (unshare -rm): no disk was full");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let served = Served::demo(&folder.path().join("data"), &["--rounds", "2", "--participants", "3"]);
    let (first, place) = (folder.path().join("first.safetensors"), folder.path().join("models"));
    std::fs::create_dir(&place).unwrap();
    served.operate(&["model", "fetch", "demo", "--model-version", "1", "--out", first.to_str().unwrap()]).data();
    let models = Models::until(on_a_full_disk(&place, &first, &flags(&served)));
    models
        .wait("a failure to keep it", async || {
            models.metric("tributary_infer_fetch_failures_total", "reason=\"disk\"").await > 0.0
        })
        .await;
    assert_eq!(version(&models).await.as_deref(), Some("1"), "it goes on");
    std::fs::write(folder.path().join("models.go"), "").unwrap();
    models.until_answers(2).await;
}

fn on_a_full_disk(models: &Path, first: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", FULL, "sh"]).arg(tributary().get_program());
    command.args(["--format", "json", "infer", "serve", "--listen", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
    command.arg("--models").arg(models).args(flags).env("MODELS", models).env("FIRST", first);
    command
}
