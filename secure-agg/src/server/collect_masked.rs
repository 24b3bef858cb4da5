//! R2: everybody gets what was dealt to it, then sends its masked input, or complains about a share that does not open.
//!
//! Only the length and the digest of an input come here. A participant counts once its upload is complete and has that digest;
//! whoever calls `admit` has checked both against the bytes.

use super::collect_consistency::CollectConsistency;
use super::facts::Facts;
use super::{Admitted, first_of_each, quorum};
use crate::client;
use crate::codec::Message as _;
use crate::graph;
use crate::messages::{Complaint, Delivery, MaskedInput, SealedShares, ShareKeys, Sid, SurvivorInput};
use crate::params::{InvalidConfig, Params};
use crate::participants::{Index, IndexSet};
use crate::rejection::{Abort, PhaseName, Rejection};
use crate::secret::Secret;
use crate::upload;

/// Collects masked inputs of fixed dealers.
#[derive(Debug)]
pub struct CollectMasked {
    pub(super) facts: Facts,
    pub(super) dealers: IndexSet,
    /// The out lists by position, absent for those who dealt nothing.
    pub(super) outs: Vec<Option<IndexSet>>,
}

impl CollectMasked {
    /// The session's id.
    #[must_use]
    pub const fn sid(&self) -> &Sid {
        &self.facts.sid
    }

    /// What follows from the roster's size.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.facts.params
    }

    /// U2.
    #[must_use]
    pub const fn dealers(&self) -> &IndexSet {
        &self.dealers
    }

    /// Bytes of every masked input of this session.
    ///
    /// # Errors
    /// [`InvalidConfig`] when a modulus is not supported, which an open session excludes.
    pub fn input_bytes(&self) -> Result<u64, InvalidConfig> {
        upload::body_bytes(&self.facts.roster.config)
    }

    /// What `recipient` is sent; `sealed` finds the ciphertext that a dealer made for it among the admitted shares, see
    /// [`sealed_for`](crate::messages::ShareKeysBody::sealed_for). Nothing when the recipient dealt nothing or a ciphertext
    /// is missing.
    pub fn delivery(
        &self,
        recipient: Index,
        mut sealed: impl FnMut(Index) -> Option<SealedShares>,
    ) -> Option<Delivery> {
        if !self.dealers.contains(recipient) {
            return None;
        }
        let others = self.dealers.iter().filter(|dealer| *dealer != recipient);
        let sealed: Option<Vec<SealedShares>> = others.map(&mut sealed).collect();
        Some(Delivery {
            sid: self.facts.sid,
            recipient,
            dealers: self.dealers.clone(),
            incoming: graph::incoming(&self.outs, recipient),
            sealed: sealed?.into(),
        })
    }

    /// Judges the signed digest of one input.
    ///
    /// # Errors
    /// [`Rejection`] for another session, a sender that dealt nothing, a signature that does not hold, a wrong length, or masks that
    /// are not those of this session.
    pub fn admit(&self, input: MaskedInput) -> Result<Admitted<MaskedInput>, Rejection> {
        self.facts.check_frame(&input, &self.dealers)?;
        let expected = self.input_bytes().unwrap_or(0);
        let body = &input.body;
        if body.bytes != expected {
            return Err(Rejection::InputBytes { expected, got: body.bytes });
        }
        let drawn = self.outs.get(usize::from(body.sender - 1)).and_then(Option::as_ref);
        if body.dealers != self.dealers.digest() || drawn != Some(&body.out) {
            return Err(Rejection::OtherMasks);
        }
        Ok(Admitted(input))
    }

    /// Judges a complaint against the shares it is about: the session ends, and either the dealer or the one who complained
    /// is blamed. A participant that doubts a ciphertext asks for the dealer's signed shares first; whoever dealt, they are
    /// no secret from any member of the roster, since each ciphertext opens for its holder alone.
    ///
    /// A ciphertext that opens under the revealed key proves that the complaint is false. One that does not may be the dealer's
    /// fault, or the key is not the true one; the dealer is blamed then, and `reporter` is named beside it so that both can be
    /// kept apart in the next attempt.
    ///
    /// # Errors
    /// [`Rejection`] when the complaint itself is not admissible.
    pub fn judge(&self, complaint: &Complaint, shares: &ShareKeys) -> Result<Abort, Rejection> {
        complaint.check()?;
        self.facts.check_frame(complaint, &self.dealers)?;
        let (reporter, accused) = (complaint.body.sender, complaint.body.accused);
        let unfounded = Rejection::Accused { accused };
        if !self.dealers.contains(accused) || shares.body.sender != accused || shares.body.sid != self.facts.sid {
            return Err(unfounded);
        }
        let sealed = shares.body.sealed_for(reporter).ok_or(unfounded)?;
        let opens = client::opens(&self.facts.sid, &Secret::new(complaint.body.key), accused, reporter, sealed);
        Ok(Abort::Complaint { reporter, accused, blamed: if opens { reporter } else { accused } })
    }

    /// Fixes the survivors, U3: whose inputs are in the sum.
    ///
    /// # Errors
    /// [`Abort::TooFew`] below the threshold or below what the privacy mechanism needs, [`Abort::Isolated`] where a survivor has
    /// lost too many of its neighbours.
    pub fn close(self, admitted: Vec<Admitted<MaskedInput>>) -> Result<CollectConsistency, Abort> {
        let inputs = first_of_each(admitted);
        let params = &self.facts.params;
        let survivors = quorum(PhaseName::Mask, params.min_survivors(), params.participants(), &inputs)?;
        let mut shown = Vec::new();
        if !params.masks_are_complete() {
            for (participant, input) in &inputs {
                let (needed, got) = (params.min_out(), input.body.out.intersection(&survivors).len());
                if got < needed {
                    return Err(Abort::Isolated { participant: *participant, needed, got });
                }
            }
            shown.extend(inputs.values().map(SurvivorInput::of));
        }
        let Self { facts, dealers, outs } = self;
        Ok(CollectConsistency { facts, dealers, outs, survivors, inputs: shown })
    }
}
