//! R1: checks the roster, fixes the session id, deals both seeds to all members and draws mask neighbours.
//!
//! Here a dishonest coordinator is bound to its announcement: the participants, their certificates, the model and the parameters. All of it
//! enters the session id, so inputs of participants with different data cannot be summed.

use std::collections::HashSet;

use zeroize::Zeroizing;

use super::mask_input::MaskInput;
use super::session::{ClientFacts, ClientSession, Member};
use super::share_pair::SharePair;
use super::snapshot::{MASK_INPUT, Writer};
use super::transition::Transition;
use crate::CryptoRng;
use crate::batch::Batches;
use crate::crypto::aead::{self, PLAIN_BYTES};
use crate::crypto::agreement::AgreementKey;
use crate::crypto::kdf;
use crate::crypto::shamir::{self, SHARE_BYTES, Seed, Share};
use crate::crypto::signature::{IdentityKey, IdentityVerifier, Signer};
use crate::crypto::transcript::Digest;
use crate::graph;
use crate::messages::{self, Advertise, Roster, RosterEntry, ShareKeysBody, Signed, roster_root, session_id};
use crate::params::{Params, SessionConfig};
use crate::participants::Index;
use crate::rejection::Refusal;
use crate::secret::Secret;

/// The participant has advertised keys and waits for the roster.
pub struct ShareKeys {
    pub(super) config: SessionConfig,
    pub(super) seed_s: Seed,
    pub(super) seed_b: Seed,
    pub(super) c_key: AgreementKey,
    pub(super) sent: Advertise,
}

impl ShareKeys {
    /// Id of the fixed batch stated with the advertised keys.
    #[must_use]
    pub fn batch(&self) -> Option<&Digest> {
        self.sent.body.client_id.batch()
    }

    /// Deals shares to the roster. `model_hash` is the digest of the model this participant itself holds; every member must be in a batch
    /// of at least `min_batch`, unless that is 0.
    ///
    /// # Errors
    /// [`Refusal`] for an invalid roster. The participant has sent nothing.
    pub fn share_keys(
        self,
        roster: &Roster,
        model_hash: &Digest,
        min_batch: u16,
        verifier: &dyn IdentityVerifier,
        signer: &dyn Signer,
        rng: &mut dyn CryptoRng,
    ) -> Result<Transition<MaskInput, messages::ShareKeys>, Refusal> {
        let params = self.check_announcement(roster, model_hash)?;
        let (me, identities) = self.check_entries(roster, verifier, signer)?;
        let batches = check_batches(roster.entries.as_slice(), min_batch)?;
        let root = roster_root(roster.entries.as_slice(), &identities);
        let sid = session_id(&roster.round, model_hash, &self.config.digest(&params), &root);
        let members: Vec<Member> = identities
            .iter()
            .zip(roster.entries.iter())
            .map(|(identity, entry)| Member { identity: identity.0, s_pk: entry.s_pk })
            .collect();
        let facts =
            ClientFacts { round: roster.round.clone(), config: self.config.clone(), sid, me, members: members.into() };
        let session = ClientSession { facts, params, batches };
        self.deal(session, roster.entries.as_slice(), signer, rng)
    }

    /// Checks round, model, configuration and derived parameters.
    fn check_announcement(&self, roster: &Roster, model_hash: &Digest) -> Result<Params, Refusal> {
        let different = [
            ("round", roster.round != self.sent.body.round),
            ("model", roster.model_hash != *model_hash),
            ("configuration", roster.config != self.config),
        ];
        if let Some((what, _)) = different.iter().find(|(_, differs)| *differs) {
            return Err(Refusal::Different { what });
        }
        let count = u16::try_from(roster.entries.len()).unwrap_or(u16::MAX);
        if count < self.config.min_cohort {
            return Err(Refusal::TooFew { what: "participants", needed: self.config.min_cohort, got: count });
        }
        let params = self.config.params(count)?;
        for (name, expected, got) in [
            ("t", params.threshold(), roster.threshold),
            ("k_m", params.out_degree(), roster.out_degree),
            ("t_m", params.min_out(), roster.min_out),
        ] {
            if expected != got {
                return Err(Refusal::Parameter { name, expected, got });
            }
        }
        Ok(params)
    }

    /// Checks order, certificates, signatures and distinct keys, and this participant's own entry byte for byte.
    fn check_entries(
        &self,
        roster: &Roster,
        verifier: &dyn IdentityVerifier,
        signer: &dyn Signer,
    ) -> Result<(Index, Vec<IdentityKey>), Refusal> {
        let mut keys = HashSet::new();
        let mut identities = Vec::with_capacity(roster.entries.len());
        let mut me = None;
        let mut before: Option<&RosterEntry> = None;
        for (index, entry) in (1..).zip(roster.entries.iter()) {
            if before.is_some_and(|before| before.client_id.as_slice() >= entry.client_id.as_slice()) {
                return Err(Refusal::RosterOrder { entry: index });
            }
            before = Some(entry);
            let identity = verifier
                .verify(entry.client_id.as_slice(), entry.certificate.as_slice())
                .map_err(|_| Refusal::Certificate { entry: index })?;
            for key in [identity.0, entry.c_pk, entry.s_pk] {
                if !keys.insert(key) {
                    return Err(Refusal::RepeatedKey { entry: index });
                }
            }
            if entry.client_id == self.sent.body.client_id {
                if *entry != RosterEntry::of(&self.sent) || identity != signer.identity() {
                    return Err(Refusal::OwnEntry);
                }
                me = Some(index);
            } else if !entry.advertise(&roster.round).is_signed_by(&identity) {
                return Err(Refusal::Signature { signer: index });
            }
            identities.push(identity);
        }
        Ok((me.ok_or(Refusal::OwnEntry)?, identities))
    }

    /// Splits both seeds and seals one share of each for every other member.
    fn deal(
        self,
        session: ClientSession,
        entries: &[RosterEntry],
        signer: &dyn Signer,
        rng: &mut dyn CryptoRng,
    ) -> Result<Transition<MaskInput, messages::ShareKeys>, Refusal> {
        let (me, sid, n) = (session.me(), *session.sid(), session.participants());
        let shares_s = shamir::split(&self.seed_s, session.params.threshold(), n, rng);
        let shares_b = shamir::split(&self.seed_b, session.params.threshold(), n, rng);
        let mut sealed = Vec::with_capacity(entries.len());
        let mut inbound = Vec::with_capacity(entries.len());
        let mut own = None;
        for (((peer, entry), s), b) in (1..).zip(entries).zip(shares_s).zip(shares_b) {
            if peer == me {
                own = Some(SharePair { s, b });
                continue;
            }
            let refuse = |reason| Refusal::PublicKey { entry: peer, reason };
            crate::crypto::agreement::check(&entry.s_pk).map_err(refuse)?;
            let shared = self.c_key.agree(&entry.c_pk).map_err(refuse)?;
            let key = kdf::share_key(&sid, &shared, me, peer);
            sealed.push(aead::seal(&key, &aead::associated_data(&sid, me, peer), &both(&s, &b)));
            inbound.push(kdf::share_key(&sid, &shared, peer, me));
        }
        let out = graph::draw_out(n, me, session.params.out_degree(), rng);
        let body = ShareKeysBody { sid, sender: me, sealed: sealed.into(), out: out.clone() };
        let sent = Signed::sign(body, signer)?;
        let own = own.ok_or(Refusal::OwnEntry)?;
        let Self { seed_s, seed_b, .. } = self;
        let next = MaskInput { session, seed_s, seed_b, inbound, own, out, sent: sent.clone() };
        Ok(Transition { persist: next.write().finish(), next, send: sent })
    }
}

/// Checks that every stated batch is whole in the roster and, unless `min` is 0, that every entry states one of at least
/// `min` members.
fn check_batches(entries: &[RosterEntry], min: u16) -> Result<Batches, Refusal> {
    let batches = Batches::of(entries).map_err(|entry| Refusal::BatchNotWhole { entry })?;
    let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
    match batches.first_outside(count, min).filter(|_| min > 0) {
        Some(entry) => Err(Refusal::NotInBatch { entry, min }),
        None => Ok(batches),
    }
}

/// share_s ‖ share_b.
fn both(s: &Share, b: &Share) -> Secret<[u8; PLAIN_BYTES]> {
    let mut plain = [0; PLAIN_BYTES];
    plain[..SHARE_BYTES].copy_from_slice(s.to_bytes().expose());
    plain[SHARE_BYTES..].copy_from_slice(b.to_bytes().expose());
    Secret::take(&mut plain)
}

impl MaskInput {
    fn write(&self) -> Writer {
        let keys: Zeroizing<Vec<u8>> =
            Zeroizing::new(self.inbound.iter().fold(Vec::with_capacity(32 * self.inbound.len()), |mut keys, key| {
                keys.extend(key.expose());
                keys
            }));
        self.session
            .write(Writer::new(MASK_INPUT))
            .part(self.seed_s.expose())
            .part(self.seed_b.expose())
            .part(&keys)
            .part(both(&self.own.s, &self.own.b).expose())
            .public(&self.out)
            .message(&self.sent)
    }
}
