//! Records of version 9 for the app and a training in progress: a published model, the list of models, a checkpoint, the data use,
//! refusals.

use std::sync::atomic::Ordering;

use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::participant::machine::Saved;
use client_sdk::participant::snapshot;
use client_sdk::transport::Traffic;
use client_sdk::{Event, Model, Origin, RefusalCode, Timestamp};

use super::folder;
use crate::checkpoints::{accepted, alone};
use crate::support::device::{Effect, authority_of, enrolled};
use crate::support::{Coordinator, in_the_clear, sha256, task};

/// Names of the records, and of the files that they are in.
fn files() -> [(String, &'static str); 5] {
    [
        (snapshot::IDENTITY.to_owned(), "identity.record"),
        (snapshot::model(task()), "model.record"),
        (snapshot::MODELS.to_owned(), "models.record"),
        (snapshot::TRAINING.to_owned(), "training.record"),
        (snapshot::TRAFFIC.to_owned(), "traffic.record"),
    ]
}

/// Written by hand, and later than the others.
fn refusals() -> (String, &'static str) {
    (snapshot::REFUSALS.to_owned(), "refusals.record")
}

fn journal() -> MemoryJournal {
    let journal = MemoryJournal::new();
    for (name, file) in files().into_iter().chain([refusals()]) {
        journal.save(&name, &std::fs::read(folder("v9").join(file)).unwrap()).unwrap();
    }
    journal
}

#[test]
fn a_model_that_was_kept_is_still_the_apps() {
    let model = Model::load(&journal(), task()).unwrap().unwrap();
    assert_eq!(model.origin(), Origin::Published { version: 1, sha256: sha256(&Coordinator::published(false, 1)) });
    assert_eq!((model.parameters().values(), model.metrics().len()), (&[1.0; 5][..], 1));
}

#[test]
fn what_was_sent_is_still_counted() {
    let saved = Saved::load(|name| journal().load(name)).unwrap();
    let used = enrolled(&in_the_clear(), &saved).unwrap().data_use();
    assert_eq!((used.day, used.total), (20_717, Traffic { sent: 300_000, received: 4 }));
}

#[test]
fn what_was_refused_is_still_known() {
    let saved = Saved::load(|name| journal().load(name)).unwrap();
    let kept = enrolled(&in_the_clear(), &saved).unwrap().refusals();
    let told = kept.iter().map(|one| (one.place.round, one.code, one.reason.as_str(), one.at, one.times));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (2, Some(RefusalCode::Policy), "a cohort of 3 is smaller than 10", Timestamp(1_790_000_000_000), 2),
            (1, None, "given before", Timestamp(1_790_000_000_001), 1),
        ]
    );
}

#[test]
fn a_training_goes_on_with_the_same_bits() {
    let mut device = alone(Some(5));
    for (name, _) in files() {
        device.journal.save(&name, &journal().load(&name).unwrap().unwrap()).unwrap();
    }
    device.coordinator.world(|world| world.rounds_done = 1);
    device.settings.members = authority_of(&journal().load(snapshot::IDENTITY).unwrap().unwrap()).unwrap();
    device.restart();
    device.run(500, |_| None);
    assert!(device.events.iter().any(|event| matches!(event, Event::Resumed { place } if place.round == 2)));
    let sent = sha256(&accepted(&device)[0]).to_string();
    assert_eq!(sent, std::fs::read_to_string(folder("v9").join("said.sha256")).unwrap().trim());
}

#[test]
fn every_damage_to_them_is_found() {
    for (name, file) in files().into_iter().chain([refusals()]) {
        let record = std::fs::read(folder("v9").join(file)).unwrap();
        for position in (0..record.len()).step_by(7) {
            let mut damaged = record.clone();
            damaged[position] ^= 1;
            for bytes in [&damaged, &record[..position]] {
                let journal = journal();
                journal.save(&name, bytes).unwrap();
                let saved = Saved::load(|name| journal.load(name)).unwrap();
                let is_found = enrolled(&in_the_clear(), &saved).is_err() || Model::load(&journal, task()).is_err();
                assert!(is_found, "{name} at {position}");
            }
        }
    }
}

#[test]
#[ignore = "wrote the records of version 9, once"]
fn write_the_kept_records_of_version_9() {
    std::fs::create_dir_all(folder("v9")).unwrap();
    let mut undisturbed = alone(Some(5));
    undisturbed.run(500, |_| None);
    // In the middle of the training of the second round, from version 1, which was measured before.
    let mut device = alone(Some(5));
    device.dies_at_checkpoint = Some((9, Effect::Whole));
    while device.processes == 1 {
        device.step(None);
    }
    assert_eq!(device.checkpoints.load(Ordering::Relaxed), 10);
    let training = device.journal.load(snapshot::TRAINING).unwrap().unwrap();
    device.machine.add_traffic(Traffic { sent: 300_000, received: 4 });
    // The model is measured when its training ends.
    while device.journal.load(snapshot::TRAFFIC).unwrap().is_none()
        || Model::kept(&*device.journal).unwrap()[0].metrics.is_empty()
    {
        device.step(None);
    }
    for (name, file) in files() {
        let record =
            if name == snapshot::TRAINING { training.clone() } else { device.journal.load(&name).unwrap().unwrap() };
        std::fs::write(folder("v9").join(file), record).unwrap();
    }
    std::fs::write(folder("v9").join("said.sha256"), format!("{}\n", sha256(&accepted(&undisturbed)[1]))).unwrap();
}
