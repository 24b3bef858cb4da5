//! Records of every SDK version still load. Version 1 wrote `tests/snapshots/v1`; `v2`, `v3`,
//! `v8` and `v9` have the additions of those versions. `member` has records of a member of secure rounds in addition to its
//! round, and `sealed-v1` its folder as stored on disk. They are not rewritten. A new version adds a folder (run an ignored test like
//! those below, then keep its output).

mod kept;
mod local_state;
mod member;
mod parts;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::cohort::Hub;
use crate::support::device::{cohort, deal_garbage, enrolled, finish};
use crate::support::trainers::Nudge;
use crate::support::{Coordinator, Fault, in_the_clear, participant, sha256, task};
use client_sdk::ParticipantError;
use client_sdk::clock::Now;
use client_sdk::journal::{Journal, JournalError, JournalFiles, MemoryJournal};
use client_sdk::participant::machine::{Action, Input, Machine, Saved};
use client_sdk::participant::snapshot;
use client_sdk::transport::Request;
use wire::Timestamp;
use wire::participant::Answer;
use zeroize::Zeroizing;

fn file(name: &str) -> PathBuf {
    folder("v1").join(name)
}

fn folder(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(version)
}

fn record(name: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(std::fs::read(file(name)).unwrap())
}

/// The bytes of a sample, which this ignored test has written.
fn sample(file: &Path, written_by: &str) -> Vec<u8> {
    std::fs::read(file).unwrap_or_else(|error| {
        let file = file.display();
        panic!("the sample {file}: {error}; `cargo test -p client-sdk --test sdk -- --ignored {written_by}` writes it")
    })
}

fn machine(identity: &str, round: Option<&str>) -> Result<Machine, ParticipantError> {
    let saved = Saved { identity: Some(record(identity)), round: round.map(record), ..Saved::default() };
    enrolled(&in_the_clear(), &saved)
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
    let mut participant = coordinator.app().journal(journal).trainer(trainer).build().unwrap();
    participant.run(std::future::pending()).await.unwrap();
    assert_eq!(seen.lock().unwrap()[0], [1.0, 1.0, 1.0, 1.0 / 3.0, 1.0 / 3.0]);
}

#[test]
fn damaged_records_are_clear_errors() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in
        [(snapshot::IDENTITY, &b"not a record"[..]), (snapshot::ROUND, &record("round-pending.record")[..99])]
    {
        let journal = JournalFiles::beside(folder.path().join("journal")).open().unwrap();
        journal.save(snapshot::IDENTITY, &record("identity.record")).unwrap();
        journal.save(name, bytes).unwrap();
        let builder = Coordinator::new(1).app().journal(journal);
        let error = builder.trainer(Nudge::default()).build().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("enrol anew") && !error.contains("restore"), "{error}");
    }
}

/// Folders as participants left them before journals were sealed.
#[test]
fn a_journal_from_before_there_were_seals_is_sealed_and_goes_on() {
    let temporary = tempfile::tempdir().unwrap();
    for (version, round) in [("v1", "round-pending"), ("v2", "round-masked"), ("v8", "round-pending")] {
        let of = |name: &str| folder(version).join(format!("{name}.record"));
        let identity = if version == "v8" { of("identity-pending") } else { of("identity") };
        let files = JournalFiles::beside(temporary.path().join(version));
        std::fs::create_dir_all(&files.folder).unwrap();
        std::fs::copy(&identity, files.folder.join("identity.record")).unwrap();
        std::fs::copy(of(round), files.folder.join("round.record")).unwrap();
        for _ in 0..2 {
            let journal = files.open().unwrap();
            let load = |name| journal.load(name).unwrap().unwrap().to_vec();
            let (identity, round) = (load(snapshot::IDENTITY), load(snapshot::ROUND));
            assert!(matches!(of_records(identity, round).map(first_request), Ok(Request::Upload(_))), "{version}");
        }
        for name in ["identity.record", "round.record"] {
            assert!(std::fs::read(files.folder.join(name)).unwrap().starts_with(b"tributary sealed"), "{version}");
        }
        // The same folder once more, in the clear: the participant has gone on since.
        std::fs::copy(&identity, files.folder.join("identity.record")).unwrap();
        std::fs::copy(of(round), files.folder.join("round.record")).unwrap();
        assert!(matches!(files.open(), Err(JournalError::Restored { .. })), "{version}");
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
    let mut participant = coordinator
        .app()
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

/// A participant of version 3 that has spent something.
fn of_version_3(privacy: Option<Vec<u8>>) -> Result<Machine, ParticipantError> {
    let record = |name: &str| Some(Zeroizing::new(std::fs::read(folder("v3").join(name)).unwrap()));
    let privacy = privacy.map(Zeroizing::new);
    let saved =
        Saved { identity: record("identity.record"), round: record("round-done.record"), privacy, ..Saved::default() };
    enrolled(&in_the_clear(), &saved)
}

#[test]
fn what_was_spent_is_still_spent() {
    let ledger = std::fs::read(folder("v3").join("privacy.record")).unwrap();
    let machine = of_version_3(Some(ledger)).unwrap();
    let expected = std::fs::read_to_string(folder("v3").join("spent.txt")).unwrap();
    assert_eq!(format!("{:#?}\n", machine.privacy_spent()), expected);
    assert!(matches!(first_request(machine), Request::CheckIn(_)));
    let error = of_version_3(None).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("holds 0 releases where 2 were charged"), "{error}");
}

#[test]
#[ignore = "wrote the records of version 3, once"]
fn write_the_ledger_of_version_3() {
    let folder = folder("v3");
    std::fs::create_dir_all(&folder).unwrap();
    let hub = Hub::new(3, 2);
    hub.world(|world| {
        world.privacy = Some(crate::support::private::terms("distributed_skellam"));
        world.open(1, 1);
    });
    let mut devices = cohort(&hub);
    finish(&hub, &mut devices);
    for (name, file) in [
        (snapshot::IDENTITY, "identity.record"),
        (snapshot::ROUND, "round-done.record"),
        (snapshot::PRIVACY, "privacy.record"),
    ] {
        std::fs::write(folder.join(file), devices[0].journal.load(name).unwrap().unwrap()).unwrap();
    }
    let spent = devices[0].machine.privacy_spent();
    std::fs::write(folder.join("spent.txt"), format!("{spent:#?}\n")).unwrap();
}

/// A session in every state that has a record.
const SESSIONS: [&str; 7] = ["keys", "dealt", "masked", "confirmed", "answered", "complained", "done"];

/// What a participant would say next in its session.
fn next_word(request: Request) -> Vec<u8> {
    match request {
        Request::CheckIn(request) => request.keys.map(|keys| keys.advertisement.0).unwrap_or_default(),
        Request::Upload(upload) => [&upload.body[..], &upload.signed.unwrap_or_default()].concat(),
        Request::Answer { body, .. } => body.to_vec(),
        _ => panic!("it says something else"),
    }
}

fn of_session(state: &str) -> Request {
    let read = |name: String| std::fs::read(folder("v2").join(name)).unwrap();
    first_request(of_records(read("identity.record".into()), read(format!("round-{state}.record"))).unwrap())
}

fn of_records(identity: Vec<u8>, round: Vec<u8>) -> Result<Machine, ParticipantError> {
    let (identity, round) = (Some(Zeroizing::new(identity)), Some(Zeroizing::new(round)));
    let saved = Saved { identity, round, ..Saved::default() };
    enrolled(&in_the_clear(), &saved)
}

#[test]
fn a_session_goes_on_with_the_words_it_was_left_with() {
    let expected = std::fs::read_to_string(folder("v2").join("said.sha256")).unwrap();
    let said = SESSIONS.map(|state| format!("{state} {}\n", sha256(&next_word(of_session(state)))));
    assert_eq!(said.concat(), expected);
    assert!(matches!(of_session("keys"), Request::CheckIn(request) if request.keys.is_some()));
    assert!(matches!(of_session("dealt"), Request::CheckIn(request) if request.keys.is_none()));
    assert!(matches!(of_session("masked"), Request::Upload(_)));
    assert!(matches!(of_session("confirmed"), Request::Answer { what: Answer::Consistency, .. }));
    assert!(matches!(of_session("answered"), Request::Answer { what: Answer::UnmaskShares, .. }));
    assert!(matches!(of_session("complained"), Request::Answer { what: Answer::Complaint, .. }));
    assert!(matches!(of_session("done"), Request::CheckIn(request) if request.keys.is_none()));
}

#[test]
fn every_damage_to_a_session_is_found() {
    let identity = std::fs::read(folder("v2").join("identity.record")).unwrap();
    for state in SESSIONS {
        let record = std::fs::read(folder("v2").join(format!("round-{state}.record"))).unwrap();
        find_every_damage(&identity, &record, state);
    }
}

fn find_every_damage(identity: &[u8], record: &[u8], state: &str) {
    let load = |round: &[u8]| of_records(identity.to_vec(), round.to_vec()).map(|_| ());
    load(record).unwrap();
    for length in (0..record.len()).step_by(7) {
        assert!(load(&record[..length]).is_err(), "{state} cut at {length}");
    }
    for position in (0..record.len()).step_by(7) {
        let mut damaged = record.to_vec();
        damaged[position] ^= 1;
        assert!(load(&damaged).is_err(), "{state}: bit flipped at {position}");
    }
}

/// Updates on their way, in the clear and masked.
const BEHIND_THE_DIGEST: [&str; 2] = ["pending", "masked"];

fn of_version_8(state: &str) -> (Vec<u8>, Vec<u8>) {
    let read = |name: &str| std::fs::read(folder("v8").join(format!("{name}-{state}.record"))).unwrap();
    (read("identity"), read("round"))
}

fn said_by_version_8() -> String {
    let said = BEHIND_THE_DIGEST.map(|state| {
        let (identity, round) = of_version_8(state);
        let Ok(Request::Upload(upload)) = of_records(identity, round).map(first_request) else { panic!("{state}") };
        assert_eq!(sha256(&upload.body), upload.sha256);
        format!("{state} {}\n", sha256(&next_word(Request::Upload(upload))))
    });
    said.concat()
}

#[test]
fn an_update_behind_the_digest_goes_out_as_it_was_written() {
    assert_eq!(said_by_version_8(), std::fs::read_to_string(folder("v8").join("said.sha256")).unwrap());
    for state in BEHIND_THE_DIGEST {
        let (identity, round) = of_version_8(state);
        find_every_damage(&identity, &round, state);
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "wrote the records of version 8, once"]
async fn write_the_updates_of_version_8() {
    let keep = |name: &str, state: &str, record: &[u8]| {
        std::fs::write(folder("v8").join(format!("{name}-{state}.record")), record).unwrap();
    };
    std::fs::create_dir_all(folder("v8")).unwrap();
    let coordinator = Coordinator::new(1);
    coordinator.script("upload", vec![Fault::Lost; 1000]);
    let journal = Arc::new(MemoryJournal::new());
    let builder = coordinator.app().enrollment_token("token");
    let mut participant = builder.journal(Arc::clone(&journal)).trainer(Nudge::default()).build().unwrap();
    participant.run(tokio::time::sleep(std::time::Duration::from_secs(30))).await.unwrap();
    keep("identity", "pending", &journal.load(snapshot::IDENTITY).unwrap().unwrap());
    keep("round", "pending", &journal.load(snapshot::ROUND).unwrap().unwrap());
    let hub = Hub::new(3, 1);
    let mut devices = cohort(&hub);
    finish(&hub, &mut devices);
    keep("identity", "masked", &devices[0].journal.load(snapshot::IDENTITY).unwrap().unwrap());
    let masked = SESSIONS.iter().position(|state| *state == "masked").unwrap();
    keep("round", "masked", &devices[0].records[masked]);
    std::fs::write(folder("v8").join("said.sha256"), said_by_version_8()).unwrap();
}

#[test]
#[ignore = "wrote the records of version 2, once"]
fn write_the_sessions_of_version_2() {
    let folder = folder("v2");
    std::fs::create_dir_all(&folder).unwrap();
    let hub = Hub::new(3, 1);
    let mut devices = cohort(&hub);
    finish(&hub, &mut devices);
    let mut records = devices[0].records.clone();
    // The same device in another task of its own: a dealer dealt garbage.
    let hub = Hub::new(3, 1);
    let mut others = cohort(&hub);
    deal_garbage(&hub, &mut others);
    finish(&hub, &mut others);
    records.insert(5, others[0].records[2].clone());
    assert_eq!(records.len(), SESSIONS.len());
    for (state, record) in SESSIONS.iter().zip(&records) {
        std::fs::write(folder.join(format!("round-{state}.record")), record).unwrap();
    }
    let identity = devices[0].journal.load(snapshot::IDENTITY).unwrap().unwrap();
    std::fs::write(folder.join("identity.record"), identity).unwrap();
    let said = SESSIONS.map(|state| format!("{state} {}\n", sha256(&next_word(of_session(state)))));
    std::fs::write(folder.join("said.sha256"), said.concat()).unwrap();
}

#[tokio::test(start_paused = true)]
#[ignore = "wrote the records of version 1, once"]
async fn write_the_records_of_version_1() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.personal = true);
    coordinator.script("upload", vec![Fault::Lost; 1000]);
    let journal = Arc::new(MemoryJournal::new());
    let participant = || {
        let builder = coordinator.app().enrollment_token("token");
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
