//! Versions of a real coordinator: they come by themselves, and stay when it is gone or the disk is full.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Models;
use crate::support::{Served, tributary};

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

/// The models are on a small disk of their own, which is full until somebody makes room.
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
