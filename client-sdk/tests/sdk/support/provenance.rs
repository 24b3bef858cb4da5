//! Signed records of published versions, as made by coordinators.

use std::sync::LazyLock;

use recipe::AssignmentTerms;
use ring::signature::Ed25519KeyPair;
use wire::Timestamp;
use wire::participant::Assignment;
use wire::provenance::{FORMAT, MadeIn, Origin, Provenance, key_of};

pub(crate) type Tweak = fn(&mut Assignment);

/// The keys of two coordinators.
pub(crate) static KEYS: LazyLock<[Ed25519KeyPair; 2]> =
    LazyLock::new(|| [7, 8].map(|seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()));

/// The honest record of an assignment's base version.
pub(crate) fn record(assignment: &Assignment, key: usize) -> Provenance {
    let base = &assignment.base;
    Provenance {
        format: FORMAT,
        coordinator: key_of(&KEYS[key]),
        task: assignment.task,
        task_sha256: AssignmentTerms::from(assignment).in_every_round(),
        version: base.version,
        sha256: base.sha256,
        bytes: base.bytes,
        origin: if base.version == 0 { Origin::Initial } else { Origin::Trained },
        base: None,
        round: (base.version > 0).then_some(MadeIn { round: base.version, attempt: 1 }),
        roster: None,
        survivors: None,
        below: Vec::new(),
        updates: None,
        privacy: None,
        published_at: Timestamp(0),
        signed_at: Timestamp(0),
        program: "tributary".to_owned(),
    }
}

/// Signs a record that is changed before.
pub(crate) fn sign(assignment: &mut Assignment, key: usize, change: impl FnOnce(&mut Provenance)) {
    let mut record = record(assignment, key);
    change(&mut record);
    assignment.provenance = Some(record.sign(&KEYS[key]));
}

pub(crate) fn honest(assignment: &mut Assignment) {
    sign(assignment, 0, |_| ());
}
