//! Records of a member of secure rounds in addition to its round: the provenance of its coordinator's models, the key of an unanswered
//! renewal, and its folder, key and generation, sealed. All come from one participant. Its folder also has an obsolete record of the base
//! models of its updates, which current code ignores.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client_sdk::Event;
use client_sdk::clock::Now;
use client_sdk::journal::{Journal, JournalError, JournalFiles};
use client_sdk::participant::machine::{Action, Input, Saved};
use client_sdk::participant::{ProvenanceError, snapshot};
use client_sdk::transport::{Request, Response};
use wire::participant::{Assignment, CheckInReply, ModelRef};
use wire::{Digest, Timestamp};
use zeroize::Zeroizing;

use super::{folder, sample};
use crate::participant::states::joining::renew::key;
use crate::support::cohort::{Hub, TODAY};
use crate::support::device::{Device, cohort, enrolled, finish};
use crate::support::provenance::{KEYS, Tweak, honest, sign};
use crate::support::{Coordinator, Fault, in_the_clear, model, settings, sha256, task, words};

const WRITTEN_BY: &str = "write_what_a_member_keeps";

/// Names of the records, and of the files that they are in.
const RECORDS: [(&str, &str); 4] = [
    (snapshot::IDENTITY, "identity.record"),
    (snapshot::NEXT_KEY, "next-key.record"),
    (snapshot::ROUND, "round-done.record"),
    (snapshot::PROVENANCE, "provenance.record"),
];

fn read(name: &str) -> Vec<u8> {
    sample(&folder("member").join(name), WRITTEN_BY)
}

/// The saved state of a process after `change` of each record.
fn saved(change: impl Fn(&str, Vec<u8>) -> Option<Vec<u8>>) -> Saved {
    let load = |name: &str| {
        let kept = RECORDS.iter().find(|(kept, _)| *kept == name).map(|(_, file)| read(file));
        Ok::<_, Infallible>(kept.and_then(|record| change(name, record)).map(Zeroizing::new))
    };
    Saved::load(load).unwrap()
}

fn saved_without(absent: &str) -> Saved {
    saved(|name, record| (name != absent).then_some(record))
}

/// A place in an unmasked round with this base version, in a new attempt.
fn place(version: u32, change: impl FnOnce(&mut Assignment)) -> Assignment {
    let file = Coordinator::published(false, version);
    let base = ModelRef { version, sha256: sha256(&file), bytes: file.len() as u64 };
    let mut assignment = Assignment { attempt: 2, ..words::assignment(model(false), base) };
    change(&mut assignment);
    assignment
}

/// The same number for another file, signed as it must be.
fn with_another_file(assignment: &mut Assignment) {
    assignment.base.sha256 = Digest([9; 32]);
    honest(assignment);
}

/// The actions of a process with these records for this assignment, and its events.
fn assigned(saved: &Saved, assignment: Assignment) -> (Action, Vec<Event>) {
    let mut machine = enrolled(&in_the_clear(), saved).unwrap();
    // Its certificate is not due.
    let now = Now { elapsed: Duration::ZERO, wall: Timestamp(0) };
    assert!(matches!(machine.poll(Input::Tick, now), Action::Send(Request::CheckIn(_))));
    let reply = Ok(CheckInReply::Assigned(Box::new(assignment)));
    let action = machine.poll(Input::Response(Response::CheckedIn(reply)), now);
    (action, machine.take_events())
}

/// Its events for an assignment whose model has another provenance.
fn unproven(version: u32, change: impl FnOnce(&mut Assignment)) -> Option<ProvenanceError> {
    let (_, events) = assigned(&saved(|_, record| Some(record)), place(version, change));
    events.into_iter().find_map(|event| match event {
        Event::Unproven { error, .. } => Some(error),
        _ => None,
    })
}

#[test]
fn models_that_an_older_journal_lists_are_trained_again() {
    // The journal lacks a record of the coordinator, since these places come without records.
    let kept = saved_without(snapshot::PROVENANCE);
    // The folder's record "given" lists versions 0 and 1, and the record of the round counts both inputs.
    for version in 0..=2 {
        let (action, events) = assigned(&kept, place(version, |_| ()));
        assert!(matches!(action, Action::Fetch { .. }), "{version}: {events:?}");
    }
}

#[test]
fn what_the_coordinator_has_shown_is_held_against_it() {
    assert_eq!(unproven(2, honest), None);
    assert_eq!(unproven(2, |_| ()), Some(ProvenanceError::Missing));
    let by_another = unproven(2, |assignment| sign(assignment, 1, |_| ()));
    assert!(matches!(by_another, Some(ProvenanceError::OtherKey { .. })), "{by_another:?}");
    let equivocation = ProvenanceError::Equivocation { version: 0, sha256: Digest([9; 32]) };
    assert_eq!(unproven(0, with_another_file), Some(equivocation));
    // What it has signed itself of the second round.
    let roster = unproven(2, |assignment| sign(assignment, 0, |record| record.roster = Some(Digest([5; 32]))));
    assert_eq!(roster, Some(ProvenanceError::OtherRound("roster")));
    let survivors = unproven(2, |assignment| sign(assignment, 0, |record| record.survivors = Some(Digest([5; 32]))));
    assert_eq!(survivors, Some(ProvenanceError::OtherRound("set of survivors")));
}

#[test]
fn two_models_that_were_signed_as_one_version_are_still_evidence() {
    let mut machine = enrolled(&in_the_clear(), &saved(|_, record| Some(record))).unwrap();
    let told = machine.take_events().into_iter().find_map(|event| match event {
        Event::Equivocation { task, taken, refused } => Some((task, taken, refused)),
        _ => None,
    });
    let (of, taken, refused) = told.unwrap();
    let [taken, refused] = [taken, refused].map(|signed| signed.open().unwrap());
    assert_eq!((of, taken.version, refused.version), (task(), 1, 1));
    assert_eq!((taken.sha256, refused.sha256), (sha256(&Coordinator::published(false, 1)), Digest([9; 32])));
    assert_eq!(taken.coordinator, wire::provenance::key_of(&KEYS[0]));
}

#[test]
fn a_renewal_that_nobody_has_answered_is_asked_for_with_the_same_key() {
    let mut machine = enrolled(&settings(), &saved(|_, record| Some(record))).unwrap();
    let action = machine.poll(Input::Tick, Now { elapsed: Duration::ZERO, wall: TODAY });
    let Action::Send(Request::Renew(renewal)) = action else { panic!("it does not renew its certificate") };
    let asked = sha256(&key(&renewal.csr_pem.unwrap())).to_string();
    assert_eq!(asked, String::from_utf8(read("next-key.sha256")).unwrap().trim());
}

#[test]
fn every_damage_to_what_a_member_keeps_is_found() {
    for (damaged, file) in RECORDS {
        let record = read(file);
        for position in (0..record.len()).step_by(7) {
            let mut bent = record.clone();
            bent[position] ^= 1;
            for bytes in [&bent[..], &record[..position]] {
                let found = saved(|name, record| Some(if name == damaged { bytes.to_vec() } else { record }));
                assert!(enrolled(&in_the_clear(), &found).is_err(), "{damaged} at {position}");
            }
        }
    }
}

/// A copy of the sealed folder, its key and its generation, as they were left.
fn sealed(to: &Path) -> JournalFiles {
    let [from, files] = [folder("sealed-v1"), to.to_owned()].map(|folder| JournalFiles::beside(folder.join("journal")));
    fs::create_dir_all(&files.folder).unwrap();
    let copy = |from: &Path, to: &Path| fs::write(to, sample(from, WRITTEN_BY)).unwrap();
    copy(&from.key, &files.key);
    copy(&from.generation, &files.generation);
    for entry in fs::read_dir(&from.folder).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &files.folder.join(entry.file_name()));
    }
    files
}

#[test]
fn a_sealed_folder_opens_and_goes_on() {
    let temporary = tempfile::tempdir().unwrap();
    let files = sealed(temporary.path());
    for _ in 0..2 {
        let journal = files.open().unwrap();
        for (name, file) in RECORDS {
            assert_eq!(journal.load(name).unwrap().unwrap().as_slice(), read(file), "{name}");
        }
        assert_eq!(journal.load("given").unwrap().unwrap().as_slice(), read("given.record"));
        journal.save(snapshot::ROUND, &read("round-done.record")).unwrap();
    }
    // The folder as it was left, and a generation that has gone on.
    let earlier = sealed(&temporary.path().join("copy"));
    fs::copy(&files.generation, &earlier.generation).unwrap();
    assert!(matches!(earlier.open(), Err(JournalError::Restored { .. })));
}

#[test]
fn every_damage_to_a_sealed_folder_is_found() {
    let temporary = tempfile::tempdir().unwrap();
    let files = sealed(temporary.path());
    let is_found = |name: &str| files.open().and_then(|journal| journal.load(name)).is_err();
    for (name, _) in RECORDS {
        let file = files.folder.join(format!("{name}.record"));
        let record = fs::read(&file).unwrap();
        assert!(record.starts_with(b"tributary sealed\x01\0"), "{name}");
        for position in (0..record.len()).step_by(37) {
            let mut bent = record.clone();
            bent[position] ^= 1;
            for bytes in [&bent[..], &record[..position]] {
                fs::write(&file, bytes).unwrap();
                assert!(is_found(name), "{name} at {position}");
            }
        }
        fs::write(&file, record).unwrap();
        assert!(!is_found(name), "{name}");
    }
    let mut key = fs::read(&files.key).unwrap();
    key[31] ^= 1;
    fs::write(&files.key, key).unwrap();
    assert!(matches!(files.open(), Err(JournalError::Sealed { .. })));
}

#[test]
#[ignore = "wrote what a member keeps, and its sealed folder, once"]
fn write_what_a_member_keeps() {
    let files = JournalFiles::beside(folder("sealed-v1").join("journal"));
    for name in ["member", "sealed-v1"] {
        fs::create_dir(folder(name)).expect("samples are never written again");
    }
    let hub = Hub::new(3, 2);
    hub.world(|world| {
        world.tweak = Some(honest as Tweak);
        world.renew_at = Some(Timestamp(TODAY.0 - 1));
        world.faults.insert((0, "renew"), vec![Fault::AnswerLost; 1000].into());
    });
    let mut devices = cohort(&hub);
    let journal: Arc<dyn Journal> = Arc::new(files.open().unwrap());
    devices[0] = Device::on(Arc::clone(&journal), 0, &hub, settings());
    finish(&hub, &mut devices);
    // Then the coordinator shows it another model as version 1.
    let found = Saved::load(|name| journal.load(name)).unwrap();
    let (action, events) = assigned(&found, place(1, with_another_file));
    let Action::Persist(records) = action else { panic!("it writes nothing down: {events:?}") };
    for record in &*records {
        journal.save(&record.name, &record.content()).unwrap();
    }
    for (name, file) in RECORDS {
        fs::write(folder("member").join(file), journal.load(name).unwrap().unwrap()).unwrap();
    }
    let asked = hub.world(|world| world.asked.iter().rfind(|(device, _)| *device == 0).map(|(_, csr)| key(csr)));
    fs::write(folder("member").join("next-key.sha256"), format!("{}\n", sha256(&asked.unwrap()))).unwrap();
    // The lock is not journal content.
    fs::remove_file(files.folder.join("lock")).unwrap();
}
