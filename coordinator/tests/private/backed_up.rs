//! Backups of private tasks exclude exact updates, and work without the excluded blobs.

use coordinator::fsck::{FindingKind, Repair};
use coordinator::random::Random;
use coordinator::{Parts, RestoreOptions};
use federation::round::RoundState;

use super::kept::world;
use crate::support::secure::World;

fn parts(world: &World) -> Parts {
    Parts { clock: std::sync::Arc::clone(&world.t.clock) as _, random: Random::from_seed(7) }
}

/// Whether a file below the folder contains these bytes.
fn holds(folder: &std::path::Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .any(|path| if path.is_dir() { holds(&path, bytes) } else { std::fs::read(&path).unwrap() == bytes })
}

#[tokio::test]
async fn a_backup_holds_no_unmasked_input_of_a_private_task() {
    let mut world = world("central_gaussian", 4).await;
    world.t.work().await;
    for member in &world.members {
        member.check_in(&world.t).await;
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
    let before = blobs(&world);
    for member in &mut world.members[..2] {
        member.assigned(&world.t).await;
        member.report(&world.t, &world.model).await;
    }
    let inputs: Vec<_> = blobs(&world).into_iter().filter(|blob| !before.contains(blob)).collect();
    assert!(inputs.len() >= 2, "{} inputs", inputs.len());

    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    let report = coordinator::back_up(&world.config, &parts(&world), &backup, true, &mut |_| {}).await.unwrap();
    assert!(report.left_out >= 2 && report.lacks.is_empty(), "{report:?}");
    assert!(inputs.iter().all(|input| !holds(&backup, input)));
    assert!(before.iter().any(|model| holds(&backup, model)), "but the model");

    // Restored elsewhere, with the separately kept keys and ends.
    let (config, place) = World::place();
    let of = world.folder.as_ref().unwrap().path();
    std::fs::copy(of.join("seal.key"), place.path().join("seal.key")).unwrap();
    std::fs::create_dir(place.path().join("seal.ledgers")).unwrap();
    let end = world.end_of(world.task);
    std::fs::copy(&end, place.path().join("seal.ledgers").join(end.file_name().unwrap())).unwrap();
    let restored =
        coordinator::restore(&config, &parts(&world), &backup, RestoreOptions::default(), &mut |_| {}).await.unwrap();
    assert!(restored.paused.is_empty(), "{restored:?}");
    let checked = coordinator::check(&config, &parts(&world), Repair::No, &mut |_| {}).await.unwrap();
    assert_eq!(checked.damage(), 0, "{checked:?}");
    assert!(checked.findings.iter().all(|finding| finding.kind == FindingKind::LeftOut), "{checked:?}");
    assert!(checked.findings.len() >= 2, "{checked:?}");
}

/// The contents of all blobs.
fn blobs(world: &World) -> Vec<Vec<u8>> {
    let blobs = world.files().into_iter().filter(|(path, _)| path.display().to_string().contains("/blobs/"));
    blobs.map(|(_, bytes)| bytes).filter(|bytes| !bytes.is_empty()).collect()
}
