//! R1: collects and forwards sealed shares. The coordinator can count but not open them.

use super::collect_masked::CollectMasked;
use super::facts::ServerFacts;
use super::{Admitted, first_of_each, quorum};
use crate::codec::Message as _;
use crate::messages::{Roster, ShareKeys, Sid};
use crate::params::Params;
use crate::rejection::{Abort, MessageRejection, PhaseName};

/// Collects shares for a fixed roster.
#[derive(Debug)]
pub struct CollectShares {
    pub(super) facts: ServerFacts,
}

impl CollectShares {
    /// The message for every participant; identical for all.
    #[must_use]
    pub const fn roster(&self) -> &Roster {
        &self.facts.roster
    }

    #[must_use]
    pub const fn sid(&self) -> &Sid {
        &self.facts.sid
    }

    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.facts.params
    }

    /// Checks one dealer's shares.
    ///
    /// # Errors
    /// [`MessageRejection`] for another session, an unexpected sender, an invalid signature, or lists of the wrong size.
    pub fn admit(&self, shares: ShareKeys) -> Result<Admitted<ShareKeys>, MessageRejection> {
        shares.check()?;
        self.facts.check_frame(&shares, &self.facts.everybody())?;
        let (body, params) = (&shares.body, &self.facts.params);
        let expected = params.participants() - 1;
        if body.sealed.len() != usize::from(expected) {
            return Err(MessageRejection::SealedCount { expected, got: body.sealed.len() });
        }
        let universe = params.participants();
        if body.out.universe() != universe || body.out.len() != params.out_degree() || body.out.contains(body.sender) {
            return Err(MessageRejection::OutList { expected: params.out_degree() });
        }
        Ok(Admitted(shares))
    }

    /// Fixes U2, the dealers.
    ///
    /// # Errors
    /// [`Abort::TooFew`] below the threshold.
    pub fn close(self, admitted: Vec<Admitted<ShareKeys>>) -> Result<CollectMasked, Abort> {
        let shares = first_of_each(admitted);
        let params = &self.facts.params;
        let dealers = quorum(PhaseName::Share, params.threshold(), params.participants(), &shares)?;
        let mut outs = vec![None; usize::from(params.participants())];
        for (dealer, shares) in shares {
            outs[usize::from(dealer - 1)] = Some(shares.body.out);
        }
        Ok(CollectMasked { facts: self.facts, dealers, outs })
    }
}
