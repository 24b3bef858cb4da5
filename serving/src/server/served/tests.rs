//! Versions in a folder, from activation to rollback.

use client_sdk::models::{Architecture, Linear};
use inference::batcher::Batching;
use learning::checkpoint;
use recipe::digest::sha256;
use ring::signature::Ed25519KeyPair;
use wire::provenance::{FORMAT, Origin, Provenance, key_of};

use super::super::folder::{MODEL, Record};
use super::*;

const NAME: &str = "digits";

fn task(number: u128) -> TaskId {
    format!("00000000-0000-0000-0000-{number:012}").parse().unwrap()
}

/// A model served from its own folder.
struct Test {
    models: tempfile::TempDir,
    engine: Engine,
    served: Arc<Served>,
}

impl Test {
    fn new(canary_percent: f64) -> Self {
        let models = tempfile::tempdir().unwrap();
        let batching = Batching { max_batch: 2, max_delay: Duration::ZERO, queue: 4 };
        let engine = Engine::start(&[NAME.to_owned()], batching, 1).unwrap();
        let served = Self::serve(&models, canary_percent);
        Self { models, engine, served }
    }

    fn serve(models: &tempfile::TempDir, canary_percent: f64) -> Arc<Served> {
        let hold = Duration::from_secs(3600);
        let rollout = Rollout { canary_percent, hold, ..Rollout::default() };
        Arc::new(Served::new(models.path(), NAME, 0, rollout, 2).unwrap())
    }

    /// Stores a version with a record of its task.
    fn publish(&self, version: u32, of: TaskId) {
        self.publish_signed(version, of, None);
    }

    fn publish_signed(&self, version: u32, of: TaskId, signed: Option<(&Ed25519KeyPair, Origin)>) {
        let model = Architecture::Linear(Linear { inputs: 2, classes: 2 }).initial(version.into()).unwrap();
        let file = checkpoint::write(&model).unwrap();
        let sha256 = sha256(&file);
        std::fs::write(self.served.folder.incoming(version).unwrap(), &file).unwrap();
        let time = wire::Timestamp(0);
        let provenance = signed.map(|(pair, origin)| {
            let told = Provenance {
                format: FORMAT,
                coordinator: key_of(pair),
                task: of,
                task_sha256: sha256,
                version,
                sha256,
                bytes: file.len() as u64,
                origin,
                base: None,
                round: None,
                roster: None,
                survivors: None,
                below: Vec::new(),
                updates: None,
                privacy: None,
                published_at: time,
                signed_at: time,
                program: "a test".to_owned(),
            };
            told.sign(pair)
        });
        let record = Record { task: of, sha256, architecture: None, table: None, provenance, follows_restored: false };
        self.served.folder.keep(version, &record).unwrap();
    }

    /// Replaces the record of a version.
    fn change(&self, version: u32, change: impl FnOnce(&mut Record)) {
        let path = self.served.folder.file(version).with_file_name("record.json");
        let mut record: Record = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut record);
        std::fs::write(path, serde_json::to_vec(&record).unwrap()).unwrap();
    }

    /// Repeats passes until nothing changes; returns the versions on disk and those unloaded.
    async fn look(&self) {
        for _ in 0..4 {
            self.served.look(&self.engine).await;
        }
    }

    fn stable(&self) -> Option<u32> {
        self.served.at(None).map(|loaded| loaded.version)
    }
}

#[tokio::test]
async fn a_rollback_is_not_undone_by_a_version_in_between() {
    let mut test = Test::new(0.0);
    test.publish(1, task(1));
    test.look().await;
    test.publish(2, task(1));
    test.publish(3, task(1));
    test.look().await;
    assert_eq!(test.stable(), Some(3));
    assert_eq!(test.served.roll_back().await.unwrap(), 1);
    test.look().await;
    assert_eq!(test.stable(), Some(1));
    let standing = |test: &Test| {
        let standing = test.served.standing(test.engine.now());
        (
            standing.version,
            standing.refused.iter().map(|refused| (refused.version, refused.because)).collect::<Vec<_>>(),
        )
    };
    assert_eq!(standing(&test), (Some(1), vec![(3, RefusedBecause::RolledBack)]));
    test.served = Test::serve(&test.models, 0.0);
    test.look().await;
    assert_eq!(test.stable(), Some(1), "nor after a restart");
    assert_eq!(standing(&test), (Some(1), vec![(3, RefusedBecause::Earlier)]));
    test.publish(4, task(1));
    test.look().await;
    assert_eq!(test.stable(), Some(4));
}

#[tokio::test]
async fn a_version_on_trial_and_one_that_is_no_model_are_told() {
    let test = Test::new(20.0);
    test.publish(1, task(1));
    test.look().await;
    let first = test.served.standing(test.engine.now());
    assert_eq!((first.version, first.canary, first.refused.len()), (Some(1), None, 0));
    test.publish(2, task(1));
    test.look().await;
    let tried = test.served.standing(test.engine.now());
    let canary = tried.canary.unwrap();
    assert_eq!((tried.version, canary.version, canary.percent), (Some(1), 2, 20.0));
    assert!(canary.left_ms > 0 && canary.left_ms <= 3_600_000, "{canary:?}");
    assert_eq!(test.served.roll_back().await.unwrap(), 1);
    test.publish(3, task(1));
    std::fs::write(test.served.folder.file(3), "damaged").unwrap();
    test.look().await;
    let then = test.served.standing(test.engine.now());
    let refused: Vec<_> = then.refused.iter().map(|refused| (refused.version, refused.because)).collect();
    assert_eq!((then.version, then.canary), (Some(1), None));
    assert_eq!(refused, [(3, RefusedBecause::Damaged), (2, RefusedBecause::RolledBack)]);
}

#[tokio::test]
async fn a_rollback_passes_a_damaged_version() {
    let test = Test::new(0.0);
    for version in 1..=3 {
        test.publish(version, task(1));
        test.look().await;
    }
    for version in [1, 2] {
        std::fs::write(test.served.folder.file(version), "damaged").unwrap();
    }
    assert!(matches!(test.served.roll_back().await, Err(NotRolledBack::Previous { version: 2, .. })));
    assert_eq!(test.stable(), Some(3), "nothing changed");
    test.publish(1, task(1));
    assert_eq!(test.served.roll_back().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_waits_a_while_for_what_is_drained() {
    let test = Test::new(0.0);
    test.publish(1, task(1));
    test.look().await;
    let asked = test.served.at(None).unwrap();
    test.publish(2, task(1));
    test.look().await;
    assert_eq!(test.stable(), Some(2));
    assert!(matches!(test.served.roll_back().await, Err(NotRolledBack::Draining)));
    let answered = async {
        tokio::time::sleep(back::DRAINED / 2).await;
        drop(asked);
    };
    let (stable, ()) = tokio::join!(test.served.roll_back(), answered);
    assert_eq!(stable.unwrap(), 1);
}

#[tokio::test]
async fn newer_versions_wait_for_the_verdict_and_restored_ones_do_not() {
    let test = Test::new(20.0);
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let publish = |version, origin| test.publish_signed(version, task(1), Some((&pair, origin)));
    for version in 1..=3 {
        publish(version, Origin::Trained);
        test.look().await;
    }
    assert_eq!(test.served.answering(), [1, 2], "3 waits until 2 was tried");
    publish(4, Origin::Restored);
    publish(5, Origin::Trained);
    std::fs::write(test.served.folder.file(4), "damaged").unwrap();
    test.look().await;
    assert_eq!(test.served.answering(), [1, 2], "nothing makes room for what cannot be used");
    publish(4, Origin::Restored);
    test.look().await;
    assert_eq!((test.stable(), test.served.answering()), (Some(4), vec![4, 5]));
    // The restored predecessor was deleted.
    publish(6, Origin::Trained);
    test.change(6, |record| record.follows_restored = true);
    test.look().await;
    assert_eq!((test.stable(), test.served.answering()), (Some(6), vec![6]));
}

/// Version 3 was restored, and waits for the last request to the canary, version 2.
async fn restored_beside_a_canary() -> (Test, Arc<Loaded>) {
    let test = Test::new(20.0);
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    for version in 1..=2 {
        test.publish_signed(version, task(1), Some((&pair, Origin::Trained)));
        test.look().await;
    }
    let asked = test.served.at(Some(2)).unwrap();
    test.publish_signed(3, task(1), Some((&pair, Origin::Restored)));
    test.look().await;
    (test, asked)
}

#[tokio::test]
async fn a_restored_version_is_loaded_once_before_a_canary_makes_room() {
    let (test, asked) = restored_beside_a_canary().await;
    assert_eq!(test.served.answering(), [1], "the canary is drained while somebody asks it");
    let waiting = locked(&test.served.ready).as_ref().map(|ready| Arc::as_ptr(&ready.loaded)).unwrap();
    drop(asked);
    test.look().await;
    let stable = test.served.at(None).unwrap();
    assert_eq!((stable.version, Arc::as_ptr(&stable)), (3, waiting));
    assert!(locked(&test.served.ready).is_none());
}

#[tokio::test]
async fn a_restored_version_that_was_changed_while_it_waited_is_loaded_again() {
    let (test, asked) = restored_beside_a_canary().await;
    std::fs::write(test.served.folder.file(3), "damaged").unwrap();
    let later = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    std::fs::File::options().write(true).open(test.served.folder.file(3)).unwrap().set_modified(later).unwrap();
    drop(asked);
    test.look().await;
    assert_eq!(test.stable(), Some(1));
}

#[tokio::test]
async fn what_its_coordinator_did_not_sign_is_not_used() {
    let test = Test::new(0.0);
    let pair = |seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
    let (ours, others) = (pair(7), pair(8));
    let publish = |version, by| test.publish_signed(version, task(1), Some((by, Origin::Restored)));
    publish(1, &ours);
    test.served.trust(key_of(&ours));
    test.look().await;
    let mut first = None;
    test.change(1, |record| first = record.provenance.clone());
    publish(2, &others);
    publish(3, &ours);
    test.change(3, |record| record.provenance.as_mut().unwrap().signature.0[0] ^= 1);
    publish(4, &ours);
    test.change(4, |record| record.provenance = first);
    publish(5, &ours);
    test.change(5, |record| record.provenance = None);
    test.look().await;
    assert_eq!((test.stable(), test.served.answering()), (Some(1), vec![1]));
    for (version, why) in
        [(2, "it is signed by the key"), (3, "it is not signed by the key"), (4, "another model"), (5, "there is none")]
    {
        let read = test.served.folder.read(version, test.served.key());
        assert!(matches!(&read, Err(Unusable::Provenance(told)) if told.contains(why)), "{version}: {:?}", read.err());
        assert!(!test.served.folder.is_restored(version, test.served.key()));
        assert!(test.served.lacks(version), "it is fetched again");
    }
    publish(6, &ours);
    test.look().await;
    assert_eq!(test.stable(), Some(6));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_be_read_for_a_while_is_read_again() {
    let test = Test::new(0.0);
    test.publish(1, task(1));
    let record = test.served.folder.file(1).with_file_name("record.json");
    let kept = std::fs::read(&record).unwrap();
    std::fs::remove_file(&record).unwrap();
    // Reading a folder as a file fails, but does not prove anything about the version.
    std::fs::create_dir(&record).unwrap();
    test.look().await;
    assert_eq!(test.stable(), None);
    assert!(!test.served.lacks(1));
    std::fs::remove_dir(&record).unwrap();
    std::fs::write(&record, kept).unwrap();
    test.look().await;
    assert_eq!(test.stable(), None, "not at every look");
    tokio::time::advance(AGAIN).await;
    test.look().await;
    assert_eq!(test.stable(), Some(1));
}

#[tokio::test]
async fn a_damaged_version_is_lacking_and_one_that_is_no_model_is_not() {
    let test = Test::new(0.0);
    test.publish(1, task(1));
    assert!(test.served.lacks(2) && !test.served.lacks(1));
    std::fs::write(test.served.folder.file(1), "damaged").unwrap();
    let no_model = test.models.path().join(NAME).join("2");
    std::fs::create_dir(&no_model).unwrap();
    std::fs::write(no_model.join(MODEL), "no model").unwrap();
    let file = |version| test.served.folder.file(version);
    let damaged_at = std::fs::metadata(file(1)).unwrap().modified().unwrap();
    test.look().await;
    assert!(test.served.lacks(1) && !test.served.lacks(2));
    test.publish(1, task(1));
    // The clock of a file system has ticks of some milliseconds.
    std::fs::File::options().write(true).open(file(1)).unwrap().set_modified(damaged_at).unwrap();
    test.look().await;
    assert_eq!(test.stable(), Some(1), "once it was fetched again");
}

#[tokio::test]
async fn a_new_task_of_the_name_begins_at_its_first_version() {
    let mut test = Test::new(20.0);
    test.publish(4, task(1));
    test.look().await;
    test.publish(5, task(1));
    test.look().await;
    assert_eq!(test.served.task(), Some(task(1)));
    test.served.begin(task(1)).await.unwrap();
    assert_eq!(test.served.answering(), [4, 5], "it is the same task");
    test.served.begin(task(2)).await.unwrap();
    test.look().await;
    assert_eq!((test.stable(), test.served.task()), (Some(4), Some(task(2))), "until there is another one");
    assert_eq!(test.served.audience(), Some(task(1)), "nobody asks the former one's model by a token of the new one");
    test.publish(1, task(2));
    test.look().await;
    assert_eq!(test.served.answering(), [1]);
    assert_eq!(test.served.audience(), Some(task(2)));
    let state = test.served.folder.state().unwrap();
    assert_eq!((state.stable, state.previous, state.task), (Some(1), None, Some(task(2))));
    test.served = Test::serve(&test.models, 20.0);
    assert_eq!(test.served.task(), Some(task(2)), "who may ask is known before a version is loaded");
}
