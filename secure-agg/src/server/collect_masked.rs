//! R2: delivers the dealt shares, then collects masked inputs, or complaints about shares that do not open.
//!
//! Only the length and digest of an input arrive here. A participant is included once its upload is complete and has that digest; the
//! caller of `admit` has checked both against the bytes.

use super::collect_consistency::CollectConsistency;
use super::facts::ServerFacts;
use super::{Admitted, first_of_each, quorum};
use crate::client;
use crate::codec::Message as _;
use crate::graph;
use crate::messages::{Complaint, Delivery, MaskedInput, SealedShares, ShareKeys, Sid, SurvivorInput};
use crate::params::{InvalidConfig, Params};
use crate::participants::{Index, IndexSet};
use crate::rejection::{Abort, MessageRejection, PhaseName};
use crate::secret::Secret;
use crate::upload;

/// Collects masked inputs of fixed dealers.
#[derive(Debug)]
pub struct CollectMasked {
    pub(super) facts: ServerFacts,
    pub(super) dealers: IndexSet,
    /// The out lists by position; `None` for participants without dealt shares.
    pub(super) outs: Vec<Option<IndexSet>>,
}

impl CollectMasked {
    #[must_use]
    pub const fn sid(&self) -> &Sid {
        &self.facts.sid
    }

    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.facts.params
    }

    /// U2.
    #[must_use]
    pub const fn dealers(&self) -> &IndexSet {
        &self.dealers
    }

    /// Length of a masked input of this session, in bytes.
    ///
    /// # Errors
    /// [`InvalidConfig`] if a modulus is not supported; an open session rules this out.
    pub fn input_bytes(&self) -> Result<u64, InvalidConfig> {
        upload::body_bytes(&self.facts.roster.config)
    }

    /// The message for `recipient`; `sealed` looks up a dealer's ciphertext for it among the admitted shares, see
    /// [`sealed_for`](crate::messages::ShareKeysBody::sealed_for). `None` if the recipient dealt no shares or a
    /// ciphertext is missing.
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

    /// Checks the signed digest of one input.
    ///
    /// # Errors
    /// [`MessageRejection`] for another session, a sender that dealt no shares, an invalid signature, a wrong length, or masks
    /// that are not those of this session.
    pub fn admit(&self, input: MaskedInput) -> Result<Admitted<MaskedInput>, MessageRejection> {
        self.facts.check_frame(&input, &self.dealers)?;
        let expected = self.input_bytes().unwrap_or(0);
        let body = &input.body;
        if body.bytes != expected {
            return Err(MessageRejection::InputBytes { expected, got: body.bytes });
        }
        let drawn = self.outs.get(usize::from(body.sender - 1)).and_then(Option::as_ref);
        if body.dealers != self.dealers.digest() || drawn != Some(&body.out) {
            return Err(MessageRejection::OtherMasks);
        }
        Ok(Admitted(input))
    }

    /// Decides a complaint, given the shares it is about: the session ends, and either the dealer or the complainant is blamed. A
    /// participant whose ciphertext does not open requests the dealer's signed shares first. Every member of the roster may see these,
    /// since only its holder can open a ciphertext.
    ///
    /// A ciphertext that opens under the revealed key proves that the complaint is false. If it does not open, either the dealer is at
    /// fault or the key is wrong; the dealer is blamed, and `reporter` is named too so that the next attempt can keep both apart.
    ///
    /// # Errors
    /// [`MessageRejection`] if the complaint itself is not admissible.
    pub fn judge(&self, complaint: &Complaint, shares: &ShareKeys) -> Result<Abort, MessageRejection> {
        complaint.check()?;
        self.facts.check_frame(complaint, &self.dealers)?;
        let (reporter, accused) = (complaint.body.sender, complaint.body.accused);
        let unfounded = MessageRejection::Accused { accused };
        if !self.dealers.contains(accused) || shares.body.sender != accused || shares.body.sid != self.facts.sid {
            return Err(unfounded);
        }
        let sealed = shares.body.sealed_for(reporter).ok_or(unfounded)?;
        let opens = client::opens(&self.facts.sid, &Secret::new(complaint.body.key), accused, reporter, sealed);
        Ok(Abort::Complaint { reporter, accused, blamed: if opens { reporter } else { accused } })
    }

    /// Fixes U3, the survivors, whose inputs are in the sum: the members of whole batches, and senders without a batch.
    ///
    /// # Errors
    /// [`Abort::TooFew`] below the threshold or the privacy mechanism's minimum, [`Abort::Isolated`] if a survivor has
    /// lost too many neighbours.
    pub fn close(self, admitted: Vec<Admitted<MaskedInput>>) -> Result<CollectConsistency, Abort> {
        let mut inputs = first_of_each(admitted);
        let senders = IndexSet::of(self.facts.params.participants(), inputs.keys().copied());
        let whole = self.facts.batches.whole(&senders);
        inputs.retain(|sender, _| whole.contains(*sender));
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
