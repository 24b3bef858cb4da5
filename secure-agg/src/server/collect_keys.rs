//! R0: collects keys, possibly long before the cohort is drawn. Closing fixes the roster and the session.

use std::collections::{BTreeMap, HashMap};

use super::Admitted;
use super::collect_shares::CollectShares;
use super::facts::ServerFacts;
use crate::codec::Message as _;
use crate::crypto::agreement::{self, BadPublicKey};
use crate::crypto::signature::{IdentityKey, IdentityVerifier};
use crate::crypto::transcript::Digest;
use crate::messages::{Advertise, Roster, RosterEntry, RoundId};
use crate::params::{InvalidConfig, SessionConfig};
use crate::participants::Index;
use crate::rejection::{Abort, MessageRejection, PhaseName};

/// Collects keys for one attempt.
#[derive(Debug)]
pub struct CollectKeys {
    pub(super) round: RoundId,
    pub(super) model_hash: Digest,
    pub(super) config: SessionConfig,
}

/// An advertisement with the signing key bound by its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolled {
    pub advertise: Advertise,
    /// The verified signing key.
    pub identity: IdentityKey,
}

impl CollectKeys {
    /// Opens an attempt.
    ///
    /// # Errors
    /// [`InvalidConfig`] with the largest valid value, if any.
    pub fn new(round: RoundId, model_hash: Digest, config: SessionConfig) -> Result<Self, InvalidConfig> {
        config.validate()?;
        Ok(Self { round, model_hash, config })
    }

    /// Checks one participant's keys.
    ///
    /// # Errors
    /// [`MessageRejection`] for another round, an invalid certificate or signature, or an unusable key.
    pub fn admit(
        &self,
        advertise: Advertise,
        verifier: &dyn IdentityVerifier,
    ) -> Result<Admitted<Enrolled>, MessageRejection> {
        advertise.check()?;
        let body = &advertise.body;
        if body.round != self.round {
            return Err(MessageRejection::WrongRound);
        }
        agreement::check(&body.c_pk)?;
        agreement::check(&body.s_pk)?;
        let identity = verifier
            .verify(body.client_id.as_slice(), body.certificate.as_slice())
            .map_err(|_| MessageRejection::Certificate)?;
        if !advertise.is_signed_by(&identity) {
            return Err(MessageRejection::Signature);
        }
        if body.c_pk == body.s_pk || [body.c_pk, body.s_pk].contains(&identity.0) {
            return Err(BadPublicKey::Repeated.into());
        }
        Ok(Admitted(Enrolled { advertise, identity }))
    }

    /// Fixes the roster: the admitted participants in the order of their ids, each with its first advertisement.
    ///
    /// # Errors
    /// [`Abort::TooFew`] below the minimum, [`Abort::TooMany`] above the maximum, [`Abort::RepeatedKey`] if two
    /// participants use one key: close again without the second.
    pub fn close(self, admitted: Vec<Admitted<Enrolled>>) -> Result<CollectShares, Abort> {
        let Self { round, model_hash, config } = self;
        let mut by_id: BTreeMap<Vec<u8>, Enrolled> = BTreeMap::new();
        for Admitted(enrolled) in admitted {
            by_id.entry(enrolled.advertise.body.client_id.as_slice().to_vec()).or_insert(enrolled);
        }
        if by_id.len() > usize::from(config.max_cohort) {
            return Err(Abort::TooMany { limit: config.max_cohort, got: by_id.len() });
        }
        let (needed, got) = (config.min_cohort, u16::try_from(by_id.len()).unwrap_or(u16::MAX));
        if got < needed {
            return Err(Abort::TooFew { phase: PhaseName::Advertise, needed, got });
        }
        let identities: Vec<IdentityKey> = by_id.values().map(|enrolled| enrolled.identity).collect();
        let entries: Vec<RosterEntry> = by_id.values().map(|enrolled| RosterEntry::of(&enrolled.advertise)).collect();
        check_distinct(&entries, &identities)?;
        let (threshold, out_degree, min_out) = (0, 0, 0);
        let entries = entries.into();
        let roster = Roster { round, model_hash, config, threshold, out_degree, min_out, entries };
        Ok(CollectShares { facts: ServerFacts::new(roster, identities)? })
    }
}

/// Rejects repeated keys, which every participant would refuse. Checks signing keys first: others know them from
/// earlier rosters, so the one that advertises another's key is at fault, not the owner.
fn check_distinct(entries: &[RosterEntry], identities: &[IdentityKey]) -> Result<(), Abort> {
    let signing = (1..).zip(identities).map(|(index, identity)| (index, identity.0));
    let agreement = (1..).zip(entries).flat_map(|(index, entry)| [(index, entry.c_pk), (index, entry.s_pk)]);
    let mut owner: HashMap<[u8; 32], Index> = HashMap::new();
    for (second, key) in signing.chain(agreement) {
        if let Some(first) = owner.insert(key, second) {
            return Err(Abort::RepeatedKey { first, second });
        }
    }
    Ok(())
}
