//! R4: collects one share per dealer from each participant that confirmed. t of them open exactly the masks remaining in the sum.

use super::facts::ServerFacts;
use super::reconstruct::{self, MaskedSum, Responders, ShareFault};
use super::{Admitted, first_of_each, quorum};
use crate::codec::Message as _;
use crate::crypto::shamir::Share;
use crate::mask::{MaskError, MaskPlan, MaskSeed, Plane, Sign};
use crate::messages::{Agreement, Sid, Unmasking};
use crate::params::{Params, VectorShape};
use crate::participants::IndexSet;
use crate::rejection::{Abort, MessageRejection, PhaseName};

/// Collects shares from the participants that confirmed the survivors.
#[derive(Debug)]
pub struct CollectUnmasking {
    pub(super) facts: ServerFacts,
    pub(super) dealers: IndexSet,
    pub(super) outs: Vec<Option<IndexSet>>,
    pub(super) survivors: IndexSet,
    pub(super) signers: IndexSet,
    pub(super) agreement: Agreement,
}

/// The result of a session: the survivors, and the masks to remove from the sum. The masks open only the sum of exactly these survivors.
/// Store them only together with the masked sum.
pub struct Unmasked {
    survivors: IndexSet,
    helpers: IndexSet,
    faults: Vec<ShareFault>,
    masks: Vec<(MaskSeed, Sign)>,
    model: VectorShape,
    scalars: VectorShape,
}

impl CollectUnmasking {
    #[must_use]
    pub const fn sid(&self) -> &Sid {
        &self.facts.sid
    }

    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.facts.params
    }

    /// The message for every survivor.
    #[must_use]
    pub const fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// U4: the signers.
    #[must_use]
    pub const fn signers(&self) -> &IndexSet {
        &self.signers
    }

    /// Checks one participant's shares.
    ///
    /// # Errors
    /// [`MessageRejection`] for another session, a sender that did not sign, an invalid signature, or shares that are not one
    /// per dealer in canonical form. Their values are verified when the phase closes.
    pub fn admit(&self, unmasking: Unmasking) -> Result<Admitted<Unmasking>, MessageRejection> {
        unmasking.check()?;
        self.facts.check_frame(&unmasking, &self.signers)?;
        let (expected, got) = (self.dealers.len(), unmasking.body.shares.len());
        if got != usize::from(expected) {
            return Err(MessageRejection::ShareCount { expected, got });
        }
        if unmasking.body.shares.iter().any(|share| Share::from_bytes(share).is_none()) {
            return Err(MessageRejection::ShareEncoding);
        }
        Ok(Admitted(unmasking))
    }

    /// Opens the masks remaining in the sum.
    ///
    /// # Errors
    /// [`Abort::TooFew`] below the threshold, [`Abort::InconsistentShares`] if a dealer's shares cannot be corrected.
    pub fn close(self, admitted: Vec<Admitted<Unmasking>>) -> Result<Unmasked, Abort> {
        let answers = first_of_each(admitted);
        let params = &self.facts.params;
        let helpers = quorum(PhaseName::Unmask, params.threshold(), params.participants(), &answers)?;
        let mut responders = Responders::new(params.threshold(), &answers);
        let Self { facts, dealers, outs, survivors, .. } = &self;
        let masks = reconstruct::masks(&MaskedSum { facts, dealers, outs, survivors }, &mut responders)?;
        let config = &self.facts.roster.config;
        let (model, scalars) = (config.model, config.scalars);
        Ok(Unmasked { survivors: self.survivors, helpers, faults: responders.into_faults(), masks, model, scalars })
    }
}

impl Unmasked {
    /// U3: the participants whose inputs are in the sum.
    #[must_use]
    pub const fn survivors(&self) -> &IndexSet {
        &self.survivors
    }

    /// U5: the participants whose shares opened it.
    #[must_use]
    pub const fn helpers(&self) -> &IndexSet {
        &self.helpers
    }

    /// The wrong shares that reconstruction corrected.
    #[must_use]
    pub fn faults(&self) -> &[ShareFault] {
        &self.faults
    }

    /// The masks to remove from the sum of the survivors' vectors on `plane`; empty for planes outside the session.
    ///
    /// # Errors
    /// [`MaskError::TooLong`]; an open session rules this out.
    pub fn plan(&self, plane: Plane) -> Result<MaskPlan, MaskError> {
        let shape = match plane {
            Plane::Model => self.model,
            Plane::Scalars => self.scalars,
            Plane::HomomorphicKey => VectorShape::NONE,
        };
        let modulus = shape.modulus().map_err(|_| MaskError::TooLong { words: shape.words })?;
        let mut plan = MaskPlan::new(plane, shape.words, modulus)?;
        if shape.words > 0 {
            for (seed, sign) in &self.masks {
                let mut key = *seed.expose();
                plan.push(MaskSeed::new(&mut key), *sign);
            }
        }
        Ok(plan)
    }
}
