//! Local records of SDK versions 4 to 6 still load: a codec's residual, the personalized model, an update waiting for a round. The
//! ignored test below wrote `tests/snapshots/v4` to `v6` once, and they are not rewritten; `solvers.rs` reads `v7`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::learning::Residual;
use client_sdk::participant::snapshot;
use client_sdk::{Model, Origin, Participant};

use crate::support::trainers::Nudge;
use crate::support::{Coordinator, Fault, World, one_of_five, sha256, task};

fn folder(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(version)
}

fn participant(coordinator: &Coordinator, journal: &Arc<MemoryJournal>, trainer: Nudge) -> Participant {
    let builder = coordinator.app().enrollment_token("token");
    builder.journal(Arc::clone(journal)).trainer(trainer).build().unwrap()
}

/// A journal with these records of that version, and the participant's identity.
fn journal(version: &str, records: &[(String, &str)]) -> Arc<MemoryJournal> {
    let journal = MemoryJournal::new();
    for (name, file) in records.iter().chain([&(snapshot::IDENTITY.to_owned(), "identity.record")]) {
        journal.save(name, &std::fs::read(folder(version).join(file)).unwrap()).unwrap();
    }
    Arc::new(journal)
}

/// Continues to the end of one round; returns the sent messages and the number of trainings.
async fn go_on(journal: &Arc<MemoryJournal>, change: impl FnOnce(&mut World)) -> (String, usize) {
    let coordinator = Coordinator::new(1);
    coordinator.world(change);
    let trainer = Nudge::default();
    let seen = Arc::clone(&trainer.seen);
    participant(&coordinator, journal, trainer).run(std::future::pending()).await.unwrap();
    let trained = seen.lock().unwrap().len();
    (coordinator.world(|world| sha256(&world.accepted[&1]).to_string()), trained)
}

fn own_model(journal: &MemoryJournal) -> (Origin, Vec<f32>) {
    let own = Model::load_personalized(journal, task()).unwrap().unwrap();
    (own.origin(), own.parameters().values().to_vec())
}

fn said(version: &str) -> String {
    std::fs::read_to_string(folder(version).join("said.sha256")).unwrap().trim().to_owned()
}

#[tokio::test(start_paused = true)]
async fn what_a_codec_left_out_stays_at_home_with_the_update_it_was_left_out_of() {
    let journal = journal("v4", &[(snapshot::ROUND.to_owned(), "round-pending.record")]);
    assert!(journal.load(&snapshot::residual(task())).unwrap().is_none(), "nothing was sent yet");
    let sent = go_on(&journal, |world| world.codec = Some(one_of_five())).await;
    assert_eq!(sent, (said("v4"), 0));
    let residual = journal.load(&snapshot::residual(task())).unwrap().unwrap();
    assert_eq!(residual.as_slice(), std::fs::read(folder("v4").join("residual.record")).unwrap());
    let left = Residual::from_record(&residual, 5).unwrap();
    assert_eq!(left.values().iter().filter(|value| **value > 0.3).count(), 4, "four of five: {left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_devices_own_model_is_still_its_own() {
    let third = 1.0 / 3.0;
    let kept = journal("v5", &[(snapshot::own(task()), "own.record")]);
    assert_eq!(own_model(&kept), (Origin::Personalized { round: 1 }, vec![third; 5]));
    let pending = journal("v5", &[(snapshot::ROUND.to_owned(), "round-pending.record")]);
    assert!(Model::load_personalized(&*pending, task()).unwrap().is_none(), "it takes effect with the update");
    assert_eq!(go_on(&pending, |world| world.personal = true).await, (said("v5"), 0));
    assert_eq!(own_model(&pending), (Origin::Personalized { round: 1 }, vec![third; 5]));
}

#[tokio::test(start_paused = true)]
async fn an_update_that_does_not_know_what_it_was_trained_from_is_given_to_no_round() {
    let journal = journal("v6", &[(snapshot::UPDATE.to_owned(), "update.record")]);
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| (world.ahead, world.personal, world.training) = (true, true, Some((1, 0))));
    participant(&coordinator, &journal, Nudge::default()).run(std::future::pending()).await.unwrap();
    assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "refused")]);
    assert!(coordinator.world(|world| world.accepted.is_empty()));
}

/// Lets a participant work until its update is on its way, or finished if it is trained ahead, and keeps its records.
async fn write(version: &str, change: impl FnOnce(&mut World), records: &[(String, &str)]) -> Arc<MemoryJournal> {
    std::fs::create_dir_all(folder(version)).unwrap();
    let coordinator = Coordinator::new(1);
    coordinator.world(change);
    coordinator.script("upload", vec![Fault::Lost; 1000]);
    // With a finished update it waits.
    if coordinator.world(|world| world.ahead) {
        coordinator.script("check_in", [vec![Fault::None], vec![Fault::Lost; 1000]].concat());
    }
    let journal = Arc::new(MemoryJournal::new());
    let working = tokio::time::sleep(Duration::from_secs(30));
    participant(&coordinator, &journal, Nudge::default()).run(working).await.unwrap();
    for (name, file) in records.iter().chain([&(snapshot::IDENTITY.to_owned(), "identity.record")]) {
        std::fs::write(folder(version).join(file), journal.load(name).unwrap().unwrap()).unwrap();
    }
    if let Some(sent) = coordinator.world(|world| world.sent.get(&1).cloned()) {
        std::fs::write(folder(version).join("said.sha256"), format!("{}\n", sha256(&sent[0]))).unwrap();
    }
    journal
}

#[tokio::test(start_paused = true)]
#[ignore = "wrote the records of versions 4 to 6, once"]
async fn write_the_records_of_versions_4_to_6() {
    let pending = [(snapshot::ROUND.to_owned(), "round-pending.record")];
    let journal = write("v4", |world| world.codec = Some(one_of_five()), &pending).await;
    go_on(&journal, |world| world.codec = Some(one_of_five())).await;
    let residual = journal.load(&snapshot::residual(task())).unwrap().unwrap();
    std::fs::write(folder("v4").join("residual.record"), residual).unwrap();
    let journal = write("v5", |world| world.personal = true, &pending).await;
    go_on(&journal, |world| world.personal = true).await;
    let own = journal.load(&snapshot::own(task())).unwrap().unwrap();
    std::fs::write(folder("v5").join("own.record"), own).unwrap();
    let waiting = [(snapshot::UPDATE.to_owned(), "update.record")];
    write("v6", |world| (world.ahead, world.personal) = (true, true), &waiting).await;
}
