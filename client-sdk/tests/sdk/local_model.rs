//! The app uses the last published model that was verified: offline, after a restart, and whenever the process was killed.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::journal::{Journal, JournalFiles, MemoryJournal};
use client_sdk::participant::machine::Settings;
use client_sdk::participant::snapshot;
use client_sdk::runner::{Job, Next, Runner};
use client_sdk::{MetricValue, Model, Origin, Trained};

use crate::support::device::{Device, finish, fresh};
use crate::support::kept::{kill_everywhere, version};
use crate::support::trainers::Nudge;
use crate::support::{Coordinator, in_the_clear, sha256, task};

type Alone = Device<Coordinator, Nudge>;

const ROUNDS: u32 = 3;

fn alone(journal: Arc<dyn Journal>, settings: Settings) -> Alone {
    Device::with(journal, 0, Coordinator::new(ROUNDS), Nudge::default(), settings)
}

#[test]
fn the_app_has_the_last_model_with_its_scores_offline_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let files = JournalFiles::beside(folder.path().join("journal"));
    let mut device = alone(Arc::new(files.open().unwrap()), in_the_clear());
    assert_eq!(version(&*device.journal), None);
    device.run(500, |_| None);
    drop(device);
    let journal = Arc::new(files.open().unwrap());
    assert_eq!(version(&*journal), Some(ROUNDS - 1));
    let coordinator = Coordinator::new(ROUNDS);
    coordinator.world(|world| world.offline = true);
    let app = coordinator.app().journal(Arc::clone(&journal)).trainer(Nudge::default()).build().unwrap();
    let model = app.model_of("task").unwrap().unwrap();
    assert_eq!(model.metrics().iter().map(|(name, loss)| (&**name, loss.value)).collect::<Vec<_>>(), [("loss", 1.5)]);
    assert_eq!(model.origin(), app.model(task()).unwrap().unwrap().origin());
    assert!(app.model_of("another").unwrap().is_none());
    let kept = app.models().unwrap();
    assert_eq!((kept.len(), kept[0].version, kept[0].bytes), (1, 2, Coordinator::published(false, 2).len() as u64));
    // Sealed like everything in the folder.
    let record = std::fs::read(files.folder.join(format!("{}.record", snapshot::model(task())))).unwrap();
    assert!(record.starts_with(b"tributary sealed"));
}

#[test]
fn an_app_that_answers_jobs_finds_what_it_measured_of_the_model_that_each_began_with() {
    let (coordinator, journal) = (Coordinator::new(ROUNDS), Arc::new(MemoryJournal::new()));
    let app = coordinator.app().enrollment_token("token").journal(Arc::clone(&journal));
    let runner = Runner::start(app).unwrap();
    loop {
        let Job { parameters, training, answer, .. } = match runner.next(Duration::from_secs(60)) {
            Next::Job(job) => *job,
            Next::Waiting => continue,
            Next::Ended(end) => {
                end.unwrap();
                break;
            }
        };
        let metric = |value: f64| MetricValue { value, count: 3 };
        let metrics = vec![
            ("accuracy".to_owned(), metric(f64::from(training.round) / 10.0)),
            ("train_loss".to_owned(), metric(0.5)),
        ];
        answer.finish(Trained { parameters, examples: 3, metrics }).unwrap();
    }
    // Round 3 began with version 2; its result was not measured.
    assert_eq!(version(&*journal), Some(ROUNDS - 1));
    let model = Model::load(&*journal, task()).unwrap().unwrap();
    assert_eq!(model.metrics(), [("accuracy".to_owned(), MetricValue { value: 0.3, count: 3 })]);
}

#[test]
fn whenever_it_is_killed_there_is_a_whole_model_or_none_and_no_older_one() {
    let fresh = || alone(Arc::new(MemoryJournal::new()), in_the_clear());
    kill_everywhere(fresh, ROUNDS - 1, |kept, what| {
        assert_eq!((kept.len(), kept[0].metrics.len()), (1, 1), "{what}");
    });
}

#[test]
fn a_session_leaves_the_model_too_and_a_personalized_one_comes_first() {
    for personal in [false, true] {
        let (hub, mut devices) = fresh(personal);
        finish(&hub, &mut devices);
        for device in &devices {
            let (own, published) = (
                Model::load(&*device.journal, task()).unwrap().unwrap(),
                Model::load_published(&*device.journal, task()).unwrap().unwrap(),
            );
            let file = sha256(&Coordinator::published(personal, 1));
            assert_eq!(published.origin(), Origin::Published { version: 1, sha256: file });
            assert_eq!(published.parameters().values().len(), if personal { 3 } else { 5 });
            let expected = if personal { Origin::Personalized { round: 2 } } else { published.origin() };
            assert_eq!((own.origin(), own.parameters().values().len()), (expected, 5));
        }
    }
}

#[test]
fn what_the_app_does_not_want_or_has_no_room_for_is_not_kept() {
    let size = Coordinator::published(false, 0).len() as u64;
    for (settings, kept) in [
        (Settings { keep_models: false, ..in_the_clear() }, false),
        (Settings { max_model_bytes: size, ..in_the_clear() }, true),
    ] {
        let mut device = alone(Arc::new(MemoryJournal::new()), settings);
        device.run(500, |_| None);
        assert_eq!(version(&*device.journal), kept.then_some(ROUNDS - 1));
    }
}
