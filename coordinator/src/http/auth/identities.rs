//! Cache of certificates.

use std::collections::HashMap;
use std::time::Duration;

use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;
use listener::PoisonFreeMutex;
use store::Store;

/// How long a cached lookup is valid; a change by this process takes effect at once.
const REMEMBER: Duration = Duration::from_secs(2);
/// Maximum number of cached certificates.
const REMEMBERED_MAX: usize = 100_000;

/// Cache of certificates, to spare each poll a database query for its participant.
pub(crate) struct Identities {
    /// `None` if another process may revoke or replace certificates: each request then queries the database.
    cache: Option<PoisonFreeMutex<IdentityCache>>,
}

#[derive(Default)]
struct IdentityCache {
    by_fingerprint: HashMap<Digest, CertificateOwner>,
    /// Number of invalidations. A lookup started before an invalidation must not be cached after it.
    generation: u64,
}

/// The owner of a certificate.
#[derive(Clone, Copy)]
pub(super) struct CertificateOwner {
    pub(super) participant: ParticipantId,
    pub(super) revoked: bool,
    pub(super) read_at: Timestamp,
}

impl Identities {
    pub(crate) fn new(store: &Store) -> Self {
        Self { cache: (!store.is_shared()).then(PoisonFreeMutex::default) }
    }

    /// The cached owner of a certificate, and the generation for [`Identities::remember`].
    pub(super) fn find(&self, fingerprint: Digest, now: Timestamp) -> (Option<CertificateOwner>, u64) {
        let Some(cache) = &self.cache else { return (None, 0) };
        cache.with(|remembered| {
            let fresh = |owner: &&CertificateOwner| owner.read_at <= now && now.since(owner.read_at) < REMEMBER;
            (remembered.by_fingerprint.get(&fingerprint).filter(fresh).copied(), remembered.generation)
        })
    }

    /// Caches a look-up, unless something was invalidated since `generation`.
    pub(super) fn remember(&self, fingerprint: Digest, owner: CertificateOwner, generation: u64) {
        let Some(cache) = &self.cache else { return };
        cache.with(|remembered| {
            if remembered.generation == generation {
                if remembered.by_fingerprint.len() >= REMEMBERED_MAX {
                    remembered.by_fingerprint.clear();
                }
                remembered.by_fingerprint.insert(fingerprint, owner);
            }
        });
    }

    /// Call after committing a change to a participant.
    pub(crate) fn forget(&self, participant: ParticipantId) {
        let Some(cache) = &self.cache else { return };
        cache.with(|remembered| {
            remembered.generation += 1;
            remembered.by_fingerprint.retain(|_, owner| owner.participant != participant);
        });
    }
}
