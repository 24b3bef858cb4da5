//! A disk that fills up in the middle of rounds, and is cleared: the run resumes by itself, and publishes the same
//! models.

#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::killed::{rounds, three, wait, wait_for_round};
use crate::ready::{readyz, serve};
use crate::restored::wait_for;
use crate::support::{Served, run};

/// The folder is on its own small disk, which can be filled completely on demand, and freed again.
const FILLS_UP: &str = r#"
mkdir -p "$DATA" && mount -t tmpfs -o size=8m none "$DATA"
when() { for _ in $(seq 6000); do [ -e "$DATA.$1" ] && return; sleep 0.01; done; exit 1; }
( exec >/dev/null 2>&1
  for _ in $(seq 6000); do [ -s "$DATA/ca.pem" ] && break; sleep 0.01; done; cp "$DATA/ca.pem" "$DATA.ca"
  when go
  for _ in $(seq 6000); do
    dd if=/dev/zero bs=4k oflag=append conv=notrunc of="$DATA/filler"; touch "$DATA.full"
    [ -e "$DATA.back" ] && break; sleep 0.01
  done
  rm "$DATA/filler"; touch "$DATA.here" ) &
"#;

#[test]
fn a_full_disk_that_is_cleared_costs_time_alone() {
    let mut mount = Command::new("unshare");
    let mount = mount.args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).stderr(Stdio::null());
    if !mount.status().is_ok_and(|status| status.success()) {
        test_servers::skipped("nothing can be mounted here (unshare -rm): no disk filled up");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, task) = (folder.path().join("data"), folder.path().join("task.toml"));
    let demo = ["--format", "json", "demo", "--participants", "3", "--rounds", "12", "--seed", "5", "--task-file"];
    let undisturbed = run(&[&demo[..], &[task.to_str().unwrap()]].concat());
    assert_eq!(undisturbed.code, 0, "{undisturbed}");
    let expected: Vec<Value> = undisturbed
        .events()
        .iter()
        .filter(|event| event["event"] == "round")
        .map(|event| event["model"]["sha256"].clone())
        .collect();

    let at = |end: &str| folder.path().join(format!("data.{end}"));
    let served = serve(&["unshare", "-rm"], FILLS_UP, &data);
    wait_for("the certificate", folder.path(), || std::fs::read(at("ca")).ok().filter(|ca| !ca.is_empty()));
    let served = Served { ca: at("ca").to_str().unwrap().to_owned(), ..served };
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let mut participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 3);
    std::fs::write(at("go"), "").unwrap();
    wait_for("a full disk", folder.path(), || at("full").exists().then_some(()));
    let refused =
        wait_for("somebody who looks", folder.path(), || Some(readyz(&served)).filter(|ready| ready.0 == 503));
    assert!(refused.1.contains("no space left"), "{}", refused.1);
    let stalled = rounds(&served);
    assert!(stalled.len() < 12, "it was full before the end: {stalled:?}");
    std::fs::write(at("back"), "").unwrap();
    wait_for("room", folder.path(), || at("here").exists().then_some(()));

    for child in &mut participants {
        assert_eq!(wait(&mut child.0), Some(0), "a participant did not get to the end: {:?}", rounds(&served).first());
    }
    let models = served.operate(&["model", "list", "demo"]).data();
    let published: Vec<_> = models.as_array().unwrap().iter().rev().skip(1).map(|m| m["sha256"].clone()).collect();
    assert_eq!(published, expected);
    assert!(rounds(&served).iter().all(|round| round["state"] == "COMPLETED" && round["reported"] == 3));
    // An answer holds for a second, and the rounds may have taken less.
    wait_for("readiness", folder.path(), || Some(readyz(&served)).filter(|ready| ready.0 == 200));
}
