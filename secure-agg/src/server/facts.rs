//! The data shared by every phase after the first: the roster, the members' signing keys, and the derived values.

use crate::batch::Batches;
use crate::crypto::signature::IdentityKey;
use crate::messages::{InSession, Roster, Sid, Signed, roster_root, session_id};
use crate::params::{InvalidConfig, Params};
use crate::participants::{Index, IndexSet};
use crate::rejection::MessageRejection;

#[derive(Debug)]
pub(crate) struct ServerFacts {
    pub(crate) roster: Roster,
    pub(crate) identities: Vec<IdentityKey>,
    pub(crate) params: Params,
    pub(crate) sid: Sid,
    /// The fixed batches in the roster.
    pub(crate) batches: Batches,
}

impl ServerFacts {
    /// Computes the session of a roster with admitted entries, and fills in the derived parameters.
    pub(crate) fn new(mut roster: Roster, identities: Vec<IdentityKey>) -> Result<Self, InvalidConfig> {
        let count = u16::try_from(roster.entries.len()).unwrap_or(u16::MAX);
        let params = roster.config.params(count)?;
        (roster.threshold, roster.out_degree, roster.min_out) =
            (params.threshold(), params.out_degree(), params.min_out());
        let batches = Batches::of(roster.entries.as_slice()).map_err(|entry| InvalidConfig::Batch { entry })?;
        let root = roster_root(roster.entries.as_slice(), &identities);
        let sid = session_id(&roster.round, &roster.model_hash, &roster.config.digest(&params), &root);
        Ok(Self { roster, identities, params, sid, batches })
    }

    pub(crate) fn identity(&self, index: Index) -> Option<&IdentityKey> {
        self.identities.get(usize::from(index.checked_sub(1)?))
    }

    /// Checks session, sender and signature of a message; the phase checks the rest.
    pub(crate) fn check_frame<B: InSession>(
        &self,
        message: &Signed<B>,
        expected: &IndexSet,
    ) -> Result<(), MessageRejection> {
        self.check_sender(message.body.sid(), message.body.sender(), expected)?;
        match self.identity(message.body.sender()) {
            Some(identity) if message.is_signed_by(identity) => Ok(()),
            _ => Err(MessageRejection::Signature),
        }
    }

    pub(crate) fn check_sender(&self, sid: &Sid, sender: Index, expected: &IndexSet) -> Result<(), MessageRejection> {
        if *sid != self.sid {
            return Err(MessageRejection::WrongSession);
        }
        if expected.contains(sender) { Ok(()) } else { Err(MessageRejection::NotExpected { sender }) }
    }

    pub(crate) fn everybody(&self) -> IndexSet {
        IndexSet::full(self.params.participants())
    }
}
