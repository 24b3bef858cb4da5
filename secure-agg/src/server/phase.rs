//! Serialized phases, so that a restarted coordinator continues from its last transaction. All of it is public.

use thiserror::Error;
use tls_codec::{DeserializeBytes as _, Serialize as _, TlsDeserializeBytes, TlsSerialize, TlsSize, TlsVecU32};

use super::facts::ServerFacts;
use super::{CollectConsistency, CollectKeys, CollectMasked, CollectShares, CollectUnmasking};
use crate::crypto::signature::IdentityKey;
use crate::messages::{Agreement, AgreementSignature, Roster, RoundId, SurvivorInput};
use crate::params::SessionConfig;
use crate::participants::IndexSet;
use crate::rejection::PhaseName;

/// A session in any phase.
#[derive(Debug)]
pub enum Phase {
    CollectKeys(CollectKeys),
    CollectShares(CollectShares),
    CollectMasked(CollectMasked),
    /// Collects signatures on the survivors.
    CollectConsistency(CollectConsistency),
    /// Collects the shares for opening the sum.
    CollectUnmasking(CollectUnmasking),
}

/// The bytes are not a phase of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a stored phase of a session in this version")]
pub struct BadPhase;

#[derive(TlsSize, TlsSerialize, TlsDeserializeBytes)]
#[repr(u8)]
enum Stored {
    #[tls_codec(discriminant = 1)]
    Keys(StoredKeys),
    #[tls_codec(discriminant = 2)]
    Shares(StoredRoster),
    #[tls_codec(discriminant = 3)]
    Masked(StoredRoster, StoredDealers),
    #[tls_codec(discriminant = 4)]
    Consistency(StoredRoster, StoredDealers, IndexSet, TlsVecU32<SurvivorInput>),
    #[tls_codec(discriminant = 5)]
    Unmasking(StoredRoster, StoredDealers, IndexSet, TlsVecU32<AgreementSignature>),
}

#[derive(TlsSize, TlsSerialize, TlsDeserializeBytes)]
struct StoredKeys {
    round: RoundId,
    model_hash: [u8; 32],
    config: SessionConfig,
}

#[derive(TlsSize, TlsSerialize, TlsDeserializeBytes)]
struct StoredRoster {
    roster: Roster,
    identities: TlsVecU32<[u8; 32]>,
}

#[derive(TlsSize, TlsSerialize, TlsDeserializeBytes)]
struct StoredDealers {
    dealers: IndexSet,
    /// The dealers' out lists, ascending.
    outs: TlsVecU32<IndexSet>,
}

impl Phase {
    #[must_use]
    pub const fn name(&self) -> PhaseName {
        match self {
            Self::CollectKeys(_) => PhaseName::Advertise,
            Self::CollectShares(_) => PhaseName::Share,
            Self::CollectMasked(_) => PhaseName::Mask,
            Self::CollectConsistency(_) => PhaseName::Consistency,
            Self::CollectUnmasking(_) => PhaseName::Unmask,
        }
    }

    /// The roster; `None` while keys are collected.
    #[must_use]
    pub const fn roster(&self) -> Option<&Roster> {
        match self {
            Self::CollectKeys(_) => None,
            Self::CollectShares(phase) => Some(&phase.facts.roster),
            Self::CollectMasked(phase) => Some(&phase.facts.roster),
            Self::CollectConsistency(phase) => Some(&phase.facts.roster),
            Self::CollectUnmasking(phase) => Some(&phase.facts.roster),
        }
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let stored = match self {
            Self::CollectKeys(CollectKeys { round, model_hash, config }) => {
                Stored::Keys(StoredKeys { round: round.clone(), model_hash: *model_hash, config: config.clone() })
            }
            Self::CollectShares(phase) => Stored::Shares(store_roster(&phase.facts)),
            Self::CollectMasked(phase) => {
                Stored::Masked(store_roster(&phase.facts), store_dealers(&phase.dealers, &phase.outs))
            }
            Self::CollectConsistency(phase) => Stored::Consistency(
                store_roster(&phase.facts),
                store_dealers(&phase.dealers, &phase.outs),
                phase.survivors.clone(),
                phase.inputs.clone().into(),
            ),
            Self::CollectUnmasking(phase) => Stored::Unmasking(
                store_roster(&phase.facts),
                store_dealers(&phase.dealers, &phase.outs),
                phase.survivors.clone(),
                phase.agreement.signatures.clone(),
            ),
        };
        stored.tls_serialize_detached().expect("a phase holds at most 1024 of anything")
    }

    /// Restores the phase from the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`BadPhase`] if the bytes are not a phase of this version.
    pub fn restore(bytes: &[u8]) -> Result<Self, BadPhase> {
        Ok(match Stored::tls_deserialize_exact_bytes(bytes).map_err(|_| BadPhase)? {
            Stored::Keys(StoredKeys { round, model_hash, config }) => {
                Self::CollectKeys(CollectKeys::new(round, model_hash, config).map_err(|_| BadPhase)?)
            }
            Stored::Shares(roster) => Self::CollectShares(CollectShares { facts: load_roster(roster)? }),
            Stored::Masked(roster, dealers) => {
                let facts = load_roster(roster)?;
                let (dealers, outs) = load_dealers(dealers, &facts)?;
                Self::CollectMasked(CollectMasked { facts, dealers, outs })
            }
            Stored::Consistency(roster, dealers, survivors, inputs) => {
                let facts = load_roster(roster)?;
                let (dealers, outs) = load_dealers(dealers, &facts)?;
                let survivors = subset(survivors, &dealers)?;
                let shown = if facts.params.masks_are_complete() { 0 } else { survivors.len() };
                if inputs.len() != usize::from(shown) {
                    return Err(BadPhase);
                }
                let inputs = inputs.into_vec();
                Self::CollectConsistency(CollectConsistency { facts, dealers, outs, survivors, inputs })
            }
            Stored::Unmasking(roster, dealers, survivors, signatures) => {
                let facts = load_roster(roster)?;
                let (dealers, outs) = load_dealers(dealers, &facts)?;
                let survivors = subset(survivors, &dealers)?;
                let signers = IndexSet::of(survivors.universe(), signatures.iter().map(|one| one.signer));
                let signers = subset(signers, &survivors)?;
                if signatures.len() != usize::from(signers.len()) {
                    return Err(BadPhase);
                }
                let agreement = Agreement { sid: facts.sid, signatures };
                Self::CollectUnmasking(CollectUnmasking { facts, dealers, outs, survivors, signers, agreement })
            }
        })
    }
}

fn store_roster(facts: &ServerFacts) -> StoredRoster {
    let identities: Vec<[u8; 32]> = facts.identities.iter().map(|identity| identity.0).collect();
    StoredRoster { roster: facts.roster.clone(), identities: identities.into() }
}

fn store_dealers(dealers: &IndexSet, outs: &[Option<IndexSet>]) -> StoredDealers {
    let outs: Vec<IndexSet> = outs.iter().flatten().cloned().collect();
    StoredDealers { dealers: dealers.clone(), outs: outs.into() }
}

fn load_roster(stored: StoredRoster) -> Result<ServerFacts, BadPhase> {
    if stored.roster.entries.len() != stored.identities.len() {
        return Err(BadPhase);
    }
    let identities = stored.identities.iter().map(|identity| IdentityKey(*identity)).collect();
    ServerFacts::new(stored.roster, identities).map_err(|_| BadPhase)
}

fn load_dealers(stored: StoredDealers, facts: &ServerFacts) -> Result<(IndexSet, Vec<Option<IndexSet>>), BadPhase> {
    let dealers = subset(stored.dealers, &facts.everybody())?;
    if stored.outs.len() != usize::from(dealers.len()) {
        return Err(BadPhase);
    }
    let mut outs = vec![None; facts.identities.len()];
    for (dealer, out) in dealers.iter().zip(stored.outs.iter()) {
        outs[usize::from(dealer - 1)] = Some(subset(out.clone(), &facts.everybody())?);
    }
    Ok((dealers, outs))
}

fn subset(set: IndexSet, of: &IndexSet) -> Result<IndexSet, BadPhase> {
    if set.is_subset(of) { Ok(set) } else { Err(BadPhase) }
}
