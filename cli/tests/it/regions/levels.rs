//! What each level of a federation of regions has of its own: schedule, codec, noise and records.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Federation, one_region, task, wait_for_versions};
use crate::support::{Served, run, tributary};

#[test]
fn buffered_rounds_do_not_wait_for_a_slow_region() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let upper = Served::dev(&folder.join("data"));
    let schedule = "enabled = false\n[schedule]\nmode = \"buffered\"\nconcurrency = 2\n";
    upper.operate(&["task", "create", &task(folder, "upper", 1, 2, schedule)]).data();
    let through = task(folder, "through", 1, 1, "enabled = false\n");
    let flags = &["--rounds", "1", "--insecure-aggregation"];
    let federation =
        Federation { upper: &upper, task: Some("upper"), regions: 2, through: &through, flags, cluster: None };
    // A region without devices completes no regional round.
    let [slow, mut fast] = [0, 1].map(|devices| federation.start(folder, devices, devices));
    slow.event("regional_task");
    wait_for_versions(&upper, 3, &[]);
    assert_eq!(fast.relay.as_mut().unwrap().0.wait().unwrap().code(), Some(0), "{}", fast.said());
    assert!(!slow.said().contains("regional_answer"), "{}", slow.said());
    // The record below was kept with the update, and reached the upper record.
    std::fs::create_dir(folder.join("below")).unwrap();
    let top = folder.join("top.json");
    std::fs::rename(save_record(&upper, "upper", folder, "upper"), &top).unwrap();
    let newest = fast.tasks()[0]["name"].as_str().unwrap().to_owned();
    save_record(fast.served.as_ref().unwrap(), &newest, folder, "region");
    assert_eq!(verify_recursively(&top, &folder.join("below")), (Some(0), String::new()));
}

#[test]
fn region_of_a_region_has_its_own_codec_and_record() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let with = |codec: &str| format!("enabled = false\n[compression]\ncodec = {codec}\n");
    let top = Served::dev(&folder.join("data"));
    top.operate(&["task", "create", &task(folder, "upper", 1, 2, &with("\"int8\""))]).data();
    let middle = task(folder, "middle", 1, 1, "enabled = false\n");
    let bottom = task(folder, "bottom", 1, 1, &with("\"top_k\"\nk = 300"));
    let flags = &["--rounds", "1", "--insecure-aggregation"];
    let above = Federation { upper: &top, task: Some("upper"), regions: 1, through: &middle, flags, cluster: None };
    let mut inner = above.start(folder, 0, 0);
    let served = inner.served.take().unwrap();
    // Each round begins another task of the middle, so the region at the bottom names none.
    let below = Federation { upper: &served, task: None, regions: 1, through: &bottom, flags, cluster: None };
    let outer = below.start(&folder.join("below-it"), 0, 1);
    wait_for_versions(&top, 3, &[]);
    assert_eq!(inner.relay.as_mut().unwrap().0.wait().unwrap().code(), Some(0), "{}", inner.said());
    let newest = |served: &Served| served.operate(&["task", "list"]).data()[0]["name"].as_str().unwrap().to_owned();
    std::fs::create_dir(folder.join("below")).unwrap();
    let record = folder.join("top.json");
    std::fs::rename(save_record(&top, "upper", folder, "upper"), &record).unwrap();
    save_record(&served, &newest(&served), folder, "middle");
    let lowest = outer.served.as_ref().unwrap();
    save_record(lowest, &newest(lowest), folder, "bottom");
    let (below, record) = (folder.join("below"), record.to_str().unwrap().to_owned());
    let verify = ["--format", "json", "audit", "verify", "--recursive", "--below", below.to_str().unwrap(), &record];
    assert_eq!(run(&verify).data()["levels"], 2);
}

#[test]
fn noise_is_charged_at_each_level_that_adds_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let noise = |epsilon: f64| {
        format!(
            "enabled = false\n[privacy]\nmechanism = \"central_gaussian\"\nepsilon = {epsilon:?}\ndelta = 1e-5\n\
             clip = {{ fixed = 1.0 }}\n"
        )
    };
    let upper = Served::dev(&folder.join("data"));
    upper.operate(&["task", "create", &task(folder, "upper", 2, 2, &noise(4.0))]).data();
    let through = task(folder, "through", 2, 1, &noise(1.5));
    let flags = &["--rounds", "1", "--insecure-aggregation"];
    let federation =
        Federation { upper: &upper, task: Some("upper"), regions: 2, through: &through, flags, cluster: None };
    let mut regions = [0, 1].map(|index| federation.start(folder, index, 2));
    for region in &mut regions {
        assert_eq!(region.relay.as_mut().unwrap().0.wait().unwrap().code(), Some(0), "{}", region.said());
    }
    let spent = |report: &Value| report["spent"]["published"].as_f64().unwrap();
    let above = upper.operate(&["privacy", "show", "upper"]).data();
    assert!(above["releases"].as_array().unwrap().len() == 2 && (3.9..=4.0).contains(&spent(&above)), "{above}");
    std::fs::create_dir(folder.join("below")).unwrap();
    for region in &regions {
        let served = region.served.as_ref().unwrap();
        let tasks = region.tasks();
        assert_eq!(tasks.len(), 2);
        // Each upper round begins a regional task with a budget of its own, and all of them add up for a device.
        let below =
            tasks.iter().map(|task| served.operate(&["privacy", "show", task["name"].as_str().unwrap()]).data());
        let below: Vec<f64> = below.map(|report| spent(&report)).collect();
        assert!(below.iter().all(|spent| (1.4..=1.5).contains(spent)), "{below:?}");
        let all = served.operate(&["privacy", "show"]).data();
        let total = all["spent"]["published"].as_f64().unwrap_or_else(|| panic!("{all}"));
        assert!(total > below[0] && total <= below[0] + below[1], "{total} of {below:?}");
        save_record(served, tasks[0]["name"].as_str().unwrap(), folder, &format!("region-{}", region.index));
    }
    let top = folder.join("top.json");
    std::fs::rename(save_record(&upper, "upper", folder, "upper"), &top).unwrap();
    let below = folder.join("below");
    let (below, top) = (below.to_str().unwrap(), top.to_str().unwrap());
    let verdict = run(&["--format", "json", "audit", "verify", "--recursive", "--below", below, top]).data();
    let epsilon = |record: &Value| record["privacy"]["epsilon"].as_f64().unwrap();
    assert!((epsilon(&verdict) - spent(&above)).abs() < 1e-12, "{verdict}");
    let regional: Vec<f64> = verdict["below"].as_array().unwrap().iter().map(epsilon).collect();
    assert!(regional.len() == 2 && regional.iter().all(|epsilon| (1.4..=1.5).contains(epsilon)), "{verdict}");
}

/// The exit code of `audit verify --recursive` for a record and those in a folder, and its errors.
fn verify_recursively(record: &Path, below: &Path) -> (Option<i32>, String) {
    let mut command = tributary();
    let output = command.args(["audit", "verify", "--recursive", "--below"]).arg(below).arg(record).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Saves the record of a task's newest version.
fn save_record(served: &Served, task: &str, folder: &Path, name: &str) -> PathBuf {
    let (model, record) = (folder.join(format!("{name}.safetensors")), folder.join(format!("below/{name}.json")));
    let arguments =
        ["model", "fetch", task, "--out", model.to_str().unwrap(), "--provenance", record.to_str().unwrap()];
    served.operate(&arguments).data();
    record
}

#[test]
fn upper_record_names_regional_records_and_changes_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let through = task(folder, "through", 1, 1, "enabled = false\n");
    let (upper, mut region) = one_region(folder, 1, &through, &["--rounds", "1"]);
    assert_eq!(region.relay.as_mut().unwrap().0.wait().unwrap().code(), Some(0), "{}", region.said());
    std::fs::create_dir(folder.join("below")).unwrap();
    let top = folder.join("top.json");
    std::fs::rename(save_record(&upper, "upper", folder, "upper"), &top).unwrap();
    let regional = region.tasks()[0]["name"].as_str().unwrap().to_owned();
    let below = save_record(region.served.as_ref().unwrap(), &regional, folder, "region");
    let verify = |file: &Path| verify_recursively(file, &folder.join("below"));
    let beside = folder.join("below/top.json");
    std::fs::copy(&top, &beside).unwrap();
    for file in [&beside, &top] {
        assert_eq!(verify(file).0, Some(0), "{}", verify(file).1);
    }
    std::fs::remove_file(&beside).unwrap();
    let intact = std::fs::read_to_string(&below).unwrap();
    let found = |words: &str| {
        let (code, said) = verify(&top);
        assert!(code == Some(17) && said.contains(words), "{code:?} {said}");
    };
    std::fs::write(&below, intact.replace("\\\"version\\\":1", "\\\"version\\\":2")).unwrap();
    found("damaged: the record in");
    std::fs::remove_file(&below).unwrap();
    found("missing: the record");
    // Swapped.
    std::fs::rename(&top, &below).unwrap();
    std::fs::write(&top, intact).unwrap();
    found("unknown: no record above names");
}
