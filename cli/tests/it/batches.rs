//! Fixed batches over the wire: real participants draw them, keep them across tasks, and refuse a coordinator that cuts
//! through one. The proxy owns the coordinator's authority.

use std::collections::BTreeMap;
use std::path::Path;

use secure_agg::IndexSet;
use secure_agg::codec::Message as _;
use secure_agg::messages::Survivors;

use crate::liar::{Asked, Device, Liar, device, start as restart};
use crate::support::{Served, run};

const DEVICES: usize = 6;

/// Writes a task of this name for so many devices, in whole batches of `size` or without batches.
fn task(folder: &Path, name: &str, devices: usize, size: Option<u16>) -> String {
    let file = folder.join(format!("{name}.toml"));
    let (devices, name) = (devices.to_string(), format!("name={name}"));
    let size = size.map(|size| format!("secure_aggregation.batch_size={size}"));
    let demo = ["demo", "--participants", &devices, "--rounds", "1", "--seed", "5", "--set", &name];
    let set = size.iter().flat_map(|size| ["--set", size]);
    let arguments = demo.into_iter().chain(set).chain(["--task-file", file.to_str().unwrap()]);
    let ran = run(&arguments.collect::<Vec<_>>());
    assert_eq!(ran.code, 0, "{ran}");
    file.to_str().unwrap().to_owned()
}

/// The batch of each device.
fn batches(devices: &[Device]) -> BTreeMap<String, usize> {
    let mut sizes = BTreeMap::new();
    for device in devices {
        let event = device.wait_for(|event| event["event"] == "in_batch");
        assert_eq!(event["size"], 3);
        *sizes.entry(event["batch"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    sizes
}

#[test]
fn devices_keep_their_batches_across_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let liar = Liar::with_authority(&served, folder.path(), |_| ());
    let start = |index| device(&served, &liar, folder.path(), (index, DEVICES), &["--min-batch", "3"]);
    let devices: Vec<_> = (0..DEVICES).map(start).collect();
    served.operate(&["task", "create", &task(folder.path(), "demo", DEVICES, Some(3))]).data();
    assert_eq!(batches(&devices).into_values().collect::<Vec<_>>(), [3, 3]);
    let watched = served.operate(&["round", "watch", "demo"]);
    assert_eq!(watched.code, 0, "{watched}");
    for device in &devices {
        device.wait_for(|event| event["event"] == "task_over");
    }
    let shown = served.operate(&["task", "show", "demo"]);
    assert!(shown.data().to_string().contains(r#""across_rounds":{"kind":"batches","size":3}"#), "{shown}");
    drop(devices);

    // A task without batches skips the draw, and devices without a floor take part.
    let start = |task: &str, index| restart(&liar.url, &served.ca, folder.path(), (index, DEVICES), &["--task", task]);
    served.operate(&["task", "create", &task(folder.path(), "again", DEVICES, None)]).data();
    let devices: Vec<_> = (0..DEVICES).map(|index| start("again", index)).collect();
    for device in &devices {
        device.wait_for(|event| {
            assert_ne!(event["event"], "in_batch", "{event}");
            event["event"] == "task_over"
        });
    }
    drop(devices);

    // Larger batches take the app's consent, which names the batch.
    served.operate(&["task", "create", &task(folder.path(), "larger", 8, Some(4))]).data();
    let device = start("larger", 0);
    let refusal = device.refusal();
    assert!(refusal.contains("needs a batch of 4") && refusal.contains("leave_batch"), "{refusal}");
}

/// Leaves one member out of the survivors, as a coordinator does that wants the difference of two sums.
fn without_one(asked: &Asked, body: Vec<u8>) -> Vec<u8> {
    if !asked.path.contains("/survivors") {
        return body;
    }
    let Ok(honest) = Survivors::decode(&body) else { return body };
    let survivors = IndexSet::of(honest.survivors.universe(), honest.survivors.iter().skip(1));
    Survivors { survivors, ..honest }.encode()
}

#[test]
fn nobody_signs_survivors_that_cut_through_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let liar = Liar::with_authority(&served, folder.path(), |lies| lies.tell = Box::new(without_one));
    let start = |index| device(&served, &liar, folder.path(), (index, DEVICES), &[]);
    let devices: Vec<_> = (0..DEVICES).map(start).collect();
    served.operate(&["task", "create", &task(folder.path(), "demo", DEVICES, Some(3))]).data();
    // The first in the order of ids is the one that is left out.
    let left_out = devices.iter().map(|device| device.id).min().unwrap();
    for device in devices.iter().filter(|device| device.id != left_out) {
        let reason = device.refusal();
        assert!(reason.contains("batch_not_whole"), "{reason}");
    }
    let versions = served.operate(&["model", "list", "demo"]).data();
    assert_eq!(versions.as_array().unwrap().len(), 1, "no sum was opened");
}
