//! A journal folder restored from a copy: an earlier message must not be sent again.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use client_sdk::Event;
use client_sdk::journal::{Journal, JournalError, JournalFiles};

use crate::support::cohort::Hub;
use crate::support::device::{Device, cohort, run_until};
use crate::support::trainers::Exact;

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_folder_restored_in_mid_session_gives_no_second_input_under_the_same_masks() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, saved) = (temporary.path().join("journal"), temporary.path().join("copy"));
    let hub = Hub::new(3, 1);
    let mut devices = cohort(&hub);
    let open = || JournalFiles::beside(&folder).open();
    let journal: Arc<dyn Journal> = Arc::new(open().unwrap());
    devices[0] = Device::on(journal, 0, &hub, crate::support::settings());
    // All have their masks and are about to train, and the folder is copied.
    run_until(&mut devices, |device| device.events.iter().any(|event| matches!(event, Event::Delivered { .. })));
    copy(&folder, &saved);
    let is_sent = |device: &Device| device.log.contains(&"upload");
    // The round still collects: the others have not sent theirs.
    run_until(&mut devices[..1], is_sent);
    let input = || hub.world(|world| world.said.get(&(1, 1, "input", 0)).cloned());
    assert!(input().is_some());
    // The copy comes back, the device has trained differently in between, and the coordinator requests its input again.
    hub.world(|world| world.forget_input(0));
    let events = std::mem::take(&mut devices[0].events);
    drop(devices.remove(0));
    copy(&saved, &folder);
    match open() {
        Err(error) => {
            assert!(matches!(&error, JournalError::Restored { .. }), "{error}");
            let error = error.to_string();
            assert!(error.contains("restored") && error.contains("enrol anew"), "{error}, after {events:?}");
        }
        Ok(journal) => {
            let mut victim = Device::on(Arc::new(journal), 0, &hub, crate::support::settings());
            victim.trainer = Exact::new(4);
            // A device that sends another input fails in `Device::step`.
            run_until(std::slice::from_mut(&mut victim), is_sent);
            unreachable!("the input of a process that trained something else is another");
        }
    }
}
