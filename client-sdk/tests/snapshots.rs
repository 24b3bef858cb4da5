//! Records written by every version of the SDK still load. `tests/snapshots/v1` was written by version 1 and is never
//! written again; a new version adds a folder (run the ignored test below, then keep what it wrote).
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use client_sdk::clock::Now;
use client_sdk::journal::{FileJournal, Journal, JournalError, MemoryJournal};
use client_sdk::participant::machine::{Action, Input, Machine, Request, Saved, Settings};
use client_sdk::participant::snapshot;
use client_sdk::{Participant, ParticipantError};
use support::{Coordinator, Fault, Nudge, participant, secrets, sha256, task};
use wire::Timestamp;
use zeroize::Zeroizing;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/v1").join(name)
}

fn record(name: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(std::fs::read(file(name)).unwrap())
}

fn machine(identity: &str, round: Option<&str>) -> Result<Machine, ParticipantError> {
    let saved = Saved { identity: Some(record(identity)), round: round.map(record) };
    Machine::new(
        Settings::default(),
        None,
        &saved,
        || unreachable!("the key is in the record"),
        [0; 32],
        secrets([0; 32]),
    )
}

fn first_request(mut machine: Machine) -> Request {
    let now = Now { elapsed: std::time::Duration::ZERO, wall: Timestamp(0) };
    match machine.poll(Input::Tick, now) {
        Action::Send(request) => request,
        _ => panic!("it does not go on by a request"),
    }
}

#[test]
fn an_identity_is_still_the_same() {
    let machine = machine("identity.record", None).unwrap();
    let identity = Arc::clone(machine.identity().unwrap());
    assert_eq!((identity.certified.participant, identity.certified.name.as_str()), (participant(), "device-1"));
    assert!(identity.key.signing_request().is_ok());
    assert!(matches!(first_request(machine), Request::CheckIn(_)));
}

#[test]
fn a_pending_update_goes_out_as_it_was_written() {
    let machine = machine("identity.record", Some("round-pending.record")).unwrap();
    let Request::Upload(upload) = first_request(machine) else { panic!("it does not send the update") };
    assert_eq!((upload.place.task, upload.place.round, upload.place.attempt), (task(), 1, 1));
    assert_eq!(sha256(&upload.body), upload.sha256);
    assert_eq!(upload.sha256.to_string(), std::fs::read_to_string(file("round-pending.sha256")).unwrap().trim());
}

#[test]
fn a_round_that_is_done_is_not_answered_again() {
    let machine = machine("identity.record", Some("round-done.record")).unwrap();
    assert!(matches!(first_request(machine), Request::CheckIn(_)));
}

#[tokio::test(start_paused = true)]
async fn personal_tensors_are_still_joined() {
    let coordinator = Coordinator::new(2);
    coordinator.world(|world| (world.personal, world.rounds_done) = (true, 1));
    let journal = MemoryJournal::new();
    journal.save(snapshot::IDENTITY, &record("identity.record")).unwrap();
    journal.save(&snapshot::personal(task()), &record("personal.record")).unwrap();
    let trainer = Nudge::default();
    let seen = Arc::clone(&trainer.seen);
    let mut participant =
        Participant::builder().transport(coordinator).journal(journal).trainer(trainer).build().unwrap();
    participant.run(std::future::pending()).await.unwrap();
    assert_eq!(seen.lock().unwrap()[0], [1.0, 1.0, 1.0, 1.0 / 3.0, 1.0 / 3.0]);
}

#[test]
fn damaged_records_are_clear_errors() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in
        [(snapshot::IDENTITY, &b"not a record"[..]), (snapshot::ROUND, &record("round-pending.record")[..99])]
    {
        let journal = FileJournal::open(folder.path()).unwrap();
        journal.save(snapshot::IDENTITY, &record("identity.record")).unwrap();
        journal.save(name, bytes).unwrap();
        let builder = Participant::builder().transport(Coordinator::new(1)).journal(journal);
        let error = builder.trainer(Nudge::default()).build().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("backup"), "{error}");
    }
}

/// A journal on a disk that is full.
struct Full(MemoryJournal);

impl Journal for Full {
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        self.0.load(name)
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        match name {
            snapshot::ROUND => Err(JournalError::io("write round", std::io::ErrorKind::StorageFull.into())),
            _ => self.0.save(name, bytes),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_full_disk_nothing_is_sent_that_could_not_be_kept() {
    let coordinator = Coordinator::new(1);
    let mut participant = Participant::builder()
        .transport(coordinator.clone())
        .enrollment_token("token")
        .journal(Full(MemoryJournal::new()))
        .trainer(Nudge::default())
        .build()
        .unwrap();
    let error = participant.run(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, ParticipantError::Journal(JournalError::Io { .. })), "{error}");
    assert!(error.to_string().contains("no storage space"), "{error}");
    assert!(coordinator.world(|world| world.sent.is_empty()));
}

#[tokio::test(start_paused = true)]
#[ignore = "writes the records of a new version, once"]
async fn write_the_records_of_this_version() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.personal = true);
    coordinator.script("upload", vec![Fault::Lost; 1000]);
    let journal = Arc::new(MemoryJournal::new());
    let participant = || {
        let builder = Participant::builder().transport(coordinator.clone()).enrollment_token("token");
        builder.journal(Arc::clone(&journal)).trainer(Nudge::default()).build().unwrap()
    };
    let keep = |record: &str, name: &str| std::fs::write(file(name), journal.load(record).unwrap().unwrap()).unwrap();
    std::fs::create_dir_all(file("")).unwrap();
    participant().run(tokio::time::sleep(std::time::Duration::from_secs(30))).await.unwrap();
    keep(snapshot::IDENTITY, "identity.record");
    keep(snapshot::ROUND, "round-pending.record");
    let digest = coordinator.world(|world| sha256(&world.sent[&1][0]));
    std::fs::write(file("round-pending.sha256"), format!("{digest}\n")).unwrap();
    coordinator.world(|world| world.faults.clear());
    participant().run(std::future::pending()).await.unwrap();
    keep(snapshot::ROUND, "round-done.record");
    keep(&snapshot::personal(task()), "personal.record");
}
