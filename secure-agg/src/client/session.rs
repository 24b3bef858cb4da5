//! A participant's view of its session after accepting the roster. All of it is public.

use tls_codec::{TlsDeserializeBytes, TlsSerialize, TlsSize, TlsVecU32};

use super::snapshot::{BadSnapshot, Reader, Writer};
use crate::batch::Batches;
use crate::crypto::agreement::PublicKey;
use crate::crypto::signature::IdentityKey;
use crate::messages::{RoundId, Sid};
use crate::params::{Params, SessionConfig};
use crate::participants::{Index, IndexSet};
use crate::rejection::Refusal;

#[derive(TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub(crate) struct ClientFacts {
    pub(crate) round: RoundId,
    pub(crate) config: SessionConfig,
    pub(crate) sid: Sid,
    pub(crate) me: Index,
    pub(crate) members: TlsVecU32<Member>,
}

/// The parts of a roster entry needed in later phases.
#[derive(Clone, Debug, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub(crate) struct Member {
    pub(crate) identity: [u8; 32],
    pub(crate) s_pk: PublicKey,
}

pub(crate) struct ClientSession {
    pub(crate) facts: ClientFacts,
    pub(crate) params: Params,
    /// The fixed batches in the roster.
    pub(crate) batches: Batches,
}

impl ClientSession {
    pub(crate) fn member(&self, index: Index) -> Option<&Member> {
        self.facts.members.get(usize::from(index.checked_sub(1)?))
    }

    pub(crate) fn identity(&self, index: Index) -> Option<IdentityKey> {
        self.member(index).map(|member| IdentityKey(member.identity))
    }

    pub(crate) const fn me(&self) -> Index {
        self.facts.me
    }

    pub(crate) const fn sid(&self) -> &Sid {
        &self.facts.sid
    }

    pub(crate) const fn participants(&self) -> u16 {
        self.params.participants()
    }

    pub(crate) fn write(&self, writer: Writer) -> Writer {
        if self.batches.is_empty() {
            return writer.public(&self.facts);
        }
        let batches: TlsVecU32<IndexSet> = self.batches.as_slice().to_vec().into();
        writer.with_batches().public(&self.facts).public(&batches)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, BadSnapshot> {
        let facts: ClientFacts = reader.public()?;
        let batches: TlsVecU32<IndexSet> = if reader.has_batches { reader.public()? } else { Vec::new().into() };
        let count = u16::try_from(facts.members.len()).map_err(|_| BadSnapshot)?;
        let params = facts.config.params(count).map_err(|_| BadSnapshot)?;
        facts.round.check().map_err(|_| BadSnapshot)?;
        let batches = Batches::restored(batches.into_vec());
        let fits = batches.as_slice().iter().all(|batch| batch.universe() == count);
        if facts.me == 0 || facts.me > count || !fits { Err(BadSnapshot) } else { Ok(Self { facts, params, batches }) }
    }

    /// Checks that a stored message is this participant's own in this session.
    pub(crate) fn sent(&self, sid: &Sid, sender: Index) -> Result<(), BadSnapshot> {
        expect(sid == self.sid() && sender == self.me())
    }

    /// Checks that a stored set belongs to this roster and contains this participant.
    pub(crate) fn among(&self, set: &IndexSet) -> Result<(), BadSnapshot> {
        expect(set.universe() == self.participants() && set.contains(self.me()))
    }

    /// Checks that this participant can have drawn a stored list.
    pub(crate) fn drawn(&self, out: &IndexSet) -> Result<(), BadSnapshot> {
        let shape = (out.universe(), out.len());
        expect(shape == (self.participants(), self.params.out_degree()) && !out.contains(self.me()))
    }
}

/// `Err` unless the condition on a snapshot holds.
pub(super) const fn expect(holds: bool) -> Result<(), BadSnapshot> {
    if holds { Ok(()) } else { Err(BadSnapshot) }
}

/// `Err` unless `got` is at least `needed`.
pub(super) const fn at_least(what: &'static str, needed: u16, got: u16) -> Result<(), Refusal> {
    if got >= needed { Ok(()) } else { Err(Refusal::TooFew { what, needed, got }) }
}
