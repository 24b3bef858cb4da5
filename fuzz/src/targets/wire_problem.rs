//! Untrusted problem bodies, base64, and the ids and digests in paths and headers.

use wire::problem::{Problem, ProblemType};
use wire::{Digest, ParticipantId, TaskId, base64};

pub fn run(data: &[u8]) {
    if let Ok(problem) = serde_json::from_slice::<Problem>(data) {
        let written = serde_json::to_vec(&problem).unwrap();
        assert_eq!(serde_json::from_slice::<Problem>(&written).unwrap(), problem);
        if let Some(kind) = ProblemType::from_uri(&problem.kind) {
            assert_eq!(kind.uri(), problem.kind);
        }
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(kind) = ProblemType::from_uri(text) {
        assert_eq!(kind.uri(), text);
    }
    if let Some(bytes) = base64::decode(text) {
        assert_eq!(base64::encode(&bytes), text, "bytes have one form");
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string().parse(), Ok(digest));
    }
    if let Ok(task) = text.parse::<TaskId>() {
        assert_eq!(task.to_string().parse(), Ok(task));
    }
    if let Ok(participant) = text.parse::<ParticipantId>() {
        assert_eq!(participant.to_string().parse(), Ok(participant));
    }
}

/// A sample of each.
pub fn seeds() -> Vec<Vec<u8>> {
    let sample = include_bytes!("../../../wire/tests/compat/v1/problem.json").to_vec();
    let mut seeds = vec![
        sample,
        b"AAECAwQFBgcICQ==".to_vec(),
        b"00000000-0000-0000-0000-000000000001".to_vec(),
        b"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_vec(),
    ];
    seeds.extend(ProblemType::ALL.iter().take(3).map(|kind| kind.uri().into_bytes()));
    seeds
}
