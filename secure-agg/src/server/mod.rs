//! The coordinator's side. Each phase has two operations: `admit` checks one message, changes nothing and may run on several replicas at
//! once; `close` runs once, after all answers or at the deadline, and yields the next phase or [`Abort`].
//!
//! [`CollectKeys`] → [`CollectShares`] → [`CollectMasked`] → [`CollectConsistency`] → [`CollectUnmasking`] → [`Unmasked`]. A phase is
//! public data: [`Phase::encode`] stores it, [`Phase::restore`] restores it on any replica. The caller stores admitted messages; per sender
//! and phase only the first admitted one is used, see [`Admitted::repeated_by`]. Masked vectors are handled elsewhere: the coordinator
//! checks each upload against its signed digest and sums there.

mod collect_consistency;
mod collect_keys;
mod collect_masked;
mod collect_shares;
mod collect_unmasking;
mod facts;
mod phase;
mod reconstruct;

pub use collect_consistency::CollectConsistency;
pub use collect_keys::{CollectKeys, Enrolled};
pub use collect_masked::CollectMasked;
pub use collect_shares::CollectShares;
pub use collect_unmasking::{CollectUnmasking, Unmasked};
pub use phase::{BadPhase, Phase};
pub use reconstruct::ShareFault;

use std::collections::BTreeMap;

use crate::messages::{Consistency, InSession, Signed};
use crate::participants::{Index, IndexSet};
use crate::rejection::{Abort, MessageRejection, PhaseName};

/// A message accepted by `admit`. Only such messages can close a phase.
#[derive(Debug, Clone)]
pub struct Admitted<M>(M);

impl<M> Admitted<M> {
    /// A message admitted earlier and read back from trusted storage.
    pub const fn from_store(message: M) -> Self {
        Self(message)
    }

    pub const fn message(&self) -> &M {
        &self.0
    }

    /// The message, to be stored.
    pub fn into_message(self) -> M {
        self.0
    }
}

impl<M: PartialEq> Admitted<M> {
    /// Checks that another message of the same sender is identical, and so gets the same answer.
    ///
    /// # Errors
    /// [`MessageRejection::Conflict`] if it differs.
    pub fn repeated_by(&self, again: &M) -> Result<(), MessageRejection> {
        if self.0 == *again { Ok(()) } else { Err(MessageRejection::Conflict) }
    }
}

/// A message with a sender in the roster.
trait FromMember {
    fn sender(&self) -> Index;
}

impl<B: InSession> FromMember for Signed<B> {
    fn sender(&self) -> Index {
        self.body.sender()
    }
}

impl FromMember for Consistency {
    fn sender(&self) -> Index {
        self.sender
    }
}

/// The first message of every sender, ascending by sender.
fn first_of_each<M: FromMember>(admitted: Vec<Admitted<M>>) -> BTreeMap<Index, M> {
    let mut first = BTreeMap::new();
    for Admitted(message) in admitted {
        first.entry(message.sender()).or_insert(message);
    }
    first
}

/// The senders, if there are enough.
fn quorum<M>(
    phase: PhaseName,
    needed: u16,
    participants: u16,
    messages: &BTreeMap<Index, M>,
) -> Result<IndexSet, Abort> {
    let senders = IndexSet::of(participants, messages.keys().copied());
    let got = senders.len();
    if got < needed { Err(Abort::TooFew { phase, needed, got }) } else { Ok(senders) }
}
