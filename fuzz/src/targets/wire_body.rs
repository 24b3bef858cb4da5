//! Every body of the HTTP contract round-trips.

use secure_agg::params::SessionConfig;
use secure_agg::upload::{PART_BYTES, PartTree};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::{admin, inspect, participant};

macro_rules! bodies {
    ($($kind:ty),* $(,)?) => {
        const READERS: &[fn(&[u8])] = &[$(again::<$kind>),*];
    };
}

bodies![
    participant::EnrollRequest,
    participant::EnrollReply,
    participant::RenewRequest,
    participant::CheckInRequest,
    participant::CheckInReply,
    participant::AbandonRequest,
    participant::Receipt,
    participant::UploadManifest,
    participant::UploadReply,
    participant::Assignment,
    participant::SessionTerms,
    admin::CreateTask,
    admin::CreateEnrollmentToken,
    admin::EnrollmentTokenReply,
    admin::CreateOperatorToken,
    admin::OperatorTokenReply,
    admin::OperatorTokenView,
    inspect::Page<inspect::TaskSummary>,
    inspect::TaskView,
    inspect::RoundView,
    inspect::AssignmentView,
    inspect::ModelView,
    inspect::ParticipantView,
];

/// One input, given to the reader of every body.
pub fn run(data: &[u8]) {
    READERS.iter().for_each(|read| read(data));
    if let Ok(terms) = serde_json::from_slice::<participant::SessionTerms>(data) {
        let config = SessionConfig::from(&terms);
        let batch_size = terms.batch_size;
        assert_eq!(participant::SessionTerms { batch_size, ..participant::SessionTerms::from(&config) }, terms);
        // Any proposed configuration is judged without a panic.
        if config.validate().is_ok() {
            assert!(config.params(config.min_cohort).is_ok() && config.params(config.max_cohort).is_ok());
        }
    }
    if let Ok(manifest) = serde_json::from_slice::<participant::UploadManifest>(data) {
        let parts = manifest.parts.iter().map(|digest| digest.0).collect();
        if let Some(tree) = PartTree::new(manifest.bytes, parts) {
            read_back(&tree);
        }
    }
    if let Some(tree) = PartTree::decode(data) {
        assert_eq!(tree.encode(), data, "a list of parts has one form");
        read_back(&tree);
    }
    if let Ok(task) = serde_json::from_slice::<admin::CreateTask>(data) {
        drop(format!("{task:?}"));
    }
}

/// The encoded list of parts hashes to its root, and its parts make up the whole.
fn read_back(tree: &PartTree) {
    assert_eq!(PartTree::decode(&tree.encode()).as_ref(), Some(tree));
    let lengths = (0..).map_while(|number| tree.part(number)).map(|(_, length)| length);
    assert_eq!(lengths.sum::<u64>(), tree.bytes());
}

fn again<T: DeserializeOwned + Serialize>(data: &[u8]) {
    if let Ok(body) = serde_json::from_slice::<T>(data) {
        let written = serde_json::to_vec(&body).expect("what was read can be written");
        let read: T = serde_json::from_slice(&written).expect("what was written can be read");
        assert_eq!(serde_json::to_vec(&read).unwrap(), written);
    }
}

/// A sample of every body ever shipped.
pub fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../wire/tests/compat/v1");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let tree = PartTree::new(PART_BYTES as u64 + 1, vec![[1; 32], [2; 32]]).unwrap();
    files.iter().map(|file| std::fs::read(file).unwrap()).chain([tree.encode()]).collect()
}
