//! Model downloads into a file: a killed app resumes the download, and trains only on a file with the model's digest.

use std::path::Path;
use std::time::Duration;

use client_sdk::journal::JournalFiles;
use client_sdk::{Participant, ParticipantError};

use crate::support::trainers::Nudge;
use crate::support::{Coordinator, Fault};

fn app(coordinator: &Coordinator, folder: &Path) -> Participant {
    let journal = JournalFiles::beside(folder.join("journal")).open().unwrap();
    let app = coordinator.app().enrollment_token("token").journal(journal).trainer(Nudge::default());
    app.build().unwrap()
}

fn ranges(coordinator: &Coordinator) -> Vec<usize> {
    coordinator.world(|world| world.ranges.clone())
}

/// Runs until a condition holds, and ends as a killed process does.
async fn kill_when(coordinator: &Coordinator, folder: &Path, condition: impl Fn() -> bool) {
    let mut participant = app(coordinator, folder);
    let until = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        () = until => {}
        outcome = participant.run(std::future::pending()) => panic!("it ended: {outcome:?}"),
    }
}

/// Runs to the end of the task.
async fn finish(coordinator: &Coordinator, folder: &Path) -> Result<Vec<u32>, ParticipantError> {
    app(coordinator, folder).run(std::future::pending()).await?;
    Ok(coordinator.world(|world| world.accepted.keys().copied().collect()))
}

#[tokio::test(start_paused = true)]
async fn a_killed_app_goes_on_where_its_download_stopped() {
    let (coordinator, folder) = (Coordinator::new(1), tempfile::tempdir().unwrap());
    coordinator.script("fetch", [Fault::Half, Fault::Lost, Fault::Half, Fault::Lost]);
    kill_when(&coordinator, folder.path(), || ranges(&coordinator).len() == 1).await;
    kill_when(&coordinator, folder.path(), || ranges(&coordinator).len() == 2).await;
    assert_eq!(finish(&coordinator, folder.path()).await.unwrap(), [1]);
    let size = Coordinator::published(false, 0).len();
    let second = size / 2;
    assert_eq!(ranges(&coordinator), [0, second, second + (size - second) / 2]);
}

#[tokio::test(start_paused = true)]
async fn an_app_that_was_killed_with_the_whole_model_fetches_nothing_again() {
    let (coordinator, folder) = (Coordinator::new(1), tempfile::tempdir().unwrap());
    coordinator.script("upload", vec![Fault::Lost; 3]);
    let file = folder.path().join("journal.transfers");
    let is_whole = || {
        let files = std::fs::read_dir(&file).into_iter().flatten().flatten();
        files.map(|file| file.metadata().unwrap().len()).sum::<u64>() == Coordinator::published(false, 0).len() as u64
    };
    kill_when(&coordinator, folder.path(), is_whole).await;
    assert_eq!(finish(&coordinator, folder.path()).await.unwrap(), [1]);
    assert_eq!(ranges(&coordinator), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_file_with_another_digest_is_thrown_away_and_fetched_anew() {
    let (coordinator, folder) = (Coordinator::new(1), tempfile::tempdir().unwrap());
    coordinator.script("fetch", [Fault::Half, Fault::Garbage]);
    assert_eq!(finish(&coordinator, folder.path()).await.unwrap(), [1]);
    let half = Coordinator::published(false, 0).len() / 2;
    assert_eq!(ranges(&coordinator), [0, half, 0]);
    // A file placed there by others is not used, either.
    let (coordinator, folder) = (Coordinator::new(1), tempfile::tempdir().unwrap());
    let (transfers, published) = (folder.path().join("journal.transfers"), Coordinator::published(false, 0));
    std::fs::create_dir(&transfers).unwrap();
    let name = crate::support::sha256(&published).to_string();
    std::fs::write(transfers.join(name), vec![0; published.len()]).unwrap();
    assert_eq!(finish(&coordinator, folder.path()).await.unwrap(), [1]);
    assert_eq!(ranges(&coordinator), [0], "the whole model");
}
