//! Certificates that were looked up lately.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;

/// How long another replica's revocation may go unnoticed; one of this process is noticed at once.
const REMEMBER: Duration = Duration::from_secs(2);
/// Certificates remembered at once.
const REMEMBERED_MAX: usize = 100_000;

/// Certificates that were looked up lately, so that a poll need not ask the database who it is.
#[derive(Default)]
pub(crate) struct Identities(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    by_fingerprint: HashMap<Digest, Known>,
    /// Counts what was forgotten: a look-up that began before must not be remembered after.
    generation: u64,
}

/// Whose a certificate is.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) participant: ParticipantId,
    pub(super) revoked: bool,
    pub(super) read_at: Timestamp,
}

impl Identities {
    fn with<T>(&self, act: impl FnOnce(&mut Remembered) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known of a certificate, if it was looked up lately; and what [`Identities::remember`] is to be told.
    pub(super) fn find(&self, fingerprint: Digest, now: Timestamp) -> (Option<Known>, u64) {
        self.with(|remembered| {
            let fresh = |known: &&Known| known.read_at <= now && now.since(known.read_at) < REMEMBER;
            (remembered.by_fingerprint.get(&fingerprint).filter(fresh).copied(), remembered.generation)
        })
    }

    /// Remembers what was looked up, unless something was forgotten since `generation`.
    pub(super) fn remember(&self, fingerprint: Digest, known: Known, generation: u64) {
        self.with(|remembered| {
            if remembered.generation == generation {
                if remembered.by_fingerprint.len() >= REMEMBERED_MAX {
                    remembered.by_fingerprint.clear();
                }
                remembered.by_fingerprint.insert(fingerprint, known);
            }
        });
    }

    /// Must be called after a change to a participant was committed.
    pub(crate) fn forget(&self, participant: ParticipantId) {
        self.with(|remembered| {
            remembered.generation += 1;
            remembered.by_fingerprint.retain(|_, known| known.participant != participant);
        });
    }
}
