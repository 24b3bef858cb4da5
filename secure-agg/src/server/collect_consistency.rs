//! R3: requires at least t confirmations of the same set of survivors before anything is opened.

use tls_codec::TlsVecU32;

use super::collect_unmasking::CollectUnmasking;
use super::facts::ServerFacts;
use super::{Admitted, first_of_each, quorum};
use crate::messages::{Agreement, AgreementSignature, Consistency, Sid, SurvivorInput, Survivors, consistency_text};
use crate::params::Params;
use crate::participants::IndexSet;
use crate::rejection::{Abort, MessageRejection, PhaseName};

/// Collects signatures on fixed survivors.
#[derive(Debug)]
pub struct CollectConsistency {
    pub(super) facts: ServerFacts,
    pub(super) dealers: IndexSet,
    pub(super) outs: Vec<Option<IndexSet>>,
    pub(super) survivors: IndexSet,
    /// The survivors' signed data, ascending; empty if the mask graph is complete.
    pub(super) inputs: Vec<SurvivorInput>,
}

impl CollectConsistency {
    #[must_use]
    pub const fn sid(&self) -> &Sid {
        &self.facts.sid
    }

    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.facts.params
    }

    /// U3: the participants whose inputs are in the sum.
    #[must_use]
    pub const fn survivors(&self) -> &IndexSet {
        &self.survivors
    }

    /// The message for every survivor.
    #[must_use]
    pub fn announcement(&self) -> Survivors {
        let inputs = self.inputs.clone().into();
        Survivors { sid: self.facts.sid, survivors: self.survivors.clone(), inputs }
    }

    /// Checks one signature.
    ///
    /// # Errors
    /// [`MessageRejection`] for another session, a sender that did not survive, or a signature over anything else.
    pub fn admit(&self, consistency: Consistency) -> Result<Admitted<Consistency>, MessageRejection> {
        self.facts.check_sender(&consistency.sid, consistency.sender, &self.survivors)?;
        let text = consistency_text(&self.facts.sid, &self.dealers, &self.survivors);
        match self.facts.identity(consistency.sender) {
            Some(identity) if identity.verifies(&text, &consistency.signature) => Ok(Admitted(consistency)),
            _ => Err(MessageRejection::Signature),
        }
    }

    /// Fixes U4, the participants that confirmed.
    ///
    /// # Errors
    /// [`Abort::TooFew`] below the threshold.
    pub fn close(self, admitted: Vec<Admitted<Consistency>>) -> Result<CollectUnmasking, Abort> {
        let agreed = first_of_each(admitted);
        let params = &self.facts.params;
        let signers = quorum(PhaseName::Consistency, params.threshold(), params.participants(), &agreed)?;
        let signatures: TlsVecU32<AgreementSignature> = agreed
            .into_values()
            .map(|one| AgreementSignature { signer: one.sender, signature: one.signature })
            .collect::<Vec<_>>()
            .into();
        let agreement = Agreement { sid: self.facts.sid, signatures };
        let Self { facts, dealers, outs, survivors, .. } = self;
        Ok(CollectUnmasking { facts, dealers, outs, survivors, signers, agreement })
    }
}
